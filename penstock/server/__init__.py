"""The HTTP service: an engine's streams, jobs and results for people and programs elsewhere."""
