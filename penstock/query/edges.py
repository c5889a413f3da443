"""The edges of a physical plan: where rows come from, the stateless steps on the way, and where they go.

`EdgeSource` and `EdgeTarget` are frozen and small, as they are keys and travel in messages. Their `str` is for people,
and part of the identity of a state, which is persisted; nothing parses it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from penstock.query.steps import Step

SourceKind = Literal["scan", "late", "job", "previous", "selection", "stage"]
TargetKind = Literal["stage", "output", "jobs"]


@dataclass(frozen=True)
class EdgeSource:
    """Where rows come from: a stream (`scan`) or its late events (`late`), a job's rows of this epoch (`job`) or of the
    one before (`previous`), the events that jobs select of a stream (`selection`), or a `stage`."""

    kind: SourceKind
    name: str

    def __str__(self) -> str:
        return self.name if self.kind == "stage" else f"{self.kind}:{self.name}"

    @property
    def stage(self) -> str | None:
        """The id of the stage, if it is one."""
        return self.name if self.kind == "stage" else None


@dataclass(frozen=True)
class EdgeTarget:
    """Where rows go: to a `stage`, to an `output`, or to the outputs of all `jobs` whose numbers are with the rows."""

    kind: TargetKind
    name: str = ""

    def __str__(self) -> str:
        return f"out:{self.name}" if self.kind == "output" else self.name or "jobs"

    @property
    def stage(self) -> str | None:
        """The id of the stage, if it is one."""
        return self.name if self.kind == "stage" else None

    @property
    def output(self) -> str | None:
        """The name of the output, if it is one."""
        return self.name if self.kind == "output" else None


#: the outputs of jobs, whose numbers are in the rows
JOBS = EdgeTarget("jobs")


@dataclass(frozen=True)
class Edge:
    """Rows on their way from a source to a `port` of a stage or to an output, through stateless steps.

    `output` names the source's output, where a stage has several. `place` is the edge's position among those of its
    port, if order matters there. `forward`: the rows stay in their slice, without an exchange. `reduce`: they are
    merged before the exchange. `needed`: the columns the target reads (None: all).
    """

    id: int
    source: EdgeSource
    steps: tuple[Step, ...]
    target: EdgeTarget
    port: int = 0
    output: str = ""
    place: int | None = None
    forward: bool = False
    reduce: bool = False
    needed: frozenset[str] | None = None
