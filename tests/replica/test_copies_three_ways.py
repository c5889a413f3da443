"""A query over a replicated source emits the same rows undisturbed, in other epochs while the copies grow unevenly, and
killed at a step and resumed though a copy is lost.

The copies are two gateways' logs: the producers' lines are interleaved, framed and spread over partitions differently.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import cloudpickle
import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.epoch.kill_points import StepName
from penstock.ingest.frames import Frame
from penstock.ingest.store import Store
from penstock.state.directory import StateDirectory
from penstock.state.epoch_record import Offset
from penstock.testing.inline import InlineEngine, run_inline
from penstock.testing.three_ways import Rows, Way, rows_below, three_ways
from tests import golden_query as golden

cloudpickle.register_pickle_by_value(golden)

LINES = {name: [f"{line}\n".encode() for line in lines] for name, lines in golden.lines().items()}
ALL = {name: len(lines) for name, lines in LINES.items()}
_CHILD = "import sys; from tests.replica.test_copies_three_ways import child; child(sys.argv[1])"


class Gateway:
    """Writes the producers' lines, some in each frame, in random order of producers."""

    def __init__(self, folder: Path, number: int) -> None:
        self._store = Store(folder / f"g{number}", partitions=1 + number, segment_bytes=2_000)
        self._draw, self._at_once = random.Random(number), (7, 11)[number]
        self._sent = dict.fromkeys(LINES, 0)

    def receive(self, end: Mapping[str, int]) -> None:
        """Take lines of each producer, up to these."""
        while names := [name for name, lines in end.items() if self._sent[name] < lines]:
            name = self._draw.choice(names)
            first = self._sent[name]
            self._sent[name] = min(first + self._at_once, end[name])
            data = b"".join(LINES[name][first : self._sent[name]])
            self._store.append([Frame.of(name, len(b"".join(LINES[name][:first])), data)], now=1)

    def close(self) -> None:
        self._store.close()


def build(folder: Path, *, finished: bool) -> tuple[ps.App, list[ps.segments_by_producer]]:
    copies = [ps.segments_by_producer(folder / f"g{number}", finished=finished) for number in (0, 1)]
    return golden.build(folder / "out", log=ps.replicated(*copies)), copies


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """The rows of the run over the lines themselves."""
    folder = tmp_path_factory.mktemp("straight")
    run_inline(golden.build(folder / "out"), folder / "state", slices=1)
    return rows_below(folder / "out")


@pytest.fixture
def gateways(tmp_path: Path) -> list[Gateway]:
    return [Gateway(tmp_path, 0), Gateway(tmp_path, 1)]


def test_a_replicated_source_is_as_good_as_one(
    undisturbed: Rows, gateways: list[Gateway], tmp_path: Path
) -> None:
    for gateway in gateways:
        gateway.receive(ALL)
        gateway.close()
    run_inline(build(tmp_path, finished=True)[0], tmp_path / "state")
    assert rows_below(tmp_path / "out") == undisturbed


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_copies_that_grow_unevenly_do_not_change_the_rows(
    undisturbed: Rows, gateways: list[Gateway], tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)
    app, copies = build(tmp_path, finished=False)
    engine = InlineEngine(
        app, tmp_path / "state", epoch_units=8_000, slices=lambda epoch: 1 + epoch * seed % 4
    )
    for end in range(90, 300, 90):
        for gateway in gateways:
            gateway.receive({name: draw.randrange(end - 80, end) for name in LINES})
        list(engine.steps())
    for gateway, copy in zip(gateways, copies, strict=True):
        gateway.receive(ALL)
        gateway.close()
        copy._finished = True
    list(engine.steps())
    engine.close()
    assert rows_below(tmp_path / "out") == undisturbed
    assert copies_in_records(tmp_path) == {0, 1}


@pytest.mark.kill
@pytest.mark.parametrize(("step", "lost"), [("recorded", 0), ("sliced", 1), ("committed", None)])
def test_a_kill_and_a_lost_copy_do_not_change_the_rows(
    undisturbed: Rows, gateways: list[Gateway], tmp_path: Path, step: StepName, lost: int | None
) -> None:
    """Each copy is further with another producer when the engine is killed; then one of them is gone for good."""
    gateways[0].receive({"p0": 200, "p1": 80})
    gateways[1].receive({"p0": 60, "p1": 220})
    killed = subprocess.run(
        [sys.executable, "-c", _CHILD, str(tmp_path)],
        cwd=Path(__file__).parents[2],
        env=os.environ
        | {"PENSTOCK_KILL_AT": f"{step}:2", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        start_new_session=True,
        stderr=subprocess.PIPE,
        timeout=120,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()[-3_000:]
    assert copies_in_records(tmp_path) == {0, 1}
    for number, gateway in enumerate(gateways):
        gateway.receive(ALL)
        gateway.close()
        if number == lost:
            shutil.rmtree(tmp_path / f"g{number}")
    run_inline(build(tmp_path, finished=True)[0], tmp_path / "state", epoch_units=9_000, slices=3)
    assert rows_below(tmp_path / "out") == undisturbed


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.kill
def test_spark_reads_the_copy_that_the_epoch_record_names(
    undisturbed: Rows, gateways: list[Gateway], spark: SparkSession, tmp_path: Path
) -> None:
    for gateway in gateways:
        gateway.receive(ALL)
        gateway.close()

    def build_copy(out: Path) -> ps.App:
        copies = [ps.segments_by_producer(tmp_path / f"g{number}", finished=True) for number in (0, 1)]
        return golden.build(out, log=ps.replicated(*copies))

    ways = [Way(9_000, 3), Way(9_000, 2, "recorded", 1)]
    assert three_ways(build_copy, tmp_path / "ways", spark, ways) == undisturbed


def child(folder: str) -> None:
    """The engine that is to be killed."""
    run_inline(build(Path(folder), finished=False)[0], Path(folder) / "state", epoch_units=7_000)


def copies_in_records(folder: Path) -> set[int]:
    """The copies that epoch records name."""
    state = StateDirectory(folder / "state")
    ends = [state.records.read_end(epoch) or Offset() for epoch in range(state.records.newest_epoch() + 1)]
    return {copy for end in ends for copy in end.copies.get("events", {}).values()}
