"""The scan: what is late, what is bad, and that neither depends on how the log was cut."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.engine.epoch import EpochReport
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


def scanned(log: ListLog, state: Path, *, units: int = 1 << 40) -> list[EpochReport]:
    decoder = ps.json_lines(COLUMNS, times={"time": "us"})
    stream = ps.stream("events", log, decoder, time="time", lateness=LATENESS / SECOND)
    return run_inline(ps.app("test", ps.output("out", stream)), state, epoch_units=units)


def aside(state: Path, why: str) -> list[dict[str, object]]:
    files = sorted((state / why / "events").glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


@modestly
@given(histories(), st.integers(1, 400), st.integers(1, 30))
def test_what_is_late_is_so_wherever_chunks_and_epochs_end(
    history: History, chunk_bytes: int, units: int
) -> None:
    lines = {f"p{at}": [event.line() for event in part] for at, part in enumerate(history.partitions)}
    with fast_directory() as folder:
        reports = scanned(ChunkedLog(lines, chunk_bytes), Path(folder) / "state", units=units)
        late = aside(Path(folder) / "state", "late")
    assert sum(report.late for report in reports) == history.late()
    assert sum(report.events for report in reports) == len(history.on_time())
    kept = {(event.partition, event.offset) for event in history.on_time()}
    expected = [
        (f"p{event.partition}", event.offset, event.line())
        for part in history.partitions
        for event in part
        if (event.partition, event.offset) not in kept
    ]
    assert sorted((row["partition"], row["offset"], row["raw"]) for row in late) == sorted(expected)


def test_what_cannot_be_read_is_counted_and_kept_word_for_word(tmp_path: Path) -> None:
    lines = [
        '{"time": 1, "n": 1}',
        "not json",
        '{"n": 2}',
        '{"time": 2, "n": "x"}',
        "",
        '{"time": 3, "n": 3}',
    ]
    (report,) = scanned(ListLog({"p": lines}), tmp_path)
    assert (report.events, report.bad, report.late) == (2, 4, 0)
    dead = aside(tmp_path, "dead")
    assert [(row["offset"], row["raw"]) for row in dead] == [(at, lines[at]) for at in (1, 2, 3, 4)]
    assert all(row["reason"] for row in dead)
    assert "time" in str(dead[1]["reason"])


def test_a_partition_of_nothing_but_bad_rows_does_not_stop_the_others(tmp_path: Path) -> None:
    lines = {"bad": ["x"] * 3, "good": [f'{{"time": {at}, "n": {at}}}' for at in range(5)]}
    reports = scanned(ListLog(lines), tmp_path, units=2)
    assert sum(report.bad for report in reports) == 3
    assert [n for report in reports for rows in report.rows.values() for n in rows["n"]] == list(range(5))
