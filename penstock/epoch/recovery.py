"""Recovers a state directory after a loss: repeats, skips or resets the epochs after the last durable manifest.

What happens depends on the recovery semantics:

    precise    epochs are repeated as recorded; sinks that are known to have their rows do not receive them again
    rollback   epochs are repeated, and sinks receive everything again: one that does not know epochs has it twice
    gap        epochs are skipped: the state stays that of the manifest, time continues from where it was
    amnesia    the same, and the state is lost too, unless it is in this engine's memory

`RecoveryActions` decides for each output; `RecoveryOutcome` counts what was lost or repeated. State that outputs share
follows the strictest of them: where all may lose events no epoch is repeated. Else all epochs are repeated; an output
that may lose events *skips* them: its sinks get none of their rows. It is *suspended* in them if it has state of its
own that nothing else needs, which then gets no events (`Plan.suspended_outputs`).

Guarantees:
- Where every output loses the epochs, skipping them is one manifest, that of the last recorded epoch: a crash before or
  after it leaves nothing half done. Else they are repeated, and a manifest of the last one is durable before any new
  epoch ends.
- After a gap nothing is emitted twice: operators continue with the state and the times of the manifest, and what they
  decide before the watermark that had been reached is not emitted (`Manifest.gap`, `gather`). Where epochs are repeated
  for others, time advances in the state of a suspended output, and what is decided then is not emitted.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from penstock.catalogue.program import Program
from penstock.epoch.report import EpochReport
from penstock.ha.schemes import SEMANTICS, Semantics, SemanticsFacts
from penstock.query.physical import OutputPlan, Plan
from penstock.state.directory import StateDirectory
from penstock.state.durable import open_private, write_whole
from penstock.state.epoch_record import EpochRecord
from penstock.state.manifest import Manifest

_LOG = logging.getLogger(__name__)
#: the file in the state directory that has a line for each recovery
RECOVERY_LOG = "recoveries.jsonl"
#: the most that it may have
RECOVERY_LOG_BYTES = 4 << 20
#: jobs that a line of the engine's log names
_LOGGED_JOBS = 20


@dataclass(frozen=True)
class RecoveryActions:
    """The actions after one recovery. Without a recovery every output is precise."""

    #: of outputs that declare none themselves
    default: Semantics = Semantics.precise
    #: the epochs up to this one are repeated, and these outputs skip them
    last_epoch: int = -1
    skipping: frozenset[str] = frozenset()
    #: the state to start with, where it is not that of the last manifest
    initial: Manifest | None = None
    #: outputs that others need in some of these epochs: their state gets the events of all epochs
    needed: frozenset[str] = frozenset()

    def semantics_of(self, output: OutputPlan) -> Semantics:
        """What a recovery may do to an output."""
        return output.recovery or self.default

    def all_skip(self, plans: Iterable[Plan]) -> bool:
        """Whether no output of these plans needs the epochs to be repeated; nor a stopped job, whose state is part of
        what stays as it was."""
        semantics = {one for plan in plans for one in plan.recoveries.values()} or {None}
        return all(self._facts(one).loses_events for one in semantics)

    def all_reset(self, plan: Plan) -> bool:
        """Whether all state may be lost: that of every output, and of every stopped job."""
        return all(self._facts(one).loses_state for one in {None, *plan.recoveries.values()})

    def skipping_outputs(self, epoch: int, plan: Plan) -> frozenset[str]:
        """The outputs that skip an epoch: those that may lose events by the epoch's plan and by the last one."""
        if epoch > self.last_epoch:
            return frozenset()
        return frozenset(
            name
            for name in self.skipping & plan.outputs.keys()
            if self._facts(plan.outputs[name].recovery).loses_events
        )

    def redelivered_outputs(self, plan: Plan) -> frozenset[str]:
        """The outputs whose sinks receive again what they have."""
        return frozenset(name for name, one in plan.outputs.items() if self.repeats_results(one.recovery))

    def repeats_results(self, recovery: Semantics | None) -> bool:
        """Whether the sinks of an output that declares this recovery receive again what they have."""
        return self._facts(recovery).repeats_results

    def outputs_to_suspend(self, epoch: int, plan: Plan) -> frozenset[str]:
        """The outputs that skip an epoch and whose rows no other output needs in it; also the stopped jobs that may
        lose events, which then count as readers of nothing."""
        skipping = self.skipping_outputs(epoch, plan)
        if not skipping:
            return skipping
        stopped = {name for name, one in plan.stopped_jobs.items() if self._facts(one).loses_events}
        return (skipping | stopped) - self.needed

    def outputs_to_skip(self, plan: Plan) -> frozenset[str]:
        """The outputs of a plan that lose events."""
        outputs = plan.outputs.items()
        return frozenset(name for name, output in outputs if self._facts(output.recovery).loses_events)

    def outputs_to_reset(self, plan: Plan) -> frozenset[str]:
        """The outputs and the stopped jobs of a plan that lose their state too."""
        return frozenset(name for name, one in plan.recoveries.items() if self._facts(one).loses_state)

    def _facts(self, declared: Semantics | None) -> SemanticsFacts:
        return SEMANTICS[declared or self.default]


@dataclass(frozen=True)
class JobRecovery:
    """What one recovery did to one job or output. The names of its counts are keys in files."""

    semantics: Semantics
    repeated_epochs: int = 0
    repeated_rows: int = 0
    #: epochs whose events it lost: its state has not seen them or, where it has none, they were not emitted
    lost_epochs: int = 0
    lost_units: int = 0
    #: of these, epochs whose results are not known to have reached its sinks; and their rows, where they were computed
    untold_epochs: int = 0
    lost_rows: int = 0
    lost_state_bytes: int = 0

    def repeat_epoch(self, rows: int) -> JobRecovery:
        """Count an epoch whose rows it delivered again."""
        return replace(
            self, repeated_epochs=self.repeated_epochs + 1, repeated_rows=self.repeated_rows + rows
        )

    def skip_epoch(self, units: int, *, is_suspended: bool, is_delivered: bool, rows: int = 0) -> JobRecovery:
        """Count an epoch that it skips. `is_suspended`: its state skips the epoch too."""
        after = self
        if is_suspended or not is_delivered:
            after = replace(after, lost_epochs=after.lost_epochs + 1, lost_units=after.lost_units + units)
        if not is_delivered:
            after = replace(after, untold_epochs=after.untold_epochs + 1, lost_rows=after.lost_rows + rows)
        return after

    def counts(self) -> dict[str, int]:
        """The counts that are not 0."""
        return {name: n for name, n in vars(self).items() if name != "semantics" and n}

    def to_json(self) -> dict[str, Any]:
        return {"semantics": str(self.semantics), **self.counts()}

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> JobRecovery:
        counts = {one.name: body[one.name] for one in fields(JobRecovery) if one.name in body}
        return JobRecovery(**{**counts, "semantics": Semantics(body["semantics"])})


@dataclass
class RecoveryOutcome:
    """What one recovery did. The names of its counts are keys in files."""

    semantics: Semantics = Semantics.precise
    #: the last durable epoch, and the last recorded one
    durable_epoch: int = -1
    recorded_epoch: int = -1
    replayed_epochs: int = 0
    replayed_events: int = 0
    #: epochs that sinks received again although they had them, and the rows of these that they took once more
    repeated_epochs: int = 0
    repeated_rows: int = 0
    lost_epochs: int = 0
    #: events of the lost epochs that had been processed; and what the logs have for all of them, in their units
    lost_events: int = 0
    lost_units: int = 0
    lost_state_bytes: int = 0
    #: outputs that lost something, where others lost nothing
    lost_jobs: int = 0
    is_over: bool = False
    #: the actions for later epochs; and for each output what was done to it, and the streams it reads
    actions: RecoveryActions = field(default_factory=RecoveryActions)
    jobs: dict[str, JobRecovery] = field(default_factory=dict)
    streams: Mapping[str, Collection[str]] = field(default_factory=dict)
    #: of every epoch after the durable one, what the logs have for it, by stream
    units: Mapping[int, Mapping[str, int]] = field(default_factory=dict)

    @property
    def has_epochs(self) -> bool:
        """Whether there were epochs to recover."""
        return self.recorded_epoch > self.durable_epoch

    def count(self, report: EpochReport) -> None:
        """Count an epoch after the recovery; to be called with every one."""
        if self.is_over:
            return
        if report.replayed and report.epoch <= self.recorded_epoch:
            self.replayed_epochs += 1
            self.replayed_events += report.events
            if report.redelivered:
                self.repeated_epochs += 1
                self.repeated_rows += sum(report.repeated_rows.values())
            self._count_jobs(report)
        self.is_over = report.epoch >= self.recorded_epoch

    def _count_jobs(self, report: EpochReport) -> None:
        for name, rows in report.repeated_rows.items():
            if name in self.jobs:
                self.jobs[name] = self.jobs[name].repeat_epoch(rows)
        for name, rows in report.withheld_rows.items():
            if name in self.jobs:
                self.jobs[name] = self.jobs[name].skip_epoch(
                    self.units_for(name, report.epoch),
                    is_suspended=name in report.suspended,
                    is_delivered=report.already_delivered,
                    rows=rows,
                )
        self.lost_jobs = sum(bool(one.lost_epochs or one.lost_state_bytes) for one in self.jobs.values())

    def units_for(self, job: str, epoch: int) -> int:
        """What the logs of a job's streams have for an epoch."""
        units = self.units.get(epoch, {})
        return sum(units.get(stream, 0) for stream in self.streams[job])

    def counts(self) -> dict[str, int]:
        """The counts that are not 0; none where there was nothing to recover."""
        if not self.has_epochs:
            return {}
        return {
            name: value
            for name, value in vars(self).items()
            if name.startswith(("replayed", "repeated", "lost")) and value
        }

    def by_job(self, most: int | None = None) -> dict[str, JobRecovery]:
        """Each output that lost or repeated something, or so many of them."""
        affected = [(name, one) for name, one in self.jobs.items() if one.counts()] if self.has_epochs else []
        return dict(affected[:most])

    def append_to_log(self, state: StateDirectory) -> None:
        """Append a line to the state directory's recovery log. The log is for people, and may be lost; of one that has
        become long the first half is removed."""
        line = {"at": round(time.time(), 3), "semantics": str(self.semantics), **self.counts()}
        line |= {"durable_epoch": self.durable_epoch, "recorded_epoch": self.recorded_epoch}
        jobs = {name: one.to_json() for name, one in self.by_job().items()}
        if jobs:
            line["jobs"] = jobs
        logged_jobs = dict(list(jobs.items())[:_LOGGED_JOBS])
        _LOG.info("recovered", extra={"facts": {**line, "jobs": logged_jobs}})
        path = state.path / RECOVERY_LOG
        with open(path, "a", encoding="utf-8", opener=open_private) as file:
            file.write(json.dumps(line) + "\n")
            is_long = file.tell() > RECOVERY_LOG_BYTES
        if is_long:
            lines = path.read_bytes().splitlines(keepends=True)
            write_whole(path, b"".join(lines[len(lines) // 2 :]))


@dataclass
class _Recovery:
    """A recovery under way."""

    program: Program
    outcome: RecoveryOutcome
    #: the last durable manifest
    before: Manifest
    #: the records and plans of the epochs after it, and the plan of the last
    records: Mapping[int, EpochRecord]
    plans: Mapping[int, Plan]
    last_plan: Plan

    def plan(self, epoch: int, to_suspend: Collection[str] = ()) -> Plan:
        return _plan_of(self.program, epoch, self.records[epoch], to_suspend)

    def skip_epochs(self, state: StateDirectory, *, at_hand: bool) -> None:
        """Skip all epochs with one manifest: no output needs them."""
        outcome, before = self.outcome, self.before
        last = outcome.recorded_epoch
        manifest = replace(before, epoch=last)
        if (reached := self.records[last].before) is not None:
            watermarks = {name: mark for name, mark in reached.watermarks.items() if mark is not None}
            manifest = replace(manifest, gap={**before.gap, **watermarks}, counters=reached.counters)
            outcome.lost_events = reached.counters.get("events", 0) - before.counters.get("events", 0)
        outcome.lost_epochs = last - before.epoch
        outcome.lost_units = sum(sum(units.values()) for units in outcome.units.values())
        with_state = self.plan(last, self.last_plan.recoveries.keys()).suspended_outputs
        for epoch, record in self.records.items():
            # a later record shows that the sinks have the epoch
            is_delivered = record.checkpoint_interval is not None and epoch < last
            for name, one in outcome.jobs.items():
                units, is_suspended = outcome.units_for(name, epoch), name in with_state
                outcome.jobs[name] = one.skip_epoch(
                    units, is_suspended=is_suspended, is_delivered=is_delivered
                )
        if outcome.actions.all_reset(self.last_plan) and not at_hand:
            outcome.lost_state_bytes = before.state_bytes()
            manifest = replace(manifest, collections={}, last_results={})
        elif not at_hand:
            manifest = self.reset_state(manifest)
        state.manifests.commit(manifest)
        outcome.is_over = True

    def reset_state(self, manifest: Manifest) -> Manifest:
        """The manifest without the state of outputs that lose theirs, as far as it is their own."""
        last = self.outcome.recorded_epoch
        names = self.outcome.actions.outputs_to_reset(self.last_plan)
        own = self.plan(last, names).suspended_outputs if names else names
        if not own:
            return manifest
        commands = self.records[last].commands
        reset, bytes_lost = self.program.epochs.drop_state(commands, self.last_plan, own, manifest)
        for name, size in bytes_lost.items():
            self.outcome.jobs[name] = replace(self.outcome.jobs[name], lost_state_bytes=size)
        return reset

    def add_needed(self, actions: RecoveryActions) -> RecoveryActions:
        """The actions with the outputs that others need in any of the epochs. An output that is not suspended needs
        what it reads itself, in every epoch: so this repeats until there are no more."""
        while True:
            to_suspend = {
                epoch: actions.outputs_to_suspend(epoch, plan) for epoch, plan in self.plans.items()
            }
            needed = actions.needed.union(
                *(self.plan(epoch, names).needed for epoch, names in to_suspend.items())
            )
            if needed == actions.needed:
                return actions
            actions = replace(actions, needed=needed)


def recover(
    state: StateDirectory, program: Program, semantics: Semantics, *, at_hand: bool
) -> RecoveryOutcome:
    """Make a state directory ready after a loss. `at_hand`: this engine has its state in memory already."""
    before, last_epoch = state.manifests.latest(), state.records.newest_epoch()
    outcome = RecoveryOutcome(semantics, before.epoch, last_epoch, actions=RecoveryActions(semantics))
    if not outcome.has_epochs:
        return outcome
    epochs = range(before.epoch + 1, last_epoch + 1)
    records = {epoch: record for epoch in epochs if (record := state.records.read(epoch)) is not None}
    plans = {epoch: _plan_of(program, epoch, record) for epoch, record in records.items()}
    last_plan = plans.get(last_epoch) or program.epochs.plan(program.commands)
    outcome.units = {epoch: _units_of(record) for epoch, record in records.items()}
    outcome.jobs = {
        name: JobRecovery(outcome.actions.semantics_of(output)) for name, output in last_plan.outputs.items()
    }
    outcome.streams = {name: output.streams for name, output in last_plan.outputs.items()}
    recovery = _Recovery(program, outcome, before, records, plans, last_plan)
    skipping = outcome.actions.outputs_to_skip(last_plan)
    if outcome.actions.all_skip([*plans.values(), last_plan]):
        recovery.skip_epochs(state, at_hand=at_hand)
    elif skipping:
        initial = before if at_hand else recovery.reset_state(before)
        outcome.actions = recovery.add_needed(RecoveryActions(semantics, last_epoch, skipping, initial))
    return outcome


def _plan_of(program: Program, epoch: int, record: EpochRecord, to_suspend: Collection[str] = ()) -> Plan:
    return program.epochs.plan(record.commands, program.epochs.failures(epoch, record.commands), to_suspend)


def _units_of(record: EpochRecord) -> dict[str, int]:
    """What the logs have for an epoch, by stream."""
    units: dict[str, int] = {}
    for stream, span in record.spans:
        units[stream] = units.get(stream, 0) + span.end - span.start
    return units
