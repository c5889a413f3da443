"""The catalogue: streams and jobs that share epochs, changed by commands while the engine runs."""

from penstock.catalogue.jobs_app import JobsApp, jobs_app

__all__ = ["JobsApp", "jobs_app"]
