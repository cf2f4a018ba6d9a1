"""The verbs: each reads flags, asks, prints, and ends with an exit code."""
