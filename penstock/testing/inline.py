"""The engine without Spark, in this process: the same admission, tasks, gather, sinks and commits, in milliseconds.

For tests of queries and operators. What Spark adds (distribution, retry) is tested with Spark.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from penstock.catalogue.program import Program
from penstock.catalogue.program_of import program_of
from penstock.engine.state_continuity import continue_state
from penstock.engine.state_location import state_place
from penstock.epoch.admission import Admission, AdmissionSettings
from penstock.epoch.emission_limit import EmissionLimit
from penstock.epoch.job_failures import JobShares
from penstock.epoch.migration import MapChange
from penstock.epoch.migration_cost import MigrationRules
from penstock.epoch.open_logs import OpenLogs
from penstock.epoch.rate_control import RateControl
from penstock.epoch.recovery import recover
from penstock.epoch.runner import EpochReport, EpochRunner, RunnerSettings, Shape
from penstock.epoch.stages import LocalStages
from penstock.epoch.task import StateLocation
from penstock.ha.schemes import Semantics
from penstock.query.logical import App
from penstock.state.bucket_map import BucketMaps
from penstock.state.directory import StateDirectory
from penstock.state.epoch_record import Offset
from penstock.state.generation import Fence


class InlineEngine:
    """An engine on a state directory, whose epochs are run by whoever has it. To be closed."""

    def __init__(
        self,
        app: App | Program,
        state: Path,
        *,
        epoch_units: int = 1 << 40,
        slices: int | Callable[[int], int] = 2,
        buckets: int = 64,
        job_seconds: float = 0.0,
        cache: Path | None = None,
        rules: MigrationRules | None = None,
        job_share: float = 0.0,
        fence: Fence | None = None,
        checkpoint_every: int = 1,
        semantics: Semantics = Semantics.precise,
        closing: EmissionLimit | None = None,
        drop_state: bool = False,
    ) -> None:
        program = program_of(app, state) if isinstance(app, App) else app
        self._program, self._slices = program, slices
        self._directory = StateDirectory(state)
        generation = None if fence is None else fence.generation
        facts = self._directory.claim(
            program.fingerprint,
            program.summary,
            generation,
            former=program.former_fingerprint,
            drops_state=drop_state,
            use=None if program.app_plan is None else program.app_plan.identities,
        )
        try:
            program.start(fenced_directory=self._directory.fenced_directory)
            continue_state(self._directory, facts, program, drops_state=drop_state)
            self.recovery = recover(self._directory, program, semantics, at_hand=False)
            logs = OpenLogs(self._directory, facts, buckets)
            taken = self._directory.records.last_commands()
            if program.commands == taken:
                logs.start(program.epochs.plan(program.commands))
            program.open(facts["id"], logs.start_one, taken)
        except BaseException:
            self._directory.release()
            raise
        rate = RateControl(1.0, epoch_units, epoch_units, epoch_units)
        self._admission = Admission(
            program,
            AdmissionSettings(drain=True, emission_limit=closing),
            lambda scan: rate,
            self._directory.records.read_end,
            start_log=logs.start_one,
        )
        self.runner = EpochRunner(
            LocalStages(),
            program,
            self._directory,
            RunnerSettings(
                Shape(2, 1 if callable(slices) else slices, buckets),
                self._place(state, cache, checkpoint_every),
                job_seconds,
                rules or MigrationRules(),
                JobShares(job_share, 0.0),
                checkpoint_every,
            ),
            fence=fence,
            recovery=self.recovery.actions,
        )
        self._start = self._directory.committed_end() or Offset()

    def _place(self, state: Path, cache: Path | None, checkpoint_every: int) -> StateLocation:
        """Where runs are; the memory of an engine begins empty, as after a loss."""
        place = state_place(self._directory, cache, 1 << 30, apart=cache is not None)
        if checkpoint_every == 1:
            return place
        memory = state.with_name(f"{state.name}-memory")
        shutil.rmtree(memory, ignore_errors=True)
        return replace(place, memory=str(memory))

    @property
    def next_epoch(self) -> int:
        """The number of the epoch that comes next."""
        return self._start.epoch + 1

    def step(self) -> EpochReport | None:
        """Run one epoch if there is a reason for one; None when everything is read for now."""
        end = self._admission.admit(self._start)
        while end == self._start:
            if self._admission.drained.is_set():
                self._admission.drained.clear()
                return None
            end = self._admission.admit(self._start)
        if callable(self._slices):
            self.runner.reslice(self._slices(end.epoch))
        report = self.runner.run(end.epoch, self._start, end)
        self.recovery.count(report)
        self._admission.observe(report.units, report.seconds, report.pending)
        self._start = end
        return report

    def recycle(self, keep: int) -> None:
        """Keep the newest manifests only, as an engine does now and then."""
        self.runner.recycle(keep)

    def steps(self) -> Iterator[EpochReport]:
        """Run epochs until everything is read for now."""
        while (report := self.step()) is not None:
            yield report

    def close(self) -> None:
        """Let another engine have the directory."""
        self.runner.close()
        for scan in self._program.epochs.plan(self._program.commands).scans.values():
            scan.stream.log.stopped()
        self._program.close()
        self._directory.release()


def run_inline(
    app: App,
    state: str | Path,
    *,
    epoch_units: int = 1 << 40,
    slices: int | Callable[[int], int] = 2,
    buckets: int = 64,
    epochs: int | None = None,
    watch: Callable[[EpochReport], None] | None = None,
    remap: Callable[[int, BucketMaps], MapChange | None] | None = None,
    fence: Fence | None = None,
    checkpoint_every: int = 1,
    closing: EmissionLimit | None = None,
    drop_state: bool = False,
) -> list[EpochReport]:
    """Run an app until its logs are read to their ends (or for some epochs), from where `state` stands.

    `slices` may be a function of the epoch's number: state does not care how it is cut. `remap` is asked before every
    epoch, with its number and the maps in force, whether these should change; `closing` how far watermarks may come.
    """
    engine = InlineEngine(
        app,
        Path(state),
        epoch_units=epoch_units,
        slices=slices,
        buckets=buckets,
        fence=fence,
        checkpoint_every=checkpoint_every,
        closing=closing,
        drop_state=drop_state,
    )
    reports: list[EpochReport] = []
    try:
        while epochs is None or len(reports) < epochs:
            change = None if remap is None else remap(engine.next_epoch, engine.runner.maps)
            if change is not None:
                engine.runner.remap(change)
            report = engine.step()
            if report is None:
                break
            if watch is not None:
                watch(report)
            reports.append(report)
        engine.runner.checkpoint()
    finally:
        engine.close()
    return reports
