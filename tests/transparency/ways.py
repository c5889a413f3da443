"""Ways in which a query may be carried out, drawn at random. None of them may show in its rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from hypothesis import strategies as st

import penstock as ps
from penstock.catalogue.program import Program
from penstock.epoch.migration import MapChange
from penstock.epoch.runner import EpochReport
from penstock.operators.routing import Partitioner
from penstock.state.bucket_map import BucketMaps, ExecutorLocation
from penstock.testing.inline import InlineEngine
from tests.operators.harness import STRAIGHT, Cutting, cuttings
from tests.transparency.queries.streams import parts_of

PARTITIONER = ps.by_function(parts_of, 3)
_PLACES = st.sampled_from(
    [None, ExecutorLocation("here", "0"), ExecutorLocation("here", "1"), ExecutorLocation("there", "2")]
)


@dataclass(frozen=True)
class Move:
    """Other owners of the buckets, and perhaps other places of the slices, before an epoch."""

    epoch: int
    owners: tuple[int, ...]
    places: tuple[ExecutorLocation | None, ...]
    protocol: str | None

    def change(self) -> MapChange:
        return MapChange(BucketMaps(self.owners, {}, self.places), self.protocol)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Ways:
    """How streams are cut; how many buckets there are and who has them; when state becomes durable."""

    cuts: tuple[Cutting, Cutting] = (STRAIGHT, STRAIGHT)
    buckets: int = 8
    checkpoint_every: int = 1
    partitioned: bool = False
    moves: tuple[Move, ...] = ()

    @property
    def partition(self) -> Partitioner | None:
        return PARTITIONER if self.partitioned else None


IN_ONE_GO = Ways()


@st.composite
def ways(draw: st.DrawFn) -> Ways:
    idle = st.just(frozenset[int]()) | st.frozensets(st.integers(0, 1), min_size=1, max_size=1)
    one, other = (replace(draw(cuttings()), idle=draw(idle)) for _ in range(2))
    buckets = draw(st.sampled_from([1, 4, 16]))
    moves: list[Move] = []
    if draw(st.integers(0, 2)) == 0:
        owners = st.lists(st.integers(0, 3), min_size=buckets, max_size=buckets).map(tuple)
        places = st.just(()) | st.lists(_PLACES, min_size=4, max_size=4).map(tuple)
        protocol = st.sampled_from([None, "immediate", "warm", "recreate"])
        moves = draw(
            st.lists(st.builds(Move, st.integers(1, 5), owners, places, protocol), min_size=1, max_size=3)
        )
    return Ways(
        (one, other),
        buckets,
        draw(st.sampled_from([1, 1, 2, 3])),
        draw(st.integers(0, 2)) == 0,
        tuple(sorted(moves, key=lambda move: move.epoch)),
    )


def epochs(app: ps.App | Program, state: Path, ways: Ways, shift: int = 0) -> Iterator[EpochReport]:
    """Run until everything is read, or the engine dies. `shift`: begin at another number of slices."""
    numbers = ways.cuts[0].slices
    engine = InlineEngine(
        app,
        state,
        slices=4 if ways.moves else lambda epoch: numbers[(epoch + shift) % len(numbers)],
        buckets=ways.buckets,
        cache=state.with_name("cache") if ways.moves else None,
        checkpoint_every=ways.checkpoint_every,
        closing=ways.cuts[0].closing,
    )
    waiting = list(ways.moves)
    try:
        while True:
            while waiting and waiting[0].epoch <= engine.next_epoch:
                engine.runner.remap(waiting.pop(0).change())
            report = engine.step()
            if report is None:
                break
            yield report
        engine.runner.checkpoint()
    finally:
        engine.close()
