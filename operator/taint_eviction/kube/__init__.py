"""Kubernetes: calls, and objects as values."""
