"""What others read of the controller: log, metrics, Kubernetes events, records and documents over HTTP."""
