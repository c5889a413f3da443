"""Coming back after a loss: what becomes of the epochs after the last durable manifest, as the semantics ask.

Receives a state directory that was taken over and the program that runs on it; hands it back ready to go on, says what
becomes of each output (`fates`), and counts what was lost or repeated, of the engine and of each output.

    precise    they are repeated as recorded; what the sinks are known to have is not offered again
    rollback   they are repeated, and everything is offered again: a sink that keeps no account of epochs has it twice
    gap        they are left out: the state stays that of the manifest, time goes on from where it was
    amnesia    the same, and the state is lost too, unless it was at hand

Invariants:
- Where every output loses them, leaving out is one manifest, of the last recorded epoch: a crash before or after it
  leaves nothing half done. Else they are repeated, and a manifest of the last one is durable before any new one ends.
- After a gap nothing is told twice: operators go on with the state and the times of the manifest, and what they decide
  before the watermark that had been reached is not told (`Manifest.gap`, `gather`). Where epochs are repeated for
  others, time goes on in the state of an output that rests, and what is decided then is not told.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.catalogue.program import Program
from penstock.epoch.recovery_actions import Fates
from penstock.epoch.runner import EpochReport
from penstock.ha.schemes import Semantics
from penstock.query.physical import Plan
from penstock.state.directory import StateDirectory
from penstock.state.epoch_record import EpochRecord
from penstock.state.manifest import Manifest

_LOG = logging.getLogger(__name__)
#: where, in the state directory, what each coming back did is told
TOLD = "recoveries.jsonl"
#: jobs that a line of the log tells of
_LOGGED_JOBS = 20


@dataclass
class OutputComeback:
    """What one coming back did to one output."""

    semantics: Semantics
    streams: tuple[str, ...] = ()
    repeated_epochs: int = 0
    repeated_rows: int = 0
    #: epochs of whose events it knows nothing: its state has not seen them or, where it has none, nobody was told
    lost_epochs: int = 0
    lost_units: int = 0
    #: those of them whose results are not known to have been told, and their rows, where they were worked out
    untold_epochs: int = 0
    lost_rows: int = 0
    lost_state_bytes: int = 0

    def lose(self, units: Mapping[str, int], *, rested: bool, untold: bool, rows: int = 0) -> None:
        """An epoch is left out for it; `rested`: for its state too."""
        if rested or untold:
            self.lost_epochs += 1
            self.lost_units += sum(units.get(stream, 0) for stream in self.streams)
        if untold:
            self.untold_epochs += 1
            self.lost_rows += rows

    def outcome(self) -> dict[str, int]:
        """The counts that are not nothing."""
        return {name: n for name, n in vars(self).items() if name not in ("semantics", "streams") and n}


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
    #: outputs that lost something, where others lost nothing
    lost_jobs: int = 0
    ended: bool = False
    #: what is asked of the epochs to come, and what it came to for each output
    fates: Fates = field(default_factory=Fates)
    jobs: dict[str, OutputComeback] = field(default_factory=dict)
    #: of every epoch after the durable one, what the logs hold for it, by stream
    units: Mapping[int, Mapping[str, int]] = field(default_factory=dict)

    @property
    def happened(self) -> bool:
        """Whether there was anything to come back to."""
        return self.recorded_epoch > self.durable_epoch

    def count(self, report: EpochReport) -> None:
        """Told every epoch after it."""
        if self.ended:
            return
        if report.replayed and report.epoch <= self.recorded_epoch:
            self.replayed_epochs += 1
            self.replayed_events += report.events
            if report.offered_again:
                self.repeated_epochs += 1
                self.repeated_rows += sum(report.repeated_rows.values())
            self._count_jobs(report)
        self.ended = report.epoch >= self.recorded_epoch

    def _count_jobs(self, report: EpochReport) -> None:
        for name, rows in report.repeated_rows.items():
            if name in self.jobs:
                self.jobs[name].repeated_epochs += 1
                self.jobs[name].repeated_rows += rows
        untold = not report.told_before
        for name, rows in report.withheld_rows.items():
            if name in self.jobs:
                units = self.units.get(report.epoch, {})
                self.jobs[name].lose(units, rested=name in report.rested, untold=untold, rows=rows)
        self.lost_jobs = sum(bool(one.lost_epochs or one.lost_state_bytes) for one in self.jobs.values())

    def outcome(self) -> dict[str, float]:
        """The counts, as a recovery is written down with them; nothing where there was nothing to come back to."""
        if not self.happened:
            return {}
        return {
            name: value
            for name, value in vars(self).items()
            if name.startswith(("replayed", "repeated", "lost")) and value
        }

    def by_job(self, most: int | None = None) -> dict[str, dict[str, Any]]:
        """What became of each output that lost or repeated something; of at most so many."""
        found = {name: one for name, one in self.jobs.items() if one.outcome()} if self.happened else {}
        shown = list(found.items())[:most]
        return {name: {"semantics": str(one.semantics), **one.outcome()} for name, one in shown}

    def tell(self, state: StateDirectory) -> None:
        """Add a line to the state directory's account; it is for people, and may be lost."""
        line = {"at": round(time.time(), 3), "semantics": str(self.semantics), **self.outcome()}
        line |= {"durable_epoch": self.durable_epoch, "recorded_epoch": self.recorded_epoch}
        if jobs := self.by_job():
            line["jobs"] = jobs
        _LOG.info("came back", extra={"facts": {**line, "jobs": self.by_job(_LOGGED_JOBS)}})
        with open(state.path / TOLD, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def come_back(state: StateDirectory, program: Program, semantics: Semantics, *, at_hand: bool) -> Comeback:
    """Make a state directory ready after a loss; `at_hand`: its state is in this engine's memory already."""
    before = state.manifests.latest()
    recorded = state.records.newest_epoch()
    back = Comeback(semantics, before.epoch, recorded, fates=Fates(semantics))
    if not back.happened:
        return back
    epochs = range(before.epoch + 1, recorded + 1)
    records = {epoch: record for epoch in epochs if (record := state.records.read(epoch)) is not None}
    plans = {epoch: _plan(program, epoch, record) for epoch, record in records.items()}
    back.units = {epoch: _units(record) for epoch, record in records.items()}
    last = plans.get(recorded) or program.plan(program.commands)
    back.jobs = {
        name: OutputComeback(back.fates.of(output), output.streams) for name, output in last.outputs.items()
    }
    losing = back.fates.losing_in(last)
    if back.fates.all_lose([*plans.values(), last]):
        _leave_out(back, state, program, before, records, last, at_hand)
    elif losing:
        begin = before if at_hand else _forget(back, program, before, records, last)
        back.fates = _resting(Fates(semantics, recorded, losing, begin), program, records, plans)
    return back


def _leave_out(
    back: Comeback,
    state: StateDirectory,
    program: Program,
    before: Manifest,
    records: Mapping[int, EpochRecord],
    last: Plan,
    at_hand: bool,
) -> None:
    """No output needs the epochs: they are passed over, all in one."""
    recorded = back.recorded_epoch
    manifest = replace(before, epoch=recorded)
    if (known := records[recorded].before) is not None:
        reached = {name: mark for name, mark in known.watermarks.items() if mark is not None}
        manifest = replace(manifest, gap={**before.gap, **reached}, counters=known.counters)
        back.lost_events = known.counters.get("events", 0) - before.counters.get("events", 0)
    back.lost_epochs = recorded - before.epoch
    back.lost_units = sum(sum(units.values()) for units in back.units.values())
    remember = _plan(program, recorded, records[recorded], last.recoveries.keys()).rested
    for epoch, record in records.items():
        untold = not (record.checkpoint_interval is not None and epoch < recorded)
        for name, one in back.jobs.items():
            one.lose(back.units[epoch], rested=name in remember, untold=untold)
    if back.fates.all_forget(last) and not at_hand:
        back.lost_state_bytes = before.state_bytes()
        manifest = replace(manifest, collections={})
    elif not at_hand:
        manifest = _forget(back, program, manifest, records, last)
    state.manifests.commit(manifest)
    back.ended = True


def _forget(
    back: Comeback,
    program: Program,
    manifest: Manifest,
    records: Mapping[int, EpochRecord],
    last: Plan,
) -> Manifest:
    """The manifest without the state of outputs that lose theirs: as far as it is their own."""
    record, names = records[back.recorded_epoch], back.fates.forgetting_in(last)
    own = _plan(program, back.recorded_epoch, record, names).rested if names else names
    if not own:
        return manifest
    without, sizes = program.drop_state(record.commands, last, own, manifest)
    for name, size in sizes.items():
        back.jobs[name].lost_state_bytes = size
    return without


def _resting(
    fates: Fates, program: Program, records: Mapping[int, EpochRecord], plans: Mapping[int, Plan]
) -> Fates:
    """The fates with what others need in any of the epochs. One that does not rest needs what it reads itself, in
    every epoch: so this is asked until there is no more."""
    while True:
        asked = {epoch: fates.rest(epoch, plan) for epoch, plan in plans.items()}
        found = (_plan(program, epoch, records[epoch], names).needed for epoch, names in asked.items())
        needed = fates.needed.union(*found)
        if needed == fates.needed:
            return fates
        fates = replace(fates, needed=needed)


def _plan(program: Program, epoch: int, record: EpochRecord, resting: Collection[str] = ()) -> Plan:
    return program.plan(record.commands, program.failures(epoch, record.commands), resting)


def _units(record: EpochRecord) -> dict[str, int]:
    """What the logs hold for an epoch, by stream."""
    found: dict[str, int] = {}
    for stream, span in record.spans:
        found[stream] = found.get(stream, 0) + span.end - span.start
    return found
