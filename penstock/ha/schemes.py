"""Declares the six schemes of an HA unit and the four recovery semantics.

A scheme says what the second engine does, the steps of a recovery, and the resources the second engine takes as
multiples of the leader's. Semantics say what a recovery may lose or repeat.

Invariants:
- `SCHEMES` is ordered from the second engine that does most to none at all.
- Precise recovery loses and repeats nothing in any scheme.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any


class Scheme(StrEnum):
    """The name of a scheme in settings, records and the command line."""

    active_replication = "active-replication"
    active_standby = "active-standby"
    passive_hot = "passive-hot"
    passive_cold = "passive-cold"
    deployed = "deployed"
    passive_replication = "passive-replication"


class Step(StrEnum):
    """A step between a failure and the first new result, in their order."""

    overtake = "overtake"
    detect = "detect"
    start = "start"
    load = "load"
    wire = "wire"
    fetch = "fetch"
    replay = "replay"
    deliver = "deliver"


STEPS = {
    Step.overtake: "the second engine finishes its epoch and delivers it",
    Step.detect: "the lease runs out: the leader counts as lost",
    Step.start: "a process, a JVM and a Spark session start, and are warmed up",
    Step.load: "the state of the last durable manifest is read",
    Step.wire: "the lease is acquired, the source and the sinks are opened",
    Step.fetch: "the input after the last durable manifest is read from the log",
    Step.replay: "the epochs after it are executed again, and the one that was running",
    Step.deliver: "held results are delivered, after the last epoch that the sink has",
}


@dataclass(frozen=True)
class Multiples:
    """Resources of a second engine, each as a multiple of what the leader takes for the same."""

    #: CPU for executing epochs
    processing: float
    #: CPU and network for following the runs, relative to writing them
    following: float
    #: memory of an engine that executes, or of one that idles
    working_memory: float
    idle_memory: float
    #: memory of the state, and of the input since the last durable manifest
    state_memory: float
    span_memory: float
    #: network for input and for results
    input: float
    output: float
    #: engines that are up
    engines: float


@dataclass(frozen=True)
class SchemeFacts:
    """One scheme: what its second engine does, and the steps when the leader fails."""

    scheme: Scheme
    title: str
    up: bool
    follows_runs: bool
    has_spans: bool
    runs_epochs: bool
    delivers: bool
    secondary: str
    on_failure: tuple[Step, ...]
    takes: Multiples

    def to_plain(self) -> dict[str, Any]:
        """As plain values for JSON."""
        does = ("up", "follows_runs", "has_spans", "runs_epochs", "delivers")
        return {
            "scheme": str(self.scheme),
            "title": self.title,
            "secondary": {name: getattr(self, name) for name in does},
            "on_failure": [str(step) for step in self.on_failure],
            "takes": dict(vars(self.takes)),
        }


SCHEMES: dict[Scheme, SchemeFacts] = {
    facts.scheme: facts
    for facts in (
        SchemeFacts(
            Scheme.active_replication,
            "active replication",
            up=True,
            follows_runs=False,
            has_spans=True,
            runs_epochs=True,
            delivers=True,
            secondary="executes every epoch from the leader's records and delivers; sinks drop what they have",
            on_failure=(Step.overtake,),
            takes=Multiples(1, 0, 1, 0, 1, 0, 1, 1, 1),
        ),
        SchemeFacts(
            Scheme.active_standby,
            "active standby",
            up=True,
            follows_runs=False,
            has_spans=True,
            runs_epochs=True,
            delivers=False,
            secondary="executes every epoch, holds its results back",
            on_failure=(Step.overtake, Step.detect, Step.wire, Step.deliver),
            takes=Multiples(1, 0, 1, 0, 1, 0, 1, 0, 1),
        ),
        SchemeFacts(
            Scheme.passive_hot,
            "passive standby, hot",
            up=True,
            follows_runs=True,
            has_spans=True,
            runs_epochs=False,
            delivers=False,
            secondary="loads the durable runs into memory, reads the input after them ahead",
            on_failure=(Step.detect, Step.wire, Step.replay),
            takes=Multiples(0, 1, 0, 1, 1, 1, 1, 0, 1),
        ),
        SchemeFacts(
            Scheme.passive_cold,
            "passive standby, cold",
            up=True,
            follows_runs=True,
            has_spans=False,
            runs_epochs=False,
            delivers=False,
            secondary="loads the durable runs into memory, reads no input",
            on_failure=(Step.detect, Step.wire, Step.fetch, Step.replay),
            takes=Multiples(0, 1, 0, 1, 1, 0, 0, 0, 1),
        ),
        SchemeFacts(
            Scheme.deployed,
            "deployed",
            up=True,
            follows_runs=False,
            has_spans=False,
            runs_epochs=False,
            delivers=False,
            secondary="is up and warmed up, has no state",
            on_failure=(Step.detect, Step.load, Step.wire, Step.fetch, Step.replay),
            takes=Multiples(0, 0, 0, 1, 0, 0, 0, 0, 1),
        ),
        SchemeFacts(
            Scheme.passive_replication,
            "passive replication",
            up=False,
            follows_runs=False,
            has_spans=False,
            runs_epochs=False,
            delivers=False,
            secondary="none",
            on_failure=(Step.detect, Step.start, Step.load, Step.wire, Step.fetch, Step.replay),
            takes=Multiples(0, 0, 0, 0, 0, 0, 0, 0, 0),
        ),
    )
}


class Semantics(StrEnum):
    """What a recovery may do to results."""

    precise = "precise"
    rollback = "rollback"
    gap = "gap"
    amnesia = "amnesia"


@dataclass(frozen=True)
class SemanticsFacts:
    """One kind of recovery: what it may lose or repeat, and which steps it omits."""

    semantics: Semantics
    loses_events: bool
    loses_state: bool
    repeats_results: bool
    without: frozenset[Step]
    meaning: str


SEMANTICS: dict[Semantics, SemanticsFacts] = {
    facts.semantics: facts
    for facts in (
        SemanticsFacts(
            Semantics.precise,
            loses_events=False,
            loses_state=False,
            repeats_results=False,
            without=frozenset(),
            meaning="nothing is lost or repeated: the recorded epochs are executed again as they were",
        ),
        SemanticsFacts(
            Semantics.rollback,
            loses_events=False,
            loses_state=False,
            repeats_results=True,
            without=frozenset(),
            meaning="nothing is lost; results since the last durable manifest may be delivered twice",
        ),
        SemanticsFacts(
            Semantics.gap,
            loses_events=True,
            loses_state=False,
            repeats_results=False,
            without=frozenset({Step.fetch, Step.replay}),
            meaning="the state is kept; events after the last durable manifest are skipped",
        ),
        SemanticsFacts(
            Semantics.amnesia,
            loses_events=True,
            loses_state=True,
            repeats_results=False,
            without=frozenset({Step.load, Step.fetch, Step.replay}),
            meaning="the state is lost too: the recovered engine starts empty with the next event",
        ),
    )
}


@cache
def steps(scheme: Scheme, semantics: Semantics) -> tuple[Step, ...]:
    """The steps of a recovery."""
    without = SEMANTICS[semantics].without
    return tuple(step for step in SCHEMES[scheme].on_failure if step not in without)


@dataclass(frozen=True)
class AtRisk:
    """The most that a failure of the leader may lose or repeat, in epochs; the running epoch counts as one."""

    lost_epochs: int
    repeated_epochs: int
    state_lost: bool


def at_risk(scheme: Scheme, semantics: Semantics, checkpoint_every: int) -> AtRisk:
    """What one failure may lose or repeat: nothing if the second engine executes the epochs itself."""
    facts, allowed = SCHEMES[scheme], SEMANTICS[semantics]
    if facts.runs_epochs:
        return AtRisk(0, 1 if allowed.repeats_results else 0, False)
    epochs = checkpoint_every + 1
    return AtRisk(
        lost_epochs=epochs if allowed.loses_events else 0,
        repeated_epochs=checkpoint_every if allowed.repeats_results else 0,
        state_lost=allowed.loses_state and not facts.follows_runs,
    )
