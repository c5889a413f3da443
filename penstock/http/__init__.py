"""The service over HTTP: an engine's streams, jobs and answers for people and programs elsewhere."""
