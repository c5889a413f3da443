"""Which coordinator carries a job's master: rendezvous hashing, so that no single one carries all of them. Pure.

Each coordinator draws a number for each job; the greatest wins. When one comes or goes, only the jobs it wins or had
move; nobody has to keep a table or agree on one.
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


def carrier(job: str, coordinators: Collection[str]) -> str:
    """The coordinator, of those that are alive, that carries a job's master."""
    if not coordinators:
        raise ValueError("no coordinator is alive")
    return max(coordinators, key=lambda coordinator: (_drawn(job, coordinator), coordinator))


def carried(coordinator: str, jobs: Iterable[str], coordinators: Collection[str]) -> list[str]:
    """The jobs whose masters a coordinator carries."""
    return [job for job in jobs if carrier(job, coordinators) == coordinator]


@dataclass(frozen=True)
class Roster:
    """The coordinators that are alive as one of them, `me`, sees it. It counts itself in."""

    me: str
    others: frozenset[str] = frozenset()

    def carrier(self, job: str) -> str:
        """Who carries a job's master."""
        return carrier(job, self.others | {self.me})

    def carried(self, jobs: Iterable[str]) -> list[str]:
        """The jobs whose masters this one carries."""
        return carried(self.me, jobs, self.others | {self.me})

    def taken_over(self, before: Roster, jobs: Iterable[str]) -> list[str]:
        """The jobs whose masters have come to this one."""
        jobs = list(jobs)
        return sorted(set(self.carried(jobs)) - set(before.carried(jobs)))


def subject(statements: Sequence[Statement]) -> str | None:
    """The job or stream whose master takes some statements in: the first that is to change, else the first that is
    asked about; None where any coordinator can answer."""
    named: list[str] = []
    asked: list[str] = []
    for statement in statements:
        match statement:
            case CreateStream() | CreateJob() | AlterJob() | SetRecovery() | Change() | DropStream():
                named.append(statement.name)
            case Explain(what=str() as name):
                asked.append(name)
    return next(iter([*named, *asked]), None)


def _drawn(job: str, coordinator: str) -> bytes:
    return hashlib.blake2b(f"{coordinator}\0{job}".encode(), digest_size=8).digest()
