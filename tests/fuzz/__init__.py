"""A running controller over HTTP whose objects and answers are hostile: ``python -m tests.fuzz``."""
