"""Decide which coordinator manages a job: rendezvous hashing spreads the masters of all jobs. Pure.

Each coordinator gets a hash for each job; the greatest wins. When one comes or goes, only the jobs that it wins or had
move; there is no table to keep or agree on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from penstock.sql.statements import (
    AlterJob,
    Change,
    CreateJob,
    CreateStream,
    DropStream,
    Explain,
    SetRecovery,
    Statement,
)


def manager_of(job: str, coordinators: Collection[str]) -> str:
    """The coordinator, of those that are alive, that manages a job."""
    if not coordinators:
        raise ValueError("no coordinator is alive")
    return max(coordinators, key=lambda coordinator: (_weight(job, coordinator), coordinator))


def managed_jobs(coordinator: str, jobs: Iterable[str], coordinators: Collection[str]) -> list[str]:
    """The jobs that a coordinator manages."""
    return [job for job in jobs if manager_of(job, coordinators) == coordinator]


@dataclass(frozen=True)
class Roster:
    """The coordinators that are alive, as one of them, `me`, sees them. It counts itself."""

    me: str
    others: frozenset[str] = frozenset()

    def manager_of(self, job: str) -> str:
        """The coordinator that manages a job."""
        return manager_of(job, self.others | {self.me})

    def managed_jobs(self, jobs: Iterable[str]) -> list[str]:
        """The jobs that this coordinator manages."""
        return managed_jobs(self.me, jobs, self.others | {self.me})

    def gained_jobs(self, before: Roster, jobs: Iterable[str]) -> list[str]:
        """The jobs that this coordinator manages now and did not before."""
        jobs = list(jobs)
        return sorted(set(self.managed_jobs(jobs)) - set(before.managed_jobs(jobs)))


def subject_of(statements: Sequence[Statement]) -> str | None:
    """The job or stream whose manager accepts some statements: the first that they change, else the first that they
    explain; None where any coordinator can reply."""
    changed: list[str] = []
    explained: list[str] = []
    for statement in statements:
        match statement:
            case CreateStream() | CreateJob() | AlterJob() | SetRecovery() | Change() | DropStream():
                changed.append(statement.name)
            case Explain(what=str() as name):
                explained.append(name)
    return next(iter([*changed, *explained]), None)


def _weight(job: str, coordinator: str) -> bytes:
    return hashlib.blake2b(f"{coordinator}\0{job}".encode(), digest_size=8).digest()
