"""Which coordinator carries a job's master: rendezvous hashing, so that no single one carries all of them. Pure.

Each coordinator draws a number for each job; the greatest wins. When one comes or goes, only the jobs it wins or had
move; nobody has to keep a table or agree on one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable


def carrier(job: str, coordinators: Collection[str]) -> str:
    """The coordinator, of those that are alive, that carries a job's master."""
    if not coordinators:
        raise ValueError("no coordinator is alive")
    return max(coordinators, key=lambda coordinator: (_drawn(job, coordinator), coordinator))


def carried(coordinator: str, jobs: Iterable[str], coordinators: Collection[str]) -> list[str]:
    """The jobs whose masters a coordinator carries."""
    return [job for job in jobs if carrier(job, coordinators) == coordinator]


def _drawn(job: str, coordinator: str) -> bytes:
    return hashlib.blake2b(f"{coordinator}\0{job}".encode(), digest_size=8).digest()
