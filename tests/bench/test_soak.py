"""The soak: its work and its oracle agree, the oracle notices each wrong row, and what grows is named."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from bench.findings import Finding
from bench.soak import Size, Soak, _refuse_growth, _Run
from bench.soak_checks import SLACK_EVENTS, Oracle
from bench.soak_load import LogFiles, make_event
from bench.soak_samples import SERIES, Sample, judge
from penstock.errors import InternalError

#: a rotation, a pause, alterations and jobs that are dropped are among them, and each fault but the rarest
EPOCHS = 220


def run_soak(size: Size) -> list[Finding]:
    soak = Soak(size, lambda _: None)
    return [finding for case in soak.cases().values() for finding in case()]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[_Run, Oracle]:
    """A short soak that has ended."""
    folder = tmp_path_factory.mktemp("soak")
    (folder / "full").mkdir()
    run = _Run(folder, EPOCHS, can_fill=False)
    try:
        run.start_compressed()
        for tick in range(EPOCHS):
            run.step(tick)
        run.finish_compressed()
    finally:
        run.close()
    return run, Oracle(folder, run.receiver, run.jobs.changes, run.files.written, SLACK_EVENTS)


@pytest.mark.process
@pytest.mark.slow
def test_each_sink_has_what_the_oracle_expects(finished: tuple[_Run, Oracle]) -> None:
    _, oracle = finished
    assert all(count > 0 for count in oracle.check().values())


#: of each table, which rows the oracle knows exactly: not those beside a command
KNOWN = {
    "big": "number > 100",
    "counts": "n > 0",
    "altered": "number * 104729 % 1000 >= 980",
    "paused": "number BETWEEN 100 AND 600",
    "coming": "job = 0 AND number BETWEEN 100 AND 400",
}


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize(
    "change", ["DELETE FROM {0} WHERE rowid = {1}", "INSERT INTO {0} SELECT * FROM {0} WHERE rowid = {1}"]
)
def test_a_row_that_is_missing_or_there_twice_is_noticed(
    name: str, change: str, finished: tuple[_Run, Oracle]
) -> None:
    run, oracle = finished
    path = run.folder / "out" / f"{name}.db"
    saved = shutil.copy(path, path.with_suffix(".saved"))
    try:
        with contextlib.closing(sqlite3.connect(path)) as database:
            ((row,),) = database.execute(f"SELECT rowid FROM {name} WHERE {KNOWN[name]} LIMIT 1")
            database.execute(change.format(name, row))
            database.commit()
        with pytest.raises(InternalError, match="SOAK_DISAGREES"):
            oracle.check()
    finally:
        shutil.copy(saved, path)


def test_events_follow_from_their_numbers_and_are_at_most_two_seconds_out_of_order() -> None:
    times = [make_event(number).at for number in range(1_000)]
    newest = times[0]
    for at in times:
        assert (newest - at).total_seconds() < 2
        newest = max(newest, at)


def test_rotation_keeps_a_former_text_and_an_archive(tmp_path: Path) -> None:
    files = LogFiles(tmp_path / "in")
    for _ in range(3):
        files.write_tick()
        files.rotate()
    names = {path.name for path in files.folder.iterdir()}
    assert names == {"first.log.1", "first.log.2.gz", "second.log", "second.log.1", "second.log.2.gz"}


def make_samples(growing: str, last: float) -> list[Sample]:
    flat = {one.name: 100.0 for one in SERIES}
    return [Sample(n, flat | ({growing: last} if n >= 30 else {})) for n in range(40)]


def test_what_grows_by_more_than_a_few_percent_is_named() -> None:
    grown = judge(make_samples("descriptors", 110.0))
    assert [one.series.name for one in grown if one.grows] == ["descriptors"]
    with pytest.raises(InternalError, match=r"descriptors 100.0 -> 110.0"):
        _refuse_growth(grown)


def test_a_few_percent_more_are_no_growth() -> None:
    _refuse_growth(judge(make_samples("descriptors", 104.0)))


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.timeout(0)
def test_hours_on_spark_leave_everything_flat() -> None:
    """PENSTOCK_SOAK_HOURS=2 ./run test -m soak tests/bench/test_soak.py"""
    run_soak(Size(hours=float(os.environ.get("PENSTOCK_SOAK_HOURS", "2"))))


@pytest.mark.soak
@pytest.mark.process
@pytest.mark.timeout(0)
def test_many_small_epochs_leave_everything_flat() -> None:
    run_soak(Size(epochs=int(os.environ.get("PENSTOCK_SOAK_EPOCHS", "100000"))))
