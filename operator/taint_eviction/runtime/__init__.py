"""The body: waits, works, reads again, evicts and retries. Knows the world only through the doors in ``ports``."""
