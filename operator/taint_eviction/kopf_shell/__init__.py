"""The Kopf adapter: the only package that imports ``kopf``. It watches nodes and pods and reports to a listener.
``watcher.KopfWatcher`` is the interface, ``tuning.WatchTuning`` has the settings. This package does not interpret
objects, does not list by itself, does not restart watches, and writes nothing to the cluster.

Kopf is made for operators that handle a few custom objects and store their progress on them. This controller needs only
its watches, for thousands of objects that belong to others. Each module works around one consequence:

- ``tuning``: Kopf's defaults write to objects (finalizers, annotations, events) and kill the process. All of that is
  switched off with public settings.
- ``storages``: for every event Kopf deep-copies the object to compute differences that are not used. These storages
  compute nothing.
- ``watch_filter``, ``kept_fields``: an event costs Kopf about 1 ms of CPU. Objects are cut down before Kopf sees them,
  and events that change nothing are dropped, which costs a hundredth of that.
- ``watch_interceptor``, ``responses``: Kopf tells a handler neither that a list is complete nor that a stream is alive.
  Both are read from the HTTP responses on their way to Kopf.
- ``discovery``: every embedded Kopf asks which resources exist. Answers from memory serve all of them.
- ``api_session``: Kopf closes its HTTP session after a 401 and refuses the same credentials again. Every login gets a
  session of its own over one shared connector.
- ``endings``, ``kopf_log``: Kopf reports one failure several times, with tracebacks. A watch ends with one line.
- ``watcher``: Kopf's own ``operator()`` cancels every task of the event loop and replaces signal handlers. Here each
  watch starts Kopf's tasks, and cancels exactly these.
"""
