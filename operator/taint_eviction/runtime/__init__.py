"""The body: waits, works, reads again, evicts and retries. It knows the outside world only through ``ports``."""
