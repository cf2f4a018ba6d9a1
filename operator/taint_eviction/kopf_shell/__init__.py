"""The Kopf skin: the only room that says ``kopf``. Watches nodes and pods, and tells a listener what it hears.

The door is ``watcher.KopfWatcher``; the knobs are in ``tuning.WatchTuning``. Nothing here reads an object's meaning,
lists by itself, restarts a watch, or writes anything to the cluster.
"""
