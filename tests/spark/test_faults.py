"""A fault stops the engine with an error that says what to do; once the cause is fixed the engine continues."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import polars as pl
import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.engine.engine import Engine
from penstock.epoch.task import shared_run_store
from penstock.errors import ExternalError, InternalError, PenstockError, UserError
from penstock.settings import Settings
from penstock.state.directory import StateDirectory
from penstock.testing.inline import run_inline
from penstock.testing.list_log import ListLog
from penstock.testing.three_ways import rows_below
from tests import golden_query as golden

cloudpickle.register_pickle_by_value(golden)
UNITS = 170


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The rows of an undisturbed run."""
    folder = tmp_path_factory.mktemp("undisturbed")
    run_inline(golden.build(folder / "out"), folder / "state")
    return rows_below(folder / "out")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 16 megabytes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("cannot mount a small disk here (needs root)")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.process
def test_a_full_disk_stops_the_run_and_it_continues_with_free_space(
    undisturbed: dict[str, list[str]], small_disk: Path, tmp_path: Path
) -> None:
    state = small_disk / "state"
    run_inline(golden.build(tmp_path / "out"), state, epoch_units=UNITS, epochs=1)
    ballast = small_disk / "ballast"
    with pytest.raises(OSError), open(ballast, "wb") as file:  # noqa: PT012
        while True:
            file.write(b"x" * 4096)
            file.flush()
    with pytest.raises(ExternalError) as failure:
        run_inline(golden.build(tmp_path / "out"), state, epoch_units=UNITS)
    assert failure.value.condition == "STATE_DISK_FULL"
    assert failure.value.retry
    ballast.unlink()
    run_inline(golden.build(tmp_path / "out"), state, epoch_units=UNITS)
    assert rows_below(tmp_path / "out") == undisturbed


@pytest.mark.slow
def test_a_state_directory_that_cannot_be_written_stops_the_run(
    undisturbed: dict[str, list[str]], tmp_path: Path
) -> None:
    state = tmp_path / "state"
    run_inline(golden.build(tmp_path / "out"), state, epoch_units=UNITS, epochs=1)
    shutil.move(state / "runs", tmp_path / "moved")
    (state / "runs").write_text("not a directory")
    with pytest.raises(PenstockError) as failure:
        run_inline(golden.build(tmp_path / "out"), state, epoch_units=UNITS)
    assert failure.value.condition in ("STATE_UNWRITABLE", "STATE_UNREADABLE", "STATE_DAMAGED")
    (state / "runs").unlink()
    shutil.move(tmp_path / "moved", state / "runs")
    run_inline(golden.build(tmp_path / "out"), state, epoch_units=UNITS)
    assert rows_below(tmp_path / "out") == undisturbed


@pytest.mark.slow
def test_a_damaged_run_is_named_and_the_engine_continues_with_a_restored_copy(
    undisturbed: dict[str, list[str]], tmp_path: Path
) -> None:
    state = tmp_path / "state"
    run_inline(golden.build(tmp_path / "out"), state, epoch_units=UNITS, epochs=1)
    directory = StateDirectory(state)
    name = next(run for run in sorted(directory.manifests.latest().runs()) if ".last/" in run)
    file = directory.runs / name
    whole = file.read_bytes()
    file.write_bytes(whole[:-20] + bytes([whole[-20] ^ 1]) + whole[-19:])
    shared_run_store.cache_clear()  # as another process would find it
    with pytest.raises(InternalError) as failure:
        run_inline(golden.build(tmp_path / "out"), state, epoch_units=UNITS)
    assert failure.value.condition == "STATE_DAMAGED"
    assert file.name in str(failure.value)
    assert "rollback" in str(failure.value)
    file.write_bytes(whole)
    run_inline(golden.build(tmp_path / "out"), state, epoch_units=UNITS)
    assert rows_below(tmp_path / "out") == undisturbed


class FailingFunction:
    """A user function that raises while a file exists."""

    def __init__(self, switch: Path) -> None:
        self.switch = switch

    def __call__(self, frame: pl.DataFrame) -> pl.DataFrame:
        return _raise_if_broken(frame, self.switch)


def _raise_if_broken(frame: pl.DataFrame, switch: Path) -> pl.DataFrame:
    if switch.exists():
        raise ValueError("the user made a mistake")
    return frame


def build_with_function(out: Path, switch: Path) -> ps.App:
    events = ps.stream("events", ListLog(golden.lines()), golden.decoder(), time="time", lateness=5)

    def enrich(frame: pl.DataFrame) -> pl.DataFrame:
        return _raise_if_broken(frame, switch)

    counted = events.map_batches(enrich).key_by("user").window("1m").count()
    return ps.app("failing", ps.output("counts", counted, ps.jsonl(out / "counts")))


@pytest.mark.spark
def test_a_user_functions_error_names_the_line_and_the_span_and_the_engine_continues_once_it_is_fixed(
    spark: SparkSession, tmp_path: Path
) -> None:
    switch = tmp_path / "broken"
    run_inline(build_with_function(tmp_path / "expected", switch), tmp_path / "other")
    switch.touch()
    settings = Settings(state=tmp_path / "state", master="local[2]", drain=True, warm_up=False)
    with pytest.raises(UserError) as failure:
        Engine(build_with_function(tmp_path / "out", switch), settings, spark).run()
    assert failure.value.condition == "USER_FUNCTION_FAILED"
    assert "the user made a mistake" in str(failure.value)
    assert "test_faults.py" in str(failure.value)
    assert "offsets 0 to" in str(failure.value)
    assert failure.value.exit_code != 0
    switch.unlink()
    Engine(build_with_function(tmp_path / "out", switch), settings, spark).run()
    assert rows_below(tmp_path / "out") == rows_below(tmp_path / "expected")


def test_an_error_of_a_callable_object_is_reported_as_one_of_a_user_function(tmp_path: Path) -> None:
    switch = tmp_path / "broken"
    switch.touch()
    events = ps.stream("events", ListLog(golden.lines()), golden.decoder(), time="time")
    out = ps.output("all", events.map_batches(FailingFunction(switch)), ps.jsonl(tmp_path / "out"))
    with pytest.raises(UserError) as failure:
        run_inline(ps.app("objects", out), tmp_path / "state")
    assert failure.value.condition == "USER_FUNCTION_FAILED"


@pytest.mark.spark
def test_a_state_directory_of_another_query_is_refused_and_not_changed(
    spark: SparkSession, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    run_inline(golden.build(tmp_path / "out"), state, epochs=1)
    before = sorted(p.name for p in state.rglob("*"))
    other = build_with_function(tmp_path / "other", tmp_path / "none")
    with pytest.raises(UserError) as failure:
        Engine(other, Settings(state=state, master="local[2]", warm_up=False), spark).run()
    assert failure.value.condition == "STATE_OF_ANOTHER_QUERY"
    assert sorted(p.name for p in state.rglob("*")) == before


def test_a_state_directory_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    state = tmp_path / "state"
    run_inline(golden.build(tmp_path / "out"), state, epochs=1)
    facts = json.loads((state / "penstock.json").read_text())
    (state / "penstock.json").write_text(json.dumps(facts | {"format": 99}))
    with pytest.raises(UserError) as failure:
        run_inline(golden.build(tmp_path / "out"), state)
    assert failure.value.condition == "STATE_OF_NEWER_FORMAT"


@pytest.mark.spark
def test_a_second_engine_on_a_state_directory_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    state = StateDirectory(tmp_path / "state")
    app = golden.build(tmp_path / "out")
    engine = Engine(app, Settings(state=state.path, master="local[2]", warm_up=False), spark)
    state.claim(engine.plan.fingerprint, engine.plan.summary)
    try:
        with pytest.raises(ExternalError) as failure:
            engine.run()
        assert failure.value.condition == "STATE_IN_USE"
        assert str(os.getpid()) in str(failure.value)
    finally:
        state.release()


@pytest.mark.spark
def test_a_missing_path_is_reported_before_spark_is_used(spark: SparkSession, tmp_path: Path) -> None:
    missing = ps.files(str(tmp_path / "nowhere" / "*.log"))
    stream = ps.stream("missing", missing, ps.combined_log(), time="time")
    app = ps.app("missing", ps.output("all", stream.select("path"), ps.jsonl(tmp_path / "out")))
    with pytest.raises(ExternalError) as failure:
        Engine(app, Settings(state=tmp_path / "state", master="local[2]", warm_up=False), spark).run()
    assert failure.value.condition == "LOG_PATH_MISSING"


def test_output_that_an_engine_with_another_state_wrote_is_refused(tmp_path: Path) -> None:
    run_inline(golden.build(tmp_path / "out"), tmp_path / "state")
    shutil.rmtree(tmp_path / "state")
    with pytest.raises(UserError) as failure:
        run_inline(golden.build(tmp_path / "out"), tmp_path / "state")
    assert failure.value.condition == "SINK_TAKEN"


@pytest.mark.slow
def test_dead_letters_and_late_events_are_counted_and_stored_with_their_offset(tmp_path: Path) -> None:
    source = golden.lines()
    reports = run_inline(golden.build(tmp_path / "out"), tmp_path / "state", epoch_units=UNITS)
    _, late, bad = golden.parse_events(source)
    other = sum(line == "broken line" for line in golden.lines(seed=8, count=60, partitions=1)["p0"])
    assert sum(report.bad for report in reports) == bad + other
    counted = StateDirectory(tmp_path / "state").manifests.latest().counters
    assert counted["bad"] == bad + other
    assert counted["late"] == late
    rows = [
        json.loads(line)
        for file in sorted((tmp_path / "state" / "dead" / "events").glob("*.jsonl"))
        for line in file.read_text().splitlines()
    ]
    expected = {
        (partition, offset)
        for partition, lines in source.items()
        for offset, line in enumerate(lines)
        if line == "broken line"
    }
    assert {(row["partition"], row["offset"]) for row in rows} == expected
    assert all(row["raw"] == "broken line" and row["reason"] for row in rows)
