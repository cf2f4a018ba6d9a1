"""Pictures of replays, records and the demo, as values; ``taint_eviction.picture`` draws the page."""
