"""The engine without Spark, in this process: the same admission, tasks, gather, sinks and commits, in milliseconds.

For tests of queries and operators. What Spark adds (distribution, retry, its own logs) is tested with Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from penstock.engine.admission import Admission
from penstock.engine.epoch import EpochReport, EpochRunner, Shape, state_place
from penstock.engine.program import Fixed, Program
from penstock.engine.rate import RateControl
from penstock.engine.stages import Shares, one_after_the_other
from penstock.engine.task import EpochTask
from penstock.query.compile import compiled
from penstock.query.logical import App
from penstock.state.directory import StateDirectory


class InlineStages:
    """Carries out an epoch's tasks one after the other."""

    def run(self, task: EpochTask, shares: Shares) -> list[bytes]:
        return one_after_the_other(task, shares)


def run_inline(
    app: App,
    state: Path,
    *,
    epoch_units: int = 1 << 40,
    slices: int | Callable[[int], int] = 2,
    buckets: int = 64,
    epochs: int | None = None,
    watch: Callable[[EpochReport], None] | None = None,
) -> list[EpochReport]:
    """Run an app until its logs are read to their ends (or for some epochs), from where `state` stands.

    `slices` may be a function of the epoch's number: state does not care how it is cut.
    """
    plan, directory = compiled(app), StateDirectory(state)
    facts = directory.claim(plan.fingerprint, plan.summary)
    try:
        offsets = directory.last_offsets()
        for name, scan in plan.scans.items():
            facts["logs"][name] = scan.started(facts["logs"].get(name), offsets.get(name, {}))
        directory.remember(facts)
        for output in plan.outputs.values():
            for sink in output.sinks:
                sink.open(f"{output.name}@{facts['id']}", dict(output.schema))
        program, rate = Fixed(plan), RateControl(1.0, epoch_units, epoch_units, epoch_units)
        admission = Admission(
            program, lambda scan: rate, directory.recorded_end, drain=True, least_interval_seconds=0
        )
        return list(_epochs(admission, directory, program, slices, buckets, epochs, watch))
    finally:
        directory.release()


def _epochs(
    admission: Admission,
    directory: StateDirectory,
    program: Program,
    slices: int | Callable[[int], int],
    buckets: int,
    epochs: int | None,
    watch: Callable[[EpochReport], None] | None,
) -> Iterable[EpochReport]:
    done = directory.latest().epoch
    start = directory.recorded_end(done) or admission.initial()
    while not admission.drained.is_set() and (epochs is None or epochs > 0):
        end = admission.latest(start)
        if end == start:
            continue
        count = slices(end["epoch"]) if callable(slices) else slices
        runner = EpochRunner(
            InlineStages(), program, directory, Shape(2, count, buckets), state_place(directory, None, 0)
        )
        report = runner.run(end["epoch"], start, end)
        if watch is not None:
            watch(report)
        yield report
        start = end
        epochs = None if epochs is None else epochs - 1
