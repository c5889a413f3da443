"""Pages for those who look inside: the engine, its epochs, its restarts, its log, and how a job is made.

Receives requests that passed the gate; hands what the host knows. None of them makes the engine do anything.
"""

from __future__ import annotations

import os
from typing import Annotated, Any

from fastapi import FastAPI, Path, Query

from penstock.server import response_bodies as schemas
from penstock.server.host import Host
from penstock.server.structured_log import Latest

Name = Annotated[str, Path(max_length=200, description="Its name.")]
Most = Annotated[int, Query(ge=1, le=1_000)]


def insight(api: FastAPI, host: Host, logged: Latest) -> None:
    """Add these pages to an API."""

    @api.get("/engine", tags=["inside"])
    def engine() -> schemas.EngineFacts:
        """The engine inside: sub-queries with their buckets, executors, what the elastic loop decided."""
        return engine_facts(host)

    @api.get("/epochs", tags=["inside"])
    def epochs(limit: Most = 300) -> list[schemas.EpochPoint]:
        """The latest epochs, oldest first."""
        return [schemas.EpochPoint(**point) for point in host.epochs(limit)]

    @api.get("/recovery", tags=["inside"])
    def recovery() -> schemas.RecoveryFacts:
        """How the engine is protected, and when it came back."""
        return recovery_facts(host)

    @api.get("/logs", tags=["inside"])
    def logs(limit: Most = 100) -> list[schemas.LogLine]:
        """The latest lines of the log, the latest first."""
        return [schemas.LogLine(**line) for line in logged.lines(limit)]

    @api.get("/jobs/{name}/graph", tags=["jobs"])
    def graph(name: Name) -> schemas.Graph:
        """How a job's rows are made, and what passes at present."""
        return host.graph(name)

    @api.get("/jobs/{name}/versions", tags=["jobs"])
    def versions(name: Name) -> list[schemas.JobVersion]:
        """What was done to a job, oldest first; what was folded away is one entry."""
        return [schemas.JobVersion(**version) for version in host.versions(name)]


def engine_facts(host: Host) -> schemas.EngineFacts:
    """The engine inside; without figures before it runs, or where nobody measures it."""
    seen: dict[str, Any] = dict(host.engine())
    if not seen:
        seen = {"name": host.program.name, "master": "-", "pid": os.getpid(), "epoch": host.committed}
    return schemas.EngineFacts(**{"maps_version": None, **seen}, measured="sub_queries" in seen)


def recovery_facts(host: Host) -> schemas.RecoveryFacts:
    """How the engine is protected, and when it came back."""
    past = host.restarts
    unit = host.unit()
    return schemas.RecoveryFacts(
        scheme=unit["scheme"] if unit else "one engine, no secondary",
        started_at=past.started_at,
        starts=past.starts,
        restarts=[schemas.Restart(**one) for one in past.restarts],
        unit=None if unit is None else dict(unit),
        last=host.engine().get("recovery"),
    )
