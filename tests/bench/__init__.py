"""Benchmarks: how fast, how much, how late, each figure beside a floor from the same run. See README.md."""
