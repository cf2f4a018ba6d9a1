"""Pictures of replays, records and the demo; ``taint_eviction.picture`` draws the page."""
