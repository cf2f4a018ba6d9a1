"""``python -m taint_eviction`` is the command ``taint-eviction``."""

from taint_eviction.cli import main

main()
