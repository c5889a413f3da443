"""File sinks that compact: a lister finds each row once at any moment, and an epoch is there once after a kill at any
step, with writers that are stopped or fenced in between."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from penstock.errors import ExternalError, UserError
from penstock.sinks import JsonLines, Parquet, joined_files
from penstock.sinks.files import EpochFiles
from penstock.testing.sink_contract import SinkContract
from tests.catalogue.kit import append_events, growing_log, of_log, running

SCHEMA: dict[str, pl.DataType] = {"row": pl.Int64()}
KINDS = [JsonLines, Parquet]
Kind = type[JsonLines] | type[Parquet]


class TestJsonLines(SinkContract):
    remembers = True

    @staticmethod
    def make(folder: Path) -> JsonLines:
        return JsonLines(folder / "out", compact_bytes=2_000)

    @staticmethod
    def read(sink: Any) -> pl.DataFrame:
        rows: pl.DataFrame = sink.read()
        return rows.drop("_epoch")


class TestParquet(SinkContract):
    remembers = True

    @staticmethod
    def make(folder: Path) -> Parquet:
        return Parquet(folder / "out", compact_bytes=2_000)

    @staticmethod
    def read(sink: Any) -> pl.DataFrame:
        rows: pl.DataFrame = sink.read()
        return rows.drop("_epoch")


def rows_of(epoch: int) -> pl.DataFrame:
    return pl.DataFrame({"row": [2 * epoch, 2 * epoch + 1]})


def opened(kind: Kind, directory: Path, *, generation: int = 1, **limits: Any) -> EpochFiles:
    sink = kind(directory, **{"compact_bytes": 3_000, **limits})
    sink.open("job", SCHEMA)
    sink.take_over(generation)
    return sink


def listed_rows(kind: Kind, directory: Path) -> list[int]:
    """What somebody finds who lists the directory and then reads each file, and knows nothing of Penstock."""
    rows: list[int] = []
    for path in sorted(directory.glob(f"*{kind.suffix}")):
        content = path.read_bytes()
        if kind is Parquet:
            rows += pl.read_parquet(content)["row"].to_list()
        else:
            rows += [json.loads(line)["row"] for line in content.splitlines()]
    return rows


@pytest.mark.parametrize("kind", KINDS)
def test_epochs_share_files_up_to_the_size(kind: Kind, tmp_path: Path) -> None:
    sink = opened(kind, tmp_path)
    for epoch in range(300):
        assert sink.write(epoch, rows_of(epoch))
    files = sorted(tmp_path.glob("epoch-*"))
    assert len(files) < 60
    assert kind is Parquet or len(files) > 1
    assert listed_rows(kind, tmp_path) == list(range(600))
    read = sink.read()
    assert read["row"].to_list() == list(range(600))
    assert read["_epoch"].to_list() == [epoch for epoch in range(300) for _ in range(2)]
    assert sink.epochs() == list(range(300))
    assert not any(sink.write(epoch, rows_of(epoch)) for epoch in range(300)), "each epoch is there"
    assert listed_rows(kind, tmp_path) == list(range(600))


def test_an_old_file_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    monkeypatch.setattr(joined_files.time, "time", lambda: now)
    sink = opened(JsonLines, tmp_path, compact_seconds=60.0)
    sink.write(0, rows_of(0))
    now += 59
    sink.write(1, rows_of(1))
    now += 1
    sink.write(2, rows_of(2))
    assert [path.name for path in sorted(tmp_path.glob("epoch-*"))] == [
        "epoch-000000000000.jsonl",
        "epoch-000000000002.jsonl",
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_who_lists_and_reads_at_any_moment_finds_each_row_once(kind: Kind, tmp_path: Path) -> None:
    sink = opened(kind, tmp_path)
    over, wrong, seen = threading.Event(), list[list[int]](), list[int]()

    def look() -> None:
        while not over.is_set():
            rows = listed_rows(kind, tmp_path)
            seen.append(len(rows))
            if rows != list(range(len(rows))):
                wrong.append(rows)

    reader = threading.Thread(target=look)
    reader.start()
    try:
        for epoch in range(200):
            sink.write(epoch, rows_of(epoch))
    finally:
        over.set()
        reader.join()
    assert not wrong
    assert len(set(seen)) > 1


@pytest.mark.parametrize("kind", KINDS)
def test_files_of_former_versions_stay_and_later_epochs_are_joined(kind: Kind, tmp_path: Path) -> None:
    former = opened(kind, tmp_path, compact_bytes=0)
    for epoch in range(3):
        former.write(epoch, rows_of(epoch))
    contents = {path: path.read_bytes() for path in tmp_path.glob("epoch-*")}
    sink = opened(kind, tmp_path)
    assert not sink.write(2, rows_of(2))
    assert all(sink.write(epoch, rows_of(epoch)) for epoch in range(3, 9))
    assert {path: path.read_bytes() for path in contents} == contents
    assert len(list(tmp_path.glob("epoch-*"))) == 4
    again = opened(kind, tmp_path, compact_bytes=0)
    assert not again.write(8, rows_of(8))
    assert again.write(9, rows_of(9))
    assert listed_rows(kind, tmp_path) == list(range(20))


def test_a_file_of_many_epochs_is_complete(tmp_path: Path) -> None:
    files = joined_files.JoinedFiles(
        tmp_path, ".jsonl", joined_files.Limits(1 << 30, 1e9, epochs=5), bytes.__add__
    )
    for epoch in range(12):
        assert files.add(epoch, 1, b'{"row": %d}\n' % epoch, None)
    assert len(list(tmp_path.glob("epoch-*"))) == 3
    assert listed_rows(JsonLines, tmp_path) == list(range(12))


def test_one_word_compacts(tmp_path: Path) -> None:
    sink = JsonLines(tmp_path, compact=True)
    sink.open("job", SCHEMA)
    for epoch in range(20):
        sink.write(epoch, rows_of(epoch))
    assert len(list(tmp_path.glob("epoch-*"))) == 1
    assert listed_rows(JsonLines, tmp_path) == list(range(40))


def test_rows_with_other_columns_start_a_file(tmp_path: Path) -> None:
    sink = opened(Parquet, tmp_path)
    sink.write(0, rows_of(0))
    sink.write(1, rows_of(1).with_columns(more=pl.lit("x")))
    assert len(list(tmp_path.glob("epoch-*"))) == 2
    assert sink.read()["row"].to_list() == [0, 1, 2, 3]


def test_a_complete_file_may_be_taken_away(tmp_path: Path) -> None:
    sink = opened(JsonLines, tmp_path, compact_bytes=30)
    for epoch in range(9):
        sink.write(epoch, rows_of(epoch))
    *complete, _ = sorted(tmp_path.glob("epoch-*"))
    for path in complete:
        path.unlink()
    sink = opened(JsonLines, tmp_path, compact_bytes=30)
    sink.write(9, rows_of(9))
    assert listed_rows(JsonLines, tmp_path)[-2:] == [18, 19]
    assert len(list((tmp_path / ".epochs").glob("*.json"))) == len(list(tmp_path.glob("epoch-*")))


def die_at(step: int, act: Callable[[], object]) -> bool:
    """Act in a child that is killed before its system call of this number which changes files; whether it was."""
    child = os.fork()
    if child == 0:
        left = step
        for name in ("replace", "fsync", "open", "unlink"):
            call = getattr(os, name)

            def count(*arguments: Any, call: Any = call, **options: Any) -> Any:
                nonlocal left
                left -= 1
                if left < 0:
                    os._exit(9)
                return call(*arguments, **options)

            setattr(os, name, count)
        try:
            act()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


@pytest.mark.process
@pytest.mark.parametrize("former", [0, 1, 3], ids=["a new file", "a file of one", "a file of more"])
def test_an_epoch_is_there_once_after_a_kill_at_any_step(former: int, tmp_path: Path) -> None:
    def joined(place: Path) -> joined_files.JoinedFiles:
        # without Polars, whose threads a child that is forked does not have
        return joined_files.JoinedFiles(place, ".jsonl", joined_files.Limits(3_000, 60.0), bytes.__add__)

    def add(files: joined_files.JoinedFiles, place: Path, epoch: int) -> bool:
        lines = "".join(json.dumps({"row": row}) + "\n" for row in (2 * epoch, 2 * epoch + 1))
        return files.add(epoch, 2, lines.encode(), place / ".staging")

    for step in range(1_000):
        place = tmp_path / str(step)
        (place / ".staging").mkdir(parents=True)
        files = joined(place)
        for epoch in range(former):
            add(files, place, epoch)
        was_killed = die_at(step, partial(add, files, place, former))
        assert listed_rows(JsonLines, place) in (list(range(2 * former)), list(range(2 * former + 2)))
        again = joined(place)
        add(again, place, former)
        add(again, place, former + 1)
        assert listed_rows(JsonLines, place) == list(range(2 * former + 4))
        assert not list(place.rglob(".join-*"))
        if not was_killed:
            break
    assert 5 < step < 100


@pytest.mark.parametrize("kind", KINDS)
def test_a_lower_generation_adds_nothing(kind: Kind, tmp_path: Path) -> None:
    low = opened(kind, tmp_path)
    low.write(0, rows_of(0))
    high = opened(kind, tmp_path, generation=2)
    high.write(1, rows_of(1))
    with pytest.raises(ExternalError, match="FENCED"):
        low.write(2, pl.DataFrame({"row": [77]}))
    assert high.write(2, rows_of(2))
    assert listed_rows(kind, tmp_path) == list(range(6))


@pytest.mark.parametrize("call", ["replace", "_fill"])
@pytest.mark.parametrize("at", [0, 1])
def test_a_writer_that_is_stopped_anywhere_cannot_undo_what_another_has_added(
    call: str, at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two engines of one generation, as in active replication: the first one is stopped while it has the lock."""
    monkeypatch.setattr(joined_files, "_LOCK_SECONDS", 0.05)
    first, second = opened(JsonLines, tmp_path), opened(JsonLines, tmp_path)
    first.write(0, rows_of(0))
    place: Any = joined_files.os if call == "replace" else joined_files
    original, left = getattr(place, call), at

    def interrupted(*arguments: Any) -> Any:
        nonlocal left
        left -= 1
        if left == -1:
            for epoch in range(1, 4):
                assert second.write(epoch, rows_of(epoch))
        return original(*arguments)

    monkeypatch.setattr(place, call, interrupted)
    assert not first.write(1, rows_of(1)), "the other has added it"
    assert listed_rows(JsonLines, tmp_path) == list(range(8))
    assert first.epochs() == [0, 1, 2, 3]
    assert first.write(4, rows_of(4))
    assert listed_rows(JsonLines, tmp_path) == list(range(10))


@pytest.mark.parametrize("limits", [{"compact_bytes": -1}, {"compact_seconds": 0.0}])
def test_impossible_limits_are_refused(limits: Any, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="BAD_OPTION"):
        JsonLines(tmp_path, **limits)


def test_sql_sets_the_limits(tmp_path: Path) -> None:
    log, events = growing_log(30)
    with running(tmp_path / "state", of_log(log)) as (program, engine):
        program.execute(
            f"CREATE JOB rows AS SELECT user FROM clicks INTO jsonl('{tmp_path}/out', compact => TRUE)"
        )
        for number in range(30):
            append_events(log, events[number : number + 1])
            engine.step()
    assert len(list((tmp_path / "out").glob("epoch-*"))) == 1
    assert JsonLines(tmp_path / "out").read().height == 30
