"""The laboratory's verbs of the command ``taint-eviction``."""
