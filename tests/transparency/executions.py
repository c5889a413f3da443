"""Random ways to execute a query.

Its rows must not depend on them, except that events are late whose partition was idle (`idleness.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from hypothesis import strategies as st

import penstock as ps
from penstock.catalogue.program import Program
from penstock.epoch.migration import MapChange
from penstock.epoch.runner import EpochReport
from penstock.operators.routes import Partitioner
from penstock.state.bucket_map import BucketMaps, ExecutorLocation
from penstock.testing.inline import InlineEngine
from penstock.testing.manual_clock import PassingClock
from tests.operators.harness import STRAIGHT, Cutting, cuttings
from tests.transparency.queries.streams import PartitionerOf, partition_by_length, partition_by_range

PARTITIONER = ps.by_function(partition_by_length, 3)
_LOCATIONS = st.sampled_from(
    [None, ExecutorLocation("here", "0"), ExecutorLocation("here", "1"), ExecutorLocation("there", "2")]
)


@dataclass(frozen=True)
class Migration:
    """A change of the owners of buckets, and perhaps of the locations of slices, before an epoch."""

    epoch: int
    owners: tuple[int, ...]
    locations: tuple[ExecutorLocation | None, ...]
    protocol: str | None

    def change(self) -> MapChange:
        return MapChange(BucketMaps(self.owners, {}, self.locations), self.protocol)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Execution:
    """How streams are cut into epochs and slices; the number and the owners of buckets; the checkpoint interval; how
    keys are partitioned; how many seconds pass whenever the engine reads its clock."""

    cuts: tuple[Cutting, Cutting] = (STRAIGHT, STRAIGHT)
    buckets: int = 8
    checkpoint_every: int = 1
    partitioned: Literal["function", "ranges"] | None = None
    migrations: tuple[Migration, ...] = ()
    clock_seconds: float = 0.02

    @property
    def partition(self) -> Partitioner | PartitionerOf | None:
        return {None: None, "function": PARTITIONER, "ranges": partition_by_range}[self.partitioned]


UNDISTURBED = Execution()


#: the offsets at which a partition is silent, and for how long
_silences = st.lists(
    st.tuples(st.sampled_from([0, 0, 1, 2, 3, 5, 8, 13]), st.integers(4, 10)),
    max_size=2,
    unique_by=lambda silence: silence[0],
).map(tuple)


@st.composite
def executions(draw: st.DrawFn) -> Execution:
    some = st.tuples(_silences, _silences, _silences)
    silences = st.sampled_from([st.just(()), some, some]).flatmap(lambda drawn: drawn)
    one, other = (replace(draw(cuttings()), silences=draw(silences)) for _ in range(2))
    buckets = draw(st.sampled_from([1, 4, 16]))
    migrations: list[Migration] = []
    if draw(st.integers(0, 2)) == 0:
        owners = st.lists(st.integers(0, 3), min_size=buckets, max_size=buckets).map(tuple)
        locations = st.just(()) | st.lists(_LOCATIONS, min_size=4, max_size=4).map(tuple)
        protocol = st.sampled_from([None, "immediate", "warm", "recreate"])
        migrations = draw(
            st.lists(
                st.builds(Migration, st.integers(1, 5), owners, locations, protocol), min_size=1, max_size=3
            )
        )
    return Execution(
        (one, other),
        buckets,
        draw(st.sampled_from([1, 1, 2, 3])),
        draw(st.sampled_from([None, None, None, "function", "ranges"])),
        tuple(sorted(migrations, key=lambda migration: migration.epoch)),
        draw(st.sampled_from([0.02, 1.0, 1.0, 2.0])),
    )


def run_epochs(
    app: ps.App | Program,
    state: Path,
    execution: Execution,
    shift: int = 0,
    before: Callable[[int], None] = lambda epoch: None,
) -> Iterator[EpochReport]:
    """Run until everything is read, or the engine crashes. With `shift`, start with another number of slices. Call
    `before` with the number of every epoch before it is admitted."""
    slices = execution.cuts[0].slices
    engine = InlineEngine(
        app,
        state,
        slices=4 if execution.migrations else lambda epoch: slices[(epoch + shift) % len(slices)],
        buckets=execution.buckets,
        cache=state.with_name("cache") if execution.migrations else None,
        checkpoint_every=execution.checkpoint_every,
        closing=execution.cuts[0].closing,
        clock=PassingClock(execution.clock_seconds),
    )
    pending = list(execution.migrations)
    try:
        while True:
            while pending and pending[0].epoch <= engine.next_epoch:
                engine.runner.request_map_change(pending.pop(0).change())
            before(engine.next_epoch)
            report = engine.step()
            if report is None:
                break
            yield report
        engine.runner.checkpoint()
    finally:
        engine.close()
