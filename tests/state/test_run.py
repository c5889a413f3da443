"""A run is read as it was written, or reported as damaged."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ExternalError, InternalError
from penstock.state.buckets import HASH, buckets_of
from penstock.state.run import RunEntry, ranges_of, sections_of
from penstock.state.run_file import Ranges, check_run, places_in, read_run
from penstock.state.run_store import RunStore
from tests.state.run_kit import FRAME, sorted_by_hash, write_run


def test_values_of_every_type_are_read_as_they_were_written(tmp_path: Path) -> None:
    frame = sorted_by_hash(FRAME, "user")
    entry = write_run(RunStore(tmp_path, None), frame)
    assert RunStore(tmp_path, None).read(entry.name).equals(frame)
    assert read_run(tmp_path / entry.name).schema == frame.schema
    assert entry.rows == 4
    assert entry.bytes == (tmp_path / entry.name).stat().st_size


def test_an_empty_run_has_its_columns(tmp_path: Path) -> None:
    frame = sorted_by_hash(FRAME.clear(), "user")
    entry = write_run(RunStore(tmp_path, None), frame, time="n")
    assert read_run(tmp_path / entry.name).schema == frame.schema
    assert (entry.sections, entry.low, entry.high) == ({}, None, None)


def test_an_entry_has_the_times_and_the_rows_of_each_bucket(tmp_path: Path) -> None:
    frame = sorted_by_hash(pl.DataFrame({"k": [f"k{i}" for i in range(100)], "t": range(100)}), "k")
    store = RunStore(tmp_path, None)
    entry = write_run(store, frame, time="t")
    assert (entry.low, entry.high) == (0, 99)
    for buckets in (frozenset({0}), frozenset({1, 2, 7}), frozenset(range(8)), frozenset({3, 5})):
        selected = [bucket in buckets for bucket in buckets_of(frame[HASH].to_numpy(), 8).tolist()]
        assert store.section(entry, buckets).equals(frame.filter(pl.Series(selected)))
        assert entry.rows_in(buckets) == sum(selected)
    assert store.section(entry, frozenset()).height == 0


def test_an_entry_is_read_from_json_as_written_and_buckets_can_be_removed_from_it() -> None:
    entry = RunEntry("a/b.run", 7, 10, 99, {0: (0, 4), 5: (4, 6)}, -5, None)
    assert RunEntry.from_json(entry.to_json()) == entry
    rest = entry.without(frozenset({0}))
    assert rest is not None
    assert rest.sections == {5: (4, 6)}
    assert rest.without(frozenset({5})) is None


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 2**64 - 1)))
def test_sections_cover_every_row_once(hashes: list[int]) -> None:
    series = pl.Series(sorted(hashes), dtype=pl.UInt64).to_numpy()
    rows = [row for start, count in sections_of(series, 16).values() for row in range(start, start + count)]
    assert sorted(rows) == list(range(len(hashes)))


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a run."""
    folder = tmp_path_factory.mktemp("run")
    entry = write_run(RunStore(folder, None), sorted_by_hash(FRAME, "user"))
    return (folder / entry.name).read_bytes()


def condition_of(content: bytes) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "000000000003-abc.run"
        path.write_bytes(content)
        with pytest.raises(InternalError) as damage:
            check_run(path)
    assert "000000000003-abc.run" in damage.value.primary
    return damage.value.condition


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_a_flipped_bit_anywhere_is_detected(content: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(content) - 1))
    bit = data.draw(st.integers(0, 7))
    flipped = content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]
    assert condition_of(flipped) == "STATE_DAMAGED"


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_a_run_truncated_anywhere_is_detected(content: bytes, data: st.DataObject) -> None:
    assert condition_of(content[: data.draw(st.integers(0, len(content) - 1))]) == "STATE_DAMAGED"


def test_bytes_after_the_end_of_a_run_are_detected(content: bytes) -> None:
    assert condition_of(content + b"\0") == "STATE_DAMAGED"


def test_a_missing_run_is_reported_as_damage(tmp_path: Path) -> None:
    with pytest.raises(InternalError) as damage:
        RunStore(tmp_path, None).read("op.c/000000000001-abc.run")
    assert damage.value.condition == "STATE_DAMAGED"
    assert "missing" in str(damage.value.detail)


def test_a_run_that_was_released_is_read_again(tmp_path: Path) -> None:
    store = RunStore(tmp_path, None)
    frame = sorted_by_hash(FRAME, "user")
    entry = write_run(store, frame)
    cached = store.read(entry.name)
    assert store.read(entry.name) is cached
    store.release(entry.name)
    store.release(entry.name)
    again = store.read(entry.name)
    assert again is not cached
    assert again.equals(frame)


@settings(deadline=None)
@given(st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30), min_size=1))
def test_rows_are_found_in_a_cached_part_that_holds_more(some: set[int], more: set[int]) -> None:
    def ranges(rows: set[int]) -> Ranges:
        entry = RunEntry("r", 0, 31, 0, {row: (row, 1) for row in rows})
        return tuple(ranges_of(entry, frozenset(rows)))

    wider = sorted(some | more)
    places = places_in(ranges(set(wider)), ranges(some))
    assert places is not None
    assert [wider[first + n] for first, count in places for n in range(count)] == sorted(some)
    if more - some:
        assert places_in(ranges(some), ranges(some | more)) is None


def test_runs_written_together_are_synced_to_disk_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[str] = set()
    fsync = os.fsync

    def record_sync(handle: int) -> None:
        synced.add(os.readlink(f"/proc/self/fd/{handle}"))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", record_sync)
    store, frame = RunStore(tmp_path, None), sorted_by_hash(FRAME, "user")
    with store.sync_together():
        first, second = write_run(store, frame), write_run(store, frame, collection="op.d")
        discarded = write_run(store, frame)
        store.discard(discarded.name)
        assert not synced
        assert read_run(tmp_path / first.name).height == 4
    assert synced == {
        *(str(tmp_path / entry.name) for entry in (first, second)),
        *(str(tmp_path / folder) for folder in ("op.c", "op.d", "")),
    }
    synced.clear()
    alone = write_run(store, frame)
    assert len(synced) == 2, "afterwards each run is synced as soon as it is written"
    assert str(tmp_path / "op.c") in synced
    assert read_run(tmp_path / alone.name).equals(frame)


def test_a_disk_that_fails_when_runs_are_written_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_disk_full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    store = RunStore(tmp_path, None)
    monkeypatch.setattr(os, "fsync", raise_disk_full)
    with pytest.raises(ExternalError, match="STATE_DISK_FULL"), store.sync_together():
        write_run(store, sorted_by_hash(FRAME, "user"))


def test_the_times_of_a_run_are_forgotten_with_it(tmp_path: Path) -> None:
    """Each epoch of a window writes a run and counts its times: remembered for ever, they would be a leak."""
    store = RunStore(tmp_path, None)
    frame = sorted_by_hash(FRAME.select("user", pane=pl.Series([1, 1, 2, 3])), "user")
    entry = write_run(store, frame)
    every = frozenset(range(8))
    assert store.count_times(entry, every, "pane") == {1: 2, 2: 1, 3: 1}
    store.release(entry.name)
    assert not store._times
    assert store.count_times(entry, every, "pane") == {1: 2, 2: 1, 3: 1}
