"""Benchmarks of throughput, cost and lateness, each figure beside a floor from the same run. See README.md."""
