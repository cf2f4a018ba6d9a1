"""Records: journals, audit logs and logs of the controller, read back and turned into scenarios."""
