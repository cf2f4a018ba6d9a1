"""What happened: a journal or the controller's own log, read back, drawn, and turned into a scenario to replay."""
