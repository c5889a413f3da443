"""An engine with jobs that is killed at a step of an epoch and recovers."""

from __future__ import annotations

import json
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any

from penstock.epoch.recovery import RecoveryOutcome
from penstock.ha.schemes import Semantics
from penstock.query.stream import Stream
from penstock.testing.list_log import ListLog
from tests.catalogue import kit

UNITS = 20
EVENTS = kit.events(240)
#: the rows that each job emitted, with their epochs
Rows = dict[str, list[tuple[int, Any]]]


def clicks() -> Stream:
    """One partition, so that an epoch is the next UNITS events."""
    return kit.of_log(ListLog({"p0": [json.dumps(event) for event in EVENTS]}))


def run_until(
    state: Path,
    sql: str,
    kill: tuple[str, int] = kit.NEVER,
    commands: MutableMapping[int, kit.Action] | None = None,
    semantics: Semantics = Semantics.precise,
    functions: Mapping[str, Any] | None = None,
) -> tuple[Rows, RecoveryOutcome]:
    """Run an engine until it is killed or has read everything; `commands`: SQL by the epoch before which it is
    executed, and then taken out."""
    options: dict[str, Any] = {"epoch_units": UNITS, "checkpoint_every": 4, "semantics": semantics}
    with kit.running(state, clicks(), sql, functions=functions, **options) as (jobs, engine):
        kit.run_epochs((jobs, engine), {} if commands is None else commands, kill)
        rows = {name: kit.retained_rows(jobs, name) for name in jobs.catalogue.jobs}
        return rows, engine.recovery
