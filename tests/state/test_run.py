"""Runs come back as they were written, or say that they do not."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ExternalError, InternalError
from penstock.state import run_store
from penstock.state.buckets import HASH, buckets_of, with_hash
from penstock.state.cache import HostCache
from penstock.state.run import RunEntry, ranges_of, sections_of
from penstock.state.run_file import Ranges, check_run, places_in, read_rows, read_run
from penstock.state.run_rows import FrameRows, MappedRows
from penstock.state.run_store import RunStore

FRAME = pl.DataFrame(
    {
        "user": ["ada", None, "żółw 🐢", ""],
        "n": [1, None, -(2**63), 2**63 - 1],
        "x": [float("nan"), -0.0, None, float("inf")],
        "list": [["a", None], [], None, ["b"]],
        "time": [datetime(2026, 1, 1, tzinfo=UTC), None, None, datetime(1969, 1, 1, tzinfo=UTC)],
        "flag": [True, False, None, True],
    },
    schema_overrides={"time": pl.Datetime("us", "UTC")},
)


def sorted_by_hash(frame: pl.DataFrame, *keys: str) -> pl.DataFrame:
    return with_hash(frame, keys).sort(HASH)


def written(store: RunStore, frame: pl.DataFrame, **changed: object) -> RunEntry:
    arguments = {"collection": "op.c", "epoch": 3, "through": 3, "buckets": 8, "time": None} | changed
    return store.write(frame, **arguments)  # type: ignore[arg-type]


def test_every_type_comes_back_as_it_was_written(tmp_path: Path) -> None:
    frame = sorted_by_hash(FRAME, "user")
    entry = written(RunStore(tmp_path, None), frame)
    assert RunStore(tmp_path, None).read(entry.name).equals(frame)
    assert read_run(tmp_path / entry.name).schema == frame.schema
    assert entry.rows == 4
    assert entry.bytes == (tmp_path / entry.name).stat().st_size


def test_an_empty_run_keeps_its_columns(tmp_path: Path) -> None:
    frame = sorted_by_hash(FRAME.clear(), "user")
    entry = written(RunStore(tmp_path, None), frame, time="n")
    assert read_run(tmp_path / entry.name).schema == frame.schema
    assert (entry.sections, entry.low, entry.high) == ({}, None, None)


def test_an_entry_has_the_times_and_the_rows_of_each_bucket(tmp_path: Path) -> None:
    frame = sorted_by_hash(pl.DataFrame({"k": [f"k{i}" for i in range(100)], "t": range(100)}), "k")
    store = RunStore(tmp_path, None)
    entry = written(store, frame, time="t")
    assert (entry.low, entry.high) == (0, 99)
    for buckets in (frozenset({0}), frozenset({1, 2, 7}), frozenset(range(8)), frozenset({3, 5})):
        own = [bucket in buckets for bucket in buckets_of(frame[HASH].to_numpy(), 8).tolist()]
        assert store.section(entry, buckets).equals(frame.filter(pl.Series(own)))
        assert entry.rows_in(buckets) == sum(own)
    assert store.section(entry, frozenset()).height == 0


def test_an_entry_goes_through_json_and_loses_buckets_one_by_one() -> None:
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
    entry = written(RunStore(folder, None), sorted_by_hash(FRAME, "user"))
    return (folder / entry.name).read_bytes()


def damage_of(content: bytes) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "000000000003-abc.run"
        path.write_bytes(content)
        with pytest.raises(InternalError) as damage:
            check_run(path)
    assert "000000000003-abc.run" in damage.value.primary
    return damage.value.condition


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_a_flipped_bit_anywhere_is_found(content: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(content) - 1))
    bit = data.draw(st.integers(0, 7))
    flipped = content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]
    assert damage_of(flipped) == "STATE_DAMAGED"


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_a_run_cut_short_anywhere_is_found(content: bytes, data: st.DataObject) -> None:
    assert damage_of(content[: data.draw(st.integers(0, len(content) - 1))]) == "STATE_DAMAGED"


def test_a_run_with_something_after_it_is_found(content: bytes) -> None:
    assert damage_of(content + b"\0") == "STATE_DAMAGED"


def test_a_missing_run_is_damage_and_named(tmp_path: Path) -> None:
    with pytest.raises(InternalError) as damage:
        RunStore(tmp_path, None).read("op.c/000000000001-abc.run")
    assert damage.value.condition == "STATE_DAMAGED"
    assert "missing" in str(damage.value.detail)


# -- the host's cache ----------------------------------------------------------------------------------


def test_the_cache_gives_what_was_put_until_it_is_forgotten(tmp_path: Path) -> None:
    cache = HostCache(tmp_path / "cache", 1 << 20)
    assert cache.get("op.c/1.run") is None
    cache.put("op.c/1.run", FRAME)
    held = cache.get("op.c/1.run")
    assert held is not None
    assert held.equals(FRAME)
    cache.forget("op.c/1.run")
    cache.forget("op.c/1.run")
    assert cache.get("op.c/1.run") is None
    assert held.equals(FRAME), "a frame already mapped stays readable"


def test_the_cache_declines_what_is_beyond_its_limit(tmp_path: Path) -> None:
    cache = HostCache(tmp_path / "cache", 100_000)
    big = pl.DataFrame({"n": range(8_000)})
    cache.put("one", big)
    cache.put("two", big)
    assert cache.get("one") is not None
    assert cache.get("two") is None
    cache.forget("one")
    cache.put("two", big)
    assert cache.get("two") is not None
    assert sum(file.stat().st_size for file in (tmp_path / "cache").iterdir()) <= 100_000


def test_a_run_that_was_dropped_from_the_cache_is_read_again(tmp_path: Path) -> None:
    store = RunStore(tmp_path, None)
    frame = sorted_by_hash(FRAME, "user")
    entry = written(store, frame)
    held = store.read(entry.name)
    assert store.read(entry.name) is held
    store.release(entry.name)
    store.release(entry.name)
    again = store.read(entry.name)
    assert again is not held
    assert again.equals(frame)


def test_a_large_run_is_searched_where_it_is_mapped_until_it_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_store, "LARGE", 0)
    cache = HostCache(tmp_path / "cache", 1 << 20)
    store = RunStore(tmp_path / "runs", cache)
    frame, everything = sorted_by_hash(FRAME, "user"), frozenset(range(8))
    first, second, third = (written(store, frame, epoch=epoch) for epoch in (1, 2, 3))
    for entry in (first, second):
        searched = store.open_rows(entry, everything)
        assert store.open_rows(entry, everything) is searched
        assert searched.hashes.tolist() == frame[HASH].to_list()
        assert searched.gather(np.array([3, 1]), ["n", *FRAME.columns[2:]]).equals(
            frame.select("n", *FRAME.columns[2:])[[3, 1]]
        )
        assert store.read_once(entry, everything).equals(frame)
    assert _mapped(tmp_path) == {first.name, second.name}
    store.release(first.name)
    cache.forget(second.name)
    del searched
    store.open_rows(third, everything)
    assert _mapped(tmp_path) == {third.name}, "one that the cache has no more takes memory"


@pytest.mark.parametrize("room", [1 << 20, 0], ids=["room", "no room"])
@pytest.mark.parametrize("some", [range(8), range(2)], ids=["whole", "part"])
@pytest.mark.parametrize("way", ["open_rows", "read_once"])
def test_a_large_run_is_searched_where_it_is_mapped_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int, some: range, way: str
) -> None:
    monkeypatch.setattr(run_store, "LARGE", 0)
    reads = []
    for name, reading in (("read_run", read_run), ("read_rows", read_rows)):
        counted = lambda *given, reading=reading: reads.append(given) or reading(*given)  # noqa: E731
        monkeypatch.setattr(run_store, name, counted)
    frame, buckets = sorted_by_hash(pl.DataFrame({"n": range(1_000)}), "n"), frozenset(some)
    entry = written(RunStore(tmp_path / "runs", None), frame)
    mine = frame.filter(pl.Series([b in buckets for b in buckets_of(frame[HASH].to_numpy(), 8).tolist()]))
    store = RunStore(tmp_path / "runs", HostCache(tmp_path / "cache", room))
    if way == "read_once":
        assert store.read_once(entry, buckets).equals(mine)
    for _ in range(2):
        searched = store.open_rows(entry, buckets)
        assert isinstance(searched, MappedRows if room else FrameRows)
        assert searched.hashes.tolist() == mine[HASH].to_list()
        assert store.read_once(entry, buckets).equals(mine)
    assert len(reads) == 1, "it is read from disk once, also where the cache has no room for it"
    narrower = frozenset(some[:1])
    first = frame.filter(pl.Series(buckets_of(frame[HASH].to_numpy(), 8) == some[0]))
    assert store.read_once(entry, narrower).equals(first)
    assert len(reads) == 1, "what is left of it is at hand"


def _mapped(folder: Path) -> set[str]:
    """The runs of caches in a folder that are mapped into this process."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    files = {
        line.partition(str(folder))[2].removesuffix(" (deleted)") for line in lines if str(folder) in line
    }
    return {Path(file).name.removesuffix(".arrow").replace("_", "/") for file in files}


def test_a_run_keeps_what_its_rows_use_of_long_texts_and_no_more(tmp_path: Path) -> None:
    texts = pl.DataFrame({"user": [f"{i:09d}" + "x" * 50 for i in range(10_000)]})
    some = sorted_by_hash(texts[::5], "user")
    cache = HostCache(tmp_path / "cache", 1 << 30)
    entry = written(RunStore(tmp_path / "runs", cache), some)
    (file,) = (tmp_path / "cache").iterdir()
    assert file.stat().st_size < 2_000 * (59 + 8 + 8) * 1.05
    kept = cache.get(entry.name)
    assert kept is not None
    assert kept.equals(some)


def test_clearing_the_cache_leaves_nothing(tmp_path: Path) -> None:
    cache = HostCache(tmp_path / "cache", 1 << 20)
    cache.put("one", FRAME)
    cache.clear()
    assert not (tmp_path / "cache").exists()
    assert cache.get("one") is None


def test_a_broken_file_in_the_cache_is_as_good_as_none(tmp_path: Path) -> None:
    cache = HostCache(tmp_path / "cache", 1 << 20)
    store = RunStore(tmp_path / "runs", cache)
    entry = written(store, sorted_by_hash(FRAME, "user"))
    (file,) = (tmp_path / "cache").iterdir()
    whole = file.read_bytes()
    for size in (0, 7, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:size])
        assert cache.get(entry.name) is None
        assert RunStore(tmp_path / "runs", cache).read(entry.name).height == 4


def test_a_cache_that_cannot_be_written_never_fails_an_epoch(tmp_path: Path) -> None:
    place = Path("/proc/self/fdinfo")  # where root may not write, either
    if os.getuid() != 0:
        place = tmp_path / "cache"
        place.mkdir(mode=0o500)
    with pytest.raises(OSError):
        (place / "any").write_bytes(b"")
    cache = HostCache(place, 1 << 20)
    cache.put("one", FRAME)
    assert cache.get("one") is None


def test_a_cache_whose_path_is_taken_never_fails_an_epoch(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("not a directory")
    cache = HostCache(tmp_path / "cache", 1 << 20)
    cache.put("one", FRAME)
    assert cache.get("one") is None


CRAMPED = """
import resource, signal, sys
from pathlib import Path
import polars as pl
from penstock.state.cache import HostCache

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
HostCache(Path(sys.argv[1]), 1 << 30).put("one", pl.DataFrame({"n": range(50_000)}))
"""


def test_a_frame_that_did_not_fit_leaves_nothing_in_the_cache(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", CRAMPED, str(tmp_path / "cache")], check=True)
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize("cached", [True, False])
def test_the_rest_of_a_cached_part_is_not_read_from_disk_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cached: bool
) -> None:
    """As merges take one bucket after the other out of a run that lies elsewhere."""
    frame = sorted_by_hash(pl.DataFrame({"n": range(1_000)}), "n")
    entry = written(RunStore(tmp_path / "state", None), frame, buckets=16)
    cache = HostCache(tmp_path / "cache", 1 << 30) if cached else None
    reads: list[Ranges] = []

    def counted(path: Path, ranges: Ranges) -> tuple[pl.DataFrame, int]:
        reads.append(ranges)
        return read_rows(path, ranges)

    monkeypatch.setattr(run_store, "read_rows", counted)
    store = RunStore(tmp_path / "state", cache, open_limit_bytes=0 if cached else 1 << 30)
    owner = buckets_of(frame[HASH].to_numpy(), 16)
    left = {1, 2, 3, 5, 8, 9, 12, 14}
    while left:
        mine = frozenset(left)
        assert store.section(entry, mine).equals(frame.filter(pl.Series(list(map(mine.__contains__, owner)))))
        left.discard(sorted(left)[len(left) // 2])
    assert len(reads) == 1
    store.section(entry, frozenset({1, 4}))
    assert len(reads) == 2, "what was not in the part is read"
    store.forget((entry.name,))
    store.section(entry, frozenset({1}))
    assert len(reads) == 3, "what is forgotten is read anew"


@settings(deadline=None)
@given(st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30), min_size=1))
def test_rows_are_found_where_they_lie_in_a_wider_part(some: set[int], more: set[int]) -> None:
    def ranges(rows: set[int]) -> Ranges:
        entry = RunEntry("r", 0, 31, 0, {row: (row, 1) for row in rows})
        return tuple(ranges_of(entry, frozenset(rows)))

    wider = sorted(some | more)
    places = places_in(ranges(set(wider)), ranges(some))
    assert places is not None
    assert [wider[first + n] for first, count in places for n in range(count)] == sorted(some)
    if more - some:
        assert places_in(ranges(some), ranges(some | more)) is None


def test_runs_written_together_are_on_disk_when_that_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[str] = set()
    fsync = os.fsync

    def seen(handle: int) -> None:
        synced.add(os.readlink(f"/proc/self/fd/{handle}"))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", seen)
    store, frame = RunStore(tmp_path, None), sorted_by_hash(FRAME, "user")
    with store.sync_together():
        first, second = written(store, frame), written(store, frame, collection="op.d")
        gone = written(store, frame)
        store.discard(gone.name)
        assert not synced
        assert read_run(tmp_path / first.name).height == 4
    assert synced == {
        *(str(tmp_path / entry.name) for entry in (first, second)),
        *(str(tmp_path / folder) for folder in ("op.c", "op.d")),
    }
    synced.clear()
    alone = written(store, frame)
    assert len(synced) == 2, "afterwards each is on disk as soon as it is written"
    assert str(tmp_path / "op.c") in synced
    assert read_run(tmp_path / alone.name).equals(frame)


def test_a_disk_that_fails_when_runs_are_written_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    store = RunStore(tmp_path, None)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ExternalError, match="STATE_DISK_FULL"), store.sync_together():
        written(store, sorted_by_hash(FRAME, "user"))
