"""Durable manifests every n epochs: the rows are the same wherever the engine crashes, and none is emitted twice."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock as ps
from penstock.engine.engine import Engine
from penstock.epoch.checkpoint import CheckpointGrowth
from penstock.epoch.kill_points import STEPS, StepName
from penstock.epoch.runner import EpochReport
from penstock.errors import UserError
from penstock.settings import Settings
from penstock.state.directory import StateDirectory
from penstock.state.rollback import find_problems
from penstock.testing.inline import InlineEngine, run_inline
from penstock.testing.list_log import ListLog
from penstock.testing.three_ways import Rows, rows_below
from tests import golden_query as golden
from tests.crash import Crash, Crashed, settings

UNITS = 50


def build(out: Path) -> ps.App:
    """Windows, an operator in time order, running totals, late events: every kind of state."""
    events = ps.stream("events", ListLog(golden.lines()), golden.decoder(), time="time", lateness=5)
    paths = events.key_by("user").last(3, "page").map(path=ps.col("page").list.join(">"))
    sums = events.key_by("user").running("20s").sum("amount", "sum").top(2, by="sum")
    return ps.app(
        "interval",
        ps.output("paths", paths.select("user", "path"), ps.jsonl(out / "paths")),
        ps.output("counts", events.key_by("page").window("10s").count("visits"), ps.jsonl(out / "counts")),
        ps.output("best", sums, ps.jsonl(out / "best")),
    )


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    folder = tmp_path_factory.mktemp("straight")
    run_inline(build(folder / "out"), folder / "state", epoch_units=UNITS)
    rows = rows_below(folder / "out")
    assert all(rows.values())
    return rows


def runs_to_end(folder: Path, crash: Crash, every: int, at: tuple[StepName, int]) -> bool:
    """Run until that step; return whether it reached the end instead."""
    run_until(folder, crash, every, at)
    return crash.at is not None


def run_until(folder: Path, crash: Crash, every: int, at: tuple[StepName, int]) -> list[EpochReport]:
    """Run until that step, or to the end; return the reports of the epochs before it."""
    crash.at = at
    reports: list[EpochReport] = []
    with contextlib.suppress(Crashed):
        run_inline(
            build(folder / "out"),
            folder / "state",
            epoch_units=UNITS,
            slices=1 + at[1] % 3,
            checkpoint_every=every,
            watch=reports.append,
        )
    return reports


@pytest.mark.slow
@pytest.mark.parametrize("every", [1, 3, 10])
def test_the_rows_are_the_same_wherever_the_engine_crashes(
    every: int, undisturbed: Rows, crash: Crash, tmp_path: Path
) -> None:
    """Killed in every second epoch, at one step after the other."""
    number, steps = 0, itertools.cycle(STEPS[::3] + STEPS[1::3] + STEPS[2::3])
    while not runs_to_end(tmp_path, crash, every, (next(steps), number)):
        number += 2
    assert number >= 10
    assert rows_below(tmp_path / "out") == undisturbed
    state = StateDirectory(tmp_path / "state")
    assert state.manifests.epochs()[-1] == max(int(p.stem) for p in (state.path / "epochs").glob("*.json"))
    assert not list((tmp_path / "state-memory").rglob("*.run")), "after a checkpoint all is on disk"
    assert not any(problem for number in state.manifests.epochs() for problem in find_problems(state, number))


@pytest.mark.slow
@pytest.mark.parametrize("step", [*STEPS[::2], STEPS[-1]])
def test_after_a_kill_at_any_step_the_engine_recovers_from_the_durable_manifest(
    step: StepName, undisturbed: Rows, crash: Crash, tmp_path: Path
) -> None:
    before = run_until(tmp_path, crash, 4, (step, 6))
    assert [report.durable_epoch for report in before] == [-1, -1, -1, 3, 3, 3]
    assert StateDirectory(tmp_path / "state").manifests.latest().epoch == 3
    after = run_until(tmp_path, crash, 4, ("admitted", 9))
    recorded = step not in ("admitted", "planned")
    assert [(report.epoch, report.replayed) for report in after[:3]] == [(4, True), (5, True), (6, recorded)]
    # the record of epoch 6 says that epoch 5 was delivered
    assert [report.delivery_skipped for report in after[:3]] == [True, recorded, False]
    run_until(tmp_path, crash, 1, ("admitted", 1_000))
    assert rows_below(tmp_path / "out") == undisturbed


@pytest.mark.slow
def test_files_that_a_reader_removed_are_not_delivered_again(
    undisturbed: Rows, crash: Crash, tmp_path: Path
) -> None:
    """The files are gone when the epochs are repeated: the record of the next epoch says that they were delivered."""
    taken: Counter[str] = Counter()

    def take(whole: bool = False) -> None:
        for folder in (tmp_path / "out").glob("*"):
            files = sorted(folder.glob("*.jsonl"))
            for file in files if whole else files[:-1]:
                lines = file.read_text().splitlines()
                taken.update(json.dumps(json.loads(line), sort_keys=True) for line in lines)
                file.unlink()

    for number in range(3, 14, 2):
        run_until(tmp_path, crash, 10, ("sliced", number))
        take()
    run_until(tmp_path, crash, 10, ("admitted", 1_000))
    take(whole=True)
    assert taken == Counter(line for lines in undisturbed.values() for line in lines)


@pytest.mark.slow
def test_state_that_is_dropped_before_the_manifest_is_never_written_to_disk(tmp_path: Path) -> None:
    written = {}
    for every in (1, 10):
        folder = tmp_path / str(every)
        run_inline(build(folder / "out"), folder / "state", epoch_units=UNITS, checkpoint_every=every)
        written[every] = sum(1 for _ in (folder / "state" / "runs").rglob("*.run"))
    assert written[10] < written[1] / 2


@pytest.mark.slow
def test_the_growth_of_checkpoints_says_how_much_is_never_written_to_disk(tmp_path: Path) -> None:
    growth = {}
    for every in (1, 10):
        folder, seen = tmp_path / str(every), CheckpointGrowth()
        app = build(folder / "out")
        run_inline(app, folder / "state", epoch_units=UNITS, checkpoint_every=every, watch=seen.add)
        growth[every] = seen.power
    assert growth[10] < 0.9 < growth[1] == 1.0


@pytest.mark.slow
def test_records_of_epochs_in_between_are_removed(tmp_path: Path) -> None:
    engine = InlineEngine(build(tmp_path / "out"), tmp_path / "state", epoch_units=UNITS, checkpoint_every=3)
    for _ in engine.steps():
        engine.remove_old_state(2)
    engine.close()
    state = StateDirectory(tmp_path / "state")
    records = sorted(int(path.stem) for path in (state.path / "epochs").glob("*.json"))
    assert len(state.manifests.epochs()) == 2
    assert records[0] == state.manifests.epochs()[0]


def test_an_interval_needs_one_host_and_an_epoch() -> None:
    app = build(Path("nowhere"))
    with pytest.raises(UserError) as failure:
        Engine(app, Settings(master="spark://10.0.0.1:7077", checkpoint_every=2))
    assert failure.value.condition == "CHECKPOINTS_APART"
    with pytest.raises(UserError) as failure:
        Engine(app, Settings(checkpoint_every=0))
    assert failure.value.condition == "BAD_OPTION"


CHILD = """
import sys
from pathlib import Path
from penstock.engine.engine import Engine
from penstock.settings import Settings
from tests.crash import settings
from tests.epoch.test_checkpoint import UNITS, build
folder = Path(sys.argv[1])
Engine(build(folder / "out"), settings(folder, UNITS)).run()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    assert not list((tmp_path / "memory").rglob("*.run")), "nothing of it stays in memory"


@pytest.mark.kill
def test_a_killed_process_recovers_from_the_durable_manifest(undisturbed: Rows, folder: Path) -> None:
    for step, number in (("emitted", 6), ("sliced", 9), ("gathered", 10)):
        child = subprocess.run(
            [sys.executable, "-c", CHILD, str(folder)],
            env=os.environ | {"PENSTOCK_KILL_AT": f"{step}:{number}"},
            cwd=Path(__file__).parents[2],
            start_new_session=True,
            capture_output=True,
            timeout=120,
            check=False,
        )
        assert child.returncode == -signal.SIGKILL, child.stderr.decode()[-2000:]
        assert StateDirectory(folder / "state").manifests.latest().epoch == {6: 3, 9: 7, 10: 7}[number]
    Engine(build(folder / "out"), settings(folder, UNITS)).run()
    assert rows_below(folder / "out") == undisturbed
