"""Credentials, tokens, TLS, sessions, and the fence."""
