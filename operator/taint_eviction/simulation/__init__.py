"""The mirror: virtual clock, replays, and a small API server over HTTP."""
