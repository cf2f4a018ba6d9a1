"""What an installation of the controller consists of, and what it lacks; for ``doctor`` and ``hand-back``."""
