"""Pictures of replays, records and the demo, as values; ``taint_eviction_ctl.picture`` draws the page."""
