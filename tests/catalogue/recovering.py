"""An engine with jobs that dies at a step of an epoch, and comes back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.epoch.recovery import RecoveryOutcome
from penstock.ha.schemes import Semantics
from penstock.query.stream import Stream
from penstock.testing.list_log import ListLog
from tests.catalogue import kit

UNITS = 20
EVENTS = kit.events(240)
#: a step that is never reached
NOWHERE = ("nowhere", -1)
#: what is kept of what each job told, by epoch
Told = dict[str, list[tuple[int, Any]]]


def clicks() -> Stream:
    """One partition, so that an epoch is the next UNITS events."""
    return kit.of_log(ListLog({"p0": [json.dumps(event) for event in EVENTS]}))


def lived(
    state: Path,
    sql: str,
    kill: tuple[str, int] = NOWHERE,
    said: dict[int, str] | None = None,
    semantics: Semantics = Semantics.precise,
    functions: Mapping[str, Any] | None = None,
) -> tuple[Told, RecoveryOutcome]:
    """One life of an engine, until it dies or has read everything. `said`: what is said before an epoch; taken out once
    it is."""
    said = {} if said is None else said
    options: dict[str, Any] = {"epoch_units": UNITS, "checkpoint_every": 4, "semantics": semantics}
    with kit.running(state, clicks(), sql, functions=functions, **options) as (jobs, engine):
        try:
            with kit.killed_at(*kill):
                more = True
                while more:
                    if text := said.pop(engine.next_epoch, ""):
                        jobs.execute(text)
                    more = engine.step() is not None
                engine.runner.checkpoint()
        except kit.Killed:
            pass
        told = {
            name: [(answer.epoch, row) for answer in jobs.since(name, 0) for row in answer.rows.rows()]
            for name in jobs.catalogue.jobs
        }
        return told, engine.recovery
