"""The scan: late events and dead letters, and that neither depends on how the log is cut."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.epoch.runner import EpochReport
from penstock.logs.contract import Chunk, Span
from penstock.testing.inline import run_inline
from penstock.testing.list_log import ListLog
from tests.operators.harness import LATENESS, SECOND, History, fast_directory, histories, modestly

COLUMNS = {"time": pl.Datetime("us", "UTC"), "n": pl.Int64()}


class ChunkedLog(ListLog):
    """A log that is read in chunks of a few bytes."""

    def __init__(self, lines: dict[str, list[str]], chunk_bytes: int) -> None:
        super().__init__(lines)
        self._chunk_bytes = chunk_bytes

    def read(self, span: Span, chunk_bytes: int = 16 << 20) -> Iterator[Chunk]:
        return super().read(span, self._chunk_bytes)


def scan(log: ListLog, state: Path, *, units: int = 1 << 40) -> list[EpochReport]:
    decoder = ps.json_lines(COLUMNS, times={"time": "us"})
    stream = ps.stream("events", log, decoder, time="time", lateness=LATENESS / SECOND)
    return run_inline(ps.app("test", ps.output("out", stream)), state, epoch_units=units)


def side_output(state: Path, why: str) -> list[dict[str, object]]:
    files = sorted((state / why / "events").glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


@pytest.mark.slow
@modestly
@given(histories(), st.integers(1, 400), st.integers(1, 30))
def test_late_events_do_not_depend_on_the_ends_of_chunks_and_epochs(
    history: History, chunk_bytes: int, units: int
) -> None:
    lines = {f"p{at}": [event.line() for event in part] for at, part in enumerate(history.partitions)}
    with fast_directory() as folder:
        reports = scan(ChunkedLog(lines, chunk_bytes), Path(folder) / "state", units=units)
        late = side_output(Path(folder) / "state", "late")
    assert sum(report.late for report in reports) == history.late()
    assert sum(report.events for report in reports) == len(history.on_time())
    on_time = {(event.partition, event.offset) for event in history.on_time()}
    expected = [
        (f"p{event.partition}", event.offset, event.line())
        for part in history.partitions
        for event in part
        if (event.partition, event.offset) not in on_time
    ]
    assert sorted((row["partition"], row["offset"], row["raw"]) for row in late) == sorted(expected)


def test_records_that_cannot_be_decoded_are_dead_letters_with_their_raw_text(tmp_path: Path) -> None:
    lines = [
        '{"time": 1, "n": 1}',
        "not json",
        '{"n": 2}',
        '{"time": 2, "n": "x"}',
        "",
        '{"time": 3, "n": 3}',
    ]
    (report,) = scan(ListLog({"p": lines}), tmp_path)
    assert (report.events, report.bad, report.late) == (2, 4, 0)
    dead = side_output(tmp_path, "dead")
    assert [(row["offset"], row["raw"]) for row in dead] == [(at, lines[at]) for at in (1, 2, 3, 4)]
    assert all(row["reason"] for row in dead)
    assert "time" in str(dead[1]["reason"])


def test_a_partition_of_dead_letters_only_does_not_stop_the_others(tmp_path: Path) -> None:
    lines = {"bad": ["x"] * 3, "good": [f'{{"time": {at}, "n": {at}}}' for at in range(5)]}
    reports = scan(ListLog(lines), tmp_path, units=2)
    assert sum(report.bad for report in reports) == 3
    assert [n for report in reports for rows in report.rows.values() for n in rows["n"]] == list(range(5))


@pytest.mark.slow
@modestly
@given(histories(), st.integers(1, 400), st.integers(1, 30))
def test_late_events_are_a_stream_with_the_time_of_their_arrival(
    history: History, chunk_bytes: int, units: int
) -> None:
    lines = {f"p{at}": [event.line() for event in part] for at, part in enumerate(history.partitions)}
    decoder = ps.json_lines(COLUMNS, times={"time": "us"})
    with fast_directory() as folder:
        log = ChunkedLog(lines, chunk_bytes)
        stream = ps.stream("events", log, decoder, time="time", lateness=LATENESS / SECOND)
        app = ps.app(
            "test",
            ps.output("late", stream.late()),
            ps.output("noticed", stream.late().window("5s").count()),
        )
        reports = run_inline(app, Path(folder) / "state", epoch_units=units, slices=2)
    noticed: list[tuple[int, int]] = []
    for part in history.partitions:
        newest: int | None = None
        for event in part:
            if newest is not None and event.time < newest - LATENESS:
                noticed.append((newest, event.time))
            newest = event.time if newest is None else max(newest, event.time)
    emitted = [row for report in reports if "late" in report.rows for row in report.rows["late"].to_dicts()]
    assert sorted(round(row["time"].timestamp() * SECOND) for row in emitted) == sorted(t for _, t in noticed)
    counted = {
        round(row["window_start"].timestamp()): row["count"]
        for report in reports
        if "noticed" in report.rows
        for row in report.rows["noticed"].to_dicts()
    }
    expected: dict[int, int] = {}
    for newest, _ in noticed:
        start = newest // SECOND // 5 * 5
        expected[start] = expected.get(start, 0) + 1
    assert counted == expected


def test_a_clock_that_jumps_a_year_closes_no_window(tmp_path: Path) -> None:
    now = int(time.time()) * SECOND
    year = 365 * 86_400 * SECOND
    moments = [now, now + SECOND, now + year, now + 2 * SECOND, now + 3 * SECOND, now + year + SECOND]
    lines = [json.dumps({"time": moment, "n": number}) for number, moment in enumerate(moments)]
    decoder = ps.json_lines(COLUMNS, times={"time": "us"})
    stream = ps.stream("events", ListLog(lines), decoder, time="time", ahead="1h")
    app = ps.app(
        "test", ps.output("sums", stream.window("1s").sum("n", "n")), ps.output("late", stream.late())
    )
    reports = run_inline(app, tmp_path / "state", epoch_units=1)
    emitted = [
        row["n"] for report in reports if "sums" in report.rows for row in report.rows["sums"].to_dicts()
    ]
    assert emitted == [0, 1, 3, 4]
    assert [row["n"] for r in reports if "late" in r.rows for row in r.rows["late"].to_dicts()] == [2, 5]
    assert [row["reason"] for row in side_output(tmp_path / "state", "late")] == ["dated too far ahead"] * 2
    assert sum(report.late for report in reports) == 2


def test_without_a_bound_future_events_are_accepted(tmp_path: Path) -> None:
    now = int(time.time()) * SECOND
    lines = [json.dumps({"time": t, "n": 1}) for t in (now, now + 400 * 86_400 * SECOND, now + SECOND)]
    decoder = ps.json_lines(COLUMNS, times={"time": "us"})
    stream = ps.stream("events", ListLog(lines), decoder, time="time", ahead=None)
    app = ps.app("test", ps.output("sums", stream.window("1s").count()))
    assert sum(report.late for report in run_inline(app, tmp_path / "state", epoch_units=1)) == 1


def test_a_stream_without_event_time_is_mapped_and_filtered(tmp_path: Path) -> None:
    lines = [json.dumps({"n": number}) for number in range(20)]
    stream = ps.stream("events", ListLog(lines), ps.json_lines({"n": pl.Int64()}))
    rows = stream.filter(ps.col("n") % 2 == 0).map(twice=ps.col("n") * 2)
    reports = run_inline(ps.app("test", ps.output("out", rows)), tmp_path / "state", epoch_units=7)
    emitted = [
        row["twice"] for report in reports if "out" in report.rows for row in report.rows["out"].to_dicts()
    ]
    assert emitted == [n * 2 for n in range(0, 20, 2)]
