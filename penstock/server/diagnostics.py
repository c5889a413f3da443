"""The pages of the API that look inside: the engine, its epochs, restarts and log, and the plan of a job.

None of them makes the engine do anything.
"""

from __future__ import annotations

import os
from typing import Annotated

from fastapi import FastAPI, Path, Query

from penstock.engine.status import EngineStatus
from penstock.server import response_bodies as schemas
from penstock.server.host import Host
from penstock.server.structured_log import RecentLines

Name = Annotated[str, Path(max_length=200, description="Its name.")]
Limit = Annotated[int, Query(ge=1, le=1_000)]


def add_diagnostic_pages(api: FastAPI, host: Host, recent_lines: RecentLines) -> None:
    """Add these pages to an API."""

    @api.get("/engine", tags=["inside"])
    def engine() -> schemas.EngineFacts:
        """The engine: its stages with their buckets, its executors, decisions of the elastic loop."""
        return engine_facts(host)

    @api.get("/epochs", tags=["inside"])
    def epochs(limit: Limit = 300) -> list[schemas.EpochPoint]:
        """The latest epochs, oldest first."""
        return [schemas.EpochPoint(**point) for point in host.epochs(limit)]

    @api.get("/recovery", tags=["inside"])
    def recovery() -> schemas.RecoveryFacts:
        """The scheme of the engine, its restarts, and the HA unit of the service."""
        return recovery_facts(host)

    @api.get("/logs", tags=["inside"])
    def logs(limit: Limit = 100) -> list[schemas.LogLine]:
        """The latest lines of the log, the latest first."""
        return [schemas.LogLine(**line) for line in recent_lines.lines(limit)]

    @api.get("/jobs/{name}/graph", tags=["jobs"])
    def graph(name: Name) -> schemas.Graph:
        """The graph of a job's plan, with current rates."""
        return host.graph(name)

    @api.get("/jobs/{name}/versions", tags=["jobs"])
    def versions(name: Name) -> list[schemas.JobVersion]:
        """The changes of a job, oldest first; those before a snapshot of the catalogue are one entry."""
        return [schemas.JobVersion(**version) for version in host.versions(name)]


def engine_facts(host: Host) -> schemas.EngineFacts:
    """The engine; without measurements before it runs, or if it is in another process."""
    status = host.engine()
    if status is None:
        state = str(host.state)
        status = EngineStatus(host.program.name, "-", os.getpid(), state, host.committed, {}, None)
    return schemas.EngineFacts(**status.to_json(), measured=status.measured is not None)


def recovery_facts(host: Host) -> schemas.RecoveryFacts:
    """The scheme of the engine, its restarts, and the HA unit of the service."""
    restarts, unit, status = host.restarts, host.unit_status(), host.engine()
    return schemas.RecoveryFacts(
        scheme=unit["scheme"] if unit else "one engine, no follower",
        started_at=restarts.started_at,
        starts=restarts.starts,
        restarts=[schemas.Restart(**one) for one in restarts.restarts],
        unit=None if unit is None else dict(unit),
        last=None if status is None or status.recovery is None else status.recovery.to_json(),
    )
