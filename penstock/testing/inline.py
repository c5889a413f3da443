"""Runs an app without Spark, in this process: the same admission, tasks, gather, sinks and commits, in milliseconds.

For tests of queries and operators. What Spark adds (distribution, retry) is tested with Spark.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from penstock.catalogue.program import Program
from penstock.catalogue.program_of import program_of
from penstock.engine.role import EngineRole
from penstock.engine.state_location import state_location
from penstock.epoch.admission import Admission, AdmissionSettings
from penstock.epoch.job_failures import JobShares
from penstock.epoch.migration import MapChange
from penstock.epoch.migration_cost import MigrationRules
from penstock.epoch.rate_control import EmissionLimit, RateControl
from penstock.epoch.runner import EpochReport, EpochRunner, RunnerSettings, Shape
from penstock.epoch.stages import LocalStages
from penstock.epoch.task import StateLocation
from penstock.ha.schemes import Semantics
from penstock.moved import former_names, former_parameters
from penstock.query.logical import App
from penstock.state.bucket_map import BucketMaps
from penstock.state.epoch_record import Offset
from penstock.state.generation import Fence

#: how long an epoch waits for sinks, in seconds
_DELIVERY_SECONDS = 30.0


@former_names(recycle="remove_old_state")
class InlineEngine:
    """An engine on a state directory; the caller runs its epochs. To be closed.

    `clock` decides how long a partition has been silent: one that a test turns makes it idle without
    waiting. `wall` is the wall clock. Without `waits_for_sinks` sinks are delivered to beside the epochs, as by an
    engine with Spark, and one that is away is no error. An epoch of up to `small_epoch_bytes` is one task.
    """

    # over 8 parameters: a test sets one or two of them
    @former_parameters(program="app")
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
        job_result_bytes: int = 0,
        result_log_bytes: int = 2_000_000_000,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        waits_for_sinks: bool = True,
        small_epoch_bytes: int = 0,
    ) -> None:
        self._waits_for_sinks = waits_for_sinks
        self._program = program_of(app, state) if isinstance(app, App) else app
        self._slices = slices
        self._role = EngineRole(state, semantics=semantics)
        self._directory = self._role.state
        logs = self._role.start(self._program, fence, buckets, drops_state=drop_state)
        self.recovery = self._role.recovery
        rate = RateControl(1.0, epoch_units, epoch_units, epoch_units)
        self.admission = Admission(
            self._program,
            AdmissionSettings(drain=True, emission_limit=closing),
            lambda scan: rate,
            self._role.recorded_end,
            start_log=logs.start_one,
            clock=clock,
            wall=wall,
        )
        self.runner = EpochRunner(
            LocalStages(),
            self._program,
            self._directory,
            RunnerSettings(
                Shape(2, 1 if callable(slices) else slices, buckets, small_epoch_bytes),
                self._location(state, cache, checkpoint_every),
                job_seconds,
                rules or MigrationRules(),
                JobShares(job_share, 0.0),
                checkpoint_every,
                job_result_bytes=job_result_bytes,
                result_log_bytes=result_log_bytes,
            ),
            fence=fence,
            recovery=self.recovery.actions,
        )
        self._start = self._directory.committed_end() or Offset()

    def _location(self, state: Path, cache: Path | None, checkpoint_every: int) -> StateLocation:
        """Where runs are; the memory of an engine is empty at the start, as after a loss."""
        location = state_location(self._directory, cache, 1 << 30, cache_per_executor=cache is not None)
        if checkpoint_every == 1:
            return location
        memory = state.with_name(f"{state.name}-memory")
        shutil.rmtree(memory, ignore_errors=True)
        return replace(location, memory=str(memory))

    @property
    def next_epoch(self) -> int:
        """The number of the epoch that comes next."""
        return self._start.epoch + 1

    def step(self) -> EpochReport | None:
        """Run one epoch if there is a reason for one; None when everything is read for now."""
        end = self.admission.admit(self._start)
        while end == self._start:
            if self.admission.drained.is_set():
                self.admission.drained.clear()
                return None
            end = self.admission.admit(self._start)
        if callable(self._slices):
            self.runner.set_slice_count(self._slices(end.epoch))
        report = self.runner.run(end.epoch, self._start, end)
        self._finish_deliveries()
        self.recovery.count(report)
        self.admission.observe(report.units, report.seconds, report.pending)
        self._start = end
        return report

    def _finish_deliveries(self) -> None:
        """Wait for the sinks, so that a test finds its rows there. Raises what they raise."""
        deliveries = self._program.deliveries
        if not self._waits_for_sinks:
            deliveries.check()
            return
        deliveries.finish(_DELIVERY_SECONDS)
        if (outage := deliveries.outage) is not None:
            raise outage.error

    def remove_old_state(self, keep: int) -> None:
        """Remove all but the newest manifests, as an engine does every ten epochs."""
        self.runner.remove_old_state(keep)

    def steps(self) -> Iterator[EpochReport]:
        """Run epochs until everything is read for now."""
        while (report := self.step()) is not None:
            yield report

    def close(self) -> None:
        """Release the state directory."""
        self.runner.close()
        self._role.close(self._program)


# over 8 parameters: a test sets one or two of them
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
    """Run an app until its logs are read to their ends (or for some epochs), from where `state` is.

    `slices` may be a function of the epoch's number: state does not depend on slices. Before every epoch `remap`
    receives its number and the maps in force, and returns a change of them, if any. `closing` limits watermarks.
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
                engine.runner.request_map_change(change)
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
