"""Coming back after a loss: what becomes of the epochs after the last durable manifest, as the semantics ask.

Receives a state directory that was taken over; hands it back ready to go on, and counts what was lost or repeated.

    precise    they are repeated as recorded; what the sinks are known to have is not offered again
    rollback   they are repeated, and everything is offered again: a sink that keeps no account of epochs has it twice
    gap        they are left out: the state stays that of the manifest, time goes on from where it was
    amnesia    the same, and the state is lost too, unless it was at hand

Invariants:
- Leaving out is one manifest, of the last recorded epoch: a crash before or after it leaves nothing half done.
- After a gap nothing is told twice: operators go on with the state and the times of the manifest, and what they decide
  before the watermark that had been reached is not told (`Manifest.gap`, `gather`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.engine.admission import spans_between
from penstock.engine.epoch import EpochReport
from penstock.ha.schemes import SEMANTICS, Semantics
from penstock.state.directory import StateDirectory

#: where, in the state directory, what each coming back did is told
TOLD = "recoveries.jsonl"


@dataclass
class Comeback:
    """What one coming back did."""

    semantics: Semantics = Semantics.precise
    #: the last durable epoch, and the last recorded one
    durable_epoch: int = -1
    recorded_epoch: int = -1
    replayed_epochs: int = 0
    replayed_events: int = 0
    #: epochs that were offered again to sinks that had them, and the rows of these that were taken once more
    repeated_epochs: int = 0
    repeated_rows: int = 0
    lost_epochs: int = 0
    #: events of the lost epochs that had been processed; and what the logs hold for all of them, in their units
    lost_events: int = 0
    lost_units: int = 0
    lost_state_bytes: int = 0
    ended: bool = False

    @property
    def happened(self) -> bool:
        """Whether there was anything to come back to."""
        return self.recorded_epoch > self.durable_epoch

    def count(self, report: EpochReport) -> None:
        """Told every epoch after it."""
        if self.ended or report.repeated:
            return
        if report.replayed and report.epoch <= self.recorded_epoch:
            self.replayed_epochs += 1
            self.replayed_events += report.events
            if report.offered_again:
                self.repeated_epochs += 1
                self.repeated_rows += report.repeated_rows
        self.ended = report.epoch >= self.recorded_epoch

    def outcome(self) -> dict[str, float]:
        """The counts, as a recovery is written down with them; nothing where there was nothing to come back to."""
        if not self.happened:
            return {}
        return {
            name: value
            for name, value in vars(self).items()
            if name.startswith(("replayed", "repeated", "lost")) and value
        }

    def tell(self, state: StateDirectory) -> None:
        """Add a line to the state directory's account; it is for people, and may be lost."""
        line = {"at": round(time.time(), 3), "semantics": str(self.semantics), **self.outcome()}
        line |= {"durable_epoch": self.durable_epoch, "recorded_epoch": self.recorded_epoch}
        with open(state.path / TOLD, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def come_back(state: StateDirectory, semantics: Semantics, *, at_hand: bool) -> Comeback:
    """Make a state directory ready after a loss; `at_hand`: its state is in this engine's memory already."""
    before = state.latest()
    recorded = state.newest_epoch()
    back = Comeback(semantics, before.epoch, recorded)
    if not back.happened or not SEMANTICS[semantics].loses_events:
        return back
    manifest = replace(before, epoch=recorded)
    last = state.recorded(recorded) or {}
    if known := last.get("before"):  # how far time had come, and what had been counted
        streams, counters = known["watermarks"], known["counters"]
        reached = {name: mark for name, mark in streams.items() if mark is not None}
        manifest = replace(manifest, gap={**before.gap, **reached}, counters=counters)
        back.lost_events = counters.get("events", 0) - before.counters.get("events", 0)
    back.lost_epochs = recorded - before.epoch
    back.lost_units = sum(_units(state.recorded(epoch)) for epoch in range(before.epoch + 1, recorded + 1))
    if SEMANTICS[semantics].loses_state and not at_hand:
        back.lost_state_bytes = before.state_bytes()
        manifest = replace(manifest, collections={})
    state.commit(manifest)
    back.ended = True
    return back


def _units(record: Mapping[str, Any] | None) -> int:
    if record is None:
        return 0
    return sum(span.end - span.start for _, span in spans_between(record["start"], record["end"]))
