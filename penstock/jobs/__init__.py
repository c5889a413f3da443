"""Jobs: many queries on shared streams in one epoch, changed by commands while they run."""

from penstock.jobs.app import JobsApp, jobs_app

__all__ = ["JobsApp", "jobs_app"]
