"""The ends of an edge: where its rows come from, and where they go. Frozen, and small enough to be keys and to travel.

`str` gives the form for people, and for what is persisted of it, which is the identity of a state. It is never read
back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SourceKind = Literal["scan", "late", "job", "previous", "crowd", "stage"]
TargetKind = Literal["stage", "output", "jobs"]


@dataclass(frozen=True)
class EdgeSource:
    """Where rows come from: a stream (`scan`) or its late events (`late`), a job's rows of this epoch (`job`) or of the
    one before (`previous`), the choice of jobs among a stream's events (`crowd`), or a stateful operator (`stage`)."""

    kind: SourceKind
    name: str

    def __str__(self) -> str:
        return self.name if self.kind == "stage" else f"{self.kind}:{self.name}"

    @property
    def stage(self) -> str | None:
        """The id of the sub-query, if it is one."""
        return self.name if self.kind == "stage" else None


@dataclass(frozen=True)
class EdgeTarget:
    """Where rows go: to a stateful operator (`stage`), to an output, or to the outputs of all jobs whose numbers are
    with the rows (`jobs`)."""

    kind: TargetKind
    name: str = ""

    def __str__(self) -> str:
        return f"out:{self.name}" if self.kind == "output" else self.name or "jobs"

    @property
    def stage(self) -> str | None:
        """The id of the sub-query, if it is one."""
        return self.name if self.kind == "stage" else None

    @property
    def output(self) -> str | None:
        """The name of the output, if it is one."""
        return self.name if self.kind == "output" else None


#: the outputs of jobs, which the numbers in their rows tell apart
JOBS = EdgeTarget("jobs")
