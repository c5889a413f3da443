"""The HTTP service: streams, jobs and results of an engine for people and programs elsewhere."""
