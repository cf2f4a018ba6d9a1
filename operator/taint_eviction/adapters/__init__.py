"""Adapters to Kubernetes and people: JSON ↔ values, HTTP calls, credentials, events, metrics, log lines, probes."""
