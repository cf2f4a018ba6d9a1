"""Scenarios, and their replay through the real controller on a virtual clock, against a simulated cluster."""
