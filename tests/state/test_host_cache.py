"""The cache of a host returns runs and parts of runs as they were written, and never fails an epoch."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from penstock.state import run_store
from penstock.state.buckets import HASH, buckets_of
from penstock.state.cache import HostCache
from penstock.state.run_file import Ranges, read_rows, read_run
from penstock.state.run_rows import FrameRows, MappedRows
from penstock.state.run_store import RunStore
from tests.state.run_kit import FRAME, sorted_by_hash, write_run


def test_the_cache_returns_a_frame_until_it_is_forgotten(tmp_path: Path) -> None:
    cache = HostCache(tmp_path / "cache", 1 << 20)
    assert cache.get("op.c/1.run") is None
    cache.put("op.c/1.run", FRAME)
    cached = cache.get("op.c/1.run")
    assert cached is not None
    assert cached.equals(FRAME)
    cache.forget("op.c/1.run")
    cache.forget("op.c/1.run")
    assert cache.get("op.c/1.run") is None
    assert cached.equals(FRAME), "a frame already mapped stays readable"


def test_the_cache_stores_no_frame_beyond_its_limit(tmp_path: Path) -> None:
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


def test_a_large_run_is_searched_in_its_mapped_file_until_it_is_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_store, "LARGE", 0)
    cache = HostCache(tmp_path / "cache", 1 << 20)
    store = RunStore(tmp_path / "runs", cache)
    frame, everything = sorted_by_hash(FRAME, "user"), frozenset(range(8))
    first, second, third = (write_run(store, frame, epoch=epoch) for epoch in (1, 2, 3))
    for entry in (first, second):
        searched = store.open_rows(entry, everything)
        assert store.open_rows(entry, everything) is searched
        assert searched.hashes.tolist() == frame[HASH].to_list()
        assert searched.gather(np.array([3, 1]), ["n", *FRAME.columns[2:]]).equals(
            frame.select("n", *FRAME.columns[2:])[[3, 1]]
        )
        assert store.read_once(entry, everything).equals(frame)
    assert list_mapped_runs(tmp_path) == {first.name, second.name}
    store.release(first.name)
    cache.forget(second.name)
    del searched
    store.open_rows(third, everything)
    assert list_mapped_runs(tmp_path) == {third.name}, "a run that the cache has forgotten is unmapped"


@pytest.mark.parametrize("room", [1 << 20, 0], ids=["room", "no room"])
@pytest.mark.parametrize("bucket_range", [range(8), range(2)], ids=["whole", "part"])
@pytest.mark.parametrize("way", ["open_rows", "read_once"])
def test_a_large_run_is_searched_in_its_mapped_file_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int, bucket_range: range, way: str
) -> None:
    monkeypatch.setattr(run_store, "LARGE", 0)
    reads = []
    for name, reading in (("read_run", read_run), ("read_rows", read_rows)):
        counted = lambda *given, reading=reading: reads.append(given) or reading(*given)  # noqa: E731
        monkeypatch.setattr(run_store, name, counted)
    frame, buckets = sorted_by_hash(pl.DataFrame({"n": range(1_000)}), "n"), frozenset(bucket_range)
    entry = write_run(RunStore(tmp_path / "runs", None), frame)
    expected = frame.filter(pl.Series([b in buckets for b in buckets_of(frame[HASH].to_numpy(), 8).tolist()]))
    store = RunStore(tmp_path / "runs", HostCache(tmp_path / "cache", room))
    if way == "read_once":
        assert store.read_once(entry, buckets).equals(expected)
    for _ in range(2):
        searched = store.open_rows(entry, buckets)
        assert isinstance(searched, MappedRows if room else FrameRows)
        assert searched.hashes.tolist() == expected[HASH].to_list()
        assert store.read_once(entry, buckets).equals(expected)
    assert len(reads) == 1, "it is read from disk once, even if the cache has no room for it"
    narrower = frozenset(bucket_range[:1])
    first = frame.filter(pl.Series(buckets_of(frame[HASH].to_numpy(), 8) == bucket_range[0]))
    assert store.read_once(entry, narrower).equals(first)
    assert len(reads) == 1, "the narrower part is read from memory"


def list_mapped_runs(folder: Path) -> set[str]:
    """Return the runs of caches in a folder that are mapped into this process."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    files = {
        line.partition(str(folder))[2].removesuffix(" (deleted)") for line in lines if str(folder) in line
    }
    return {Path(file).name.removesuffix(".arrow").replace("_", "/") for file in files}


def test_a_cached_run_holds_only_the_texts_of_its_own_rows(tmp_path: Path) -> None:
    texts = pl.DataFrame({"user": [f"{i:09d}" + "x" * 50 for i in range(10_000)]})
    some = sorted_by_hash(texts[::5], "user")
    cache = HostCache(tmp_path / "cache", 1 << 30)
    entry = write_run(RunStore(tmp_path / "runs", cache), some)
    (file,) = (tmp_path / "cache").iterdir()
    assert file.stat().st_size < 2_000 * (59 + 8 + 8) * 1.05
    cached = cache.get(entry.name)
    assert cached is not None
    assert cached.equals(some)


def test_clearing_the_cache_removes_its_directory(tmp_path: Path) -> None:
    cache = HostCache(tmp_path / "cache", 1 << 20)
    cache.put("one", FRAME)
    cache.clear()
    assert not (tmp_path / "cache").exists()
    assert cache.get("one") is None


def test_a_damaged_file_in_the_cache_is_not_used(tmp_path: Path) -> None:
    cache = HostCache(tmp_path / "cache", 1 << 20)
    store = RunStore(tmp_path / "runs", cache)
    entry = write_run(store, sorted_by_hash(FRAME, "user"))
    (file,) = (tmp_path / "cache").iterdir()
    whole = file.read_bytes()
    for size in (0, 7, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:size])
        assert cache.get(entry.name) is None
        assert RunStore(tmp_path / "runs", cache).read(entry.name).height == 4


def test_a_cache_that_cannot_be_written_never_fails_an_epoch(tmp_path: Path) -> None:
    path = Path("/proc/self/fdinfo")  # not even root can write there
    if os.getuid() != 0:
        path = tmp_path / "cache"
        path.mkdir(mode=0o500)
    with pytest.raises(OSError):
        (path / "any").write_bytes(b"")
    cache = HostCache(path, 1 << 20)
    cache.put("one", FRAME)
    assert cache.get("one") is None


def test_a_cache_whose_path_is_a_file_never_fails_an_epoch(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("not a directory")
    cache = HostCache(tmp_path / "cache", 1 << 20)
    cache.put("one", FRAME)
    assert cache.get("one") is None


PUT_ON_FULL_DISK = """
import resource, signal, sys
from pathlib import Path
import polars as pl
from penstock.state.cache import HostCache

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
HostCache(Path(sys.argv[1]), 1 << 30).put("one", pl.DataFrame({"n": range(50_000)}))
"""


@pytest.mark.process
def test_a_frame_that_did_not_fit_leaves_nothing_in_the_cache(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", PUT_ON_FULL_DISK, str(tmp_path / "cache")], check=True)
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize("cached", [True, False])
def test_the_rest_of_a_cached_part_is_not_read_from_disk_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cached: bool
) -> None:
    """Merges read one bucket after the other of a run that another host wrote."""
    frame = sorted_by_hash(pl.DataFrame({"n": range(1_000)}), "n")
    entry = write_run(RunStore(tmp_path / "state", None), frame, buckets=16)
    cache = HostCache(tmp_path / "cache", 1 << 30) if cached else None
    reads: list[Ranges] = []

    def count_reads(path: Path, ranges: Ranges) -> tuple[pl.DataFrame, int]:
        reads.append(ranges)
        return read_rows(path, ranges)

    monkeypatch.setattr(run_store, "read_rows", count_reads)
    store = RunStore(tmp_path / "state", cache, open_limit_bytes=0 if cached else 1 << 30)
    owner = buckets_of(frame[HASH].to_numpy(), 16)
    remaining = {1, 2, 3, 5, 8, 9, 12, 14}
    while remaining:
        buckets = frozenset(remaining)
        assert store.section(entry, buckets).equals(
            frame.filter(pl.Series(list(map(buckets.__contains__, owner))))
        )
        remaining.discard(sorted(remaining)[len(remaining) // 2])
    assert len(reads) == 1
    store.section(entry, frozenset({1, 4}))
    assert len(reads) == 2, "a bucket that was not in the part is read"
    store.forget((entry.name,))
    store.section(entry, frozenset({1}))
    assert len(reads) == 3, "a forgotten run is read again"


def age(cache: HostCache, name: str, seconds: float) -> None:
    """Let a run not have been used for so long."""
    at = time.time() - seconds
    os.utime(cache.directory / f"{name}.arrow", (at, at))


def test_a_run_that_nobody_uses_makes_room_for_a_new_one(tmp_path: Path) -> None:
    cache = HostCache(tmp_path / "cache", 200_000)
    big = pl.DataFrame({"n": range(8_000)})
    for name, seconds in (("one", 300), ("two", 200), ("three", 100)):
        cache.put(name, big)
        age(cache, name, seconds)
    mapped = cache.get("one")  # a use
    cache.put("four", big)
    assert [name for name in ("one", "two", "three", "four") if cache.has(name)] == ["one", "three", "four"]
    age(cache, "one", 100)
    cache.put("five", big)
    cache.put("six", big)
    assert not cache.has("one")
    assert mapped is not None
    assert mapped.equals(big), "what is mapped stays readable"


def test_runs_in_use_are_not_evicted_for_each_other(tmp_path: Path) -> None:
    cache = HostCache(tmp_path / "cache", 100_000)
    big = pl.DataFrame({"n": range(8_000)})
    cache.put("one", big)
    cache.put("two", big)
    assert cache.has("one")
    assert not cache.has("two")


def test_a_run_that_is_open_in_a_process_counts_as_used(tmp_path: Path) -> None:
    cache = HostCache(tmp_path / "cache", 1 << 20, in_use_seconds=0.0)
    store = RunStore(tmp_path / "runs", cache)
    entry = write_run(store, sorted_by_hash(FRAME, "user"))
    store.read(entry.name)
    file = entry.name.replace("/", "_")
    age(cache, file, 500)
    store.read(entry.name)
    assert (cache.directory / f"{file}.arrow").stat().st_mtime > time.time() - 400


def test_what_was_not_used_for_an_hour_is_removed_although_there_is_room(tmp_path: Path) -> None:
    cache = HostCache(tmp_path / "cache", 1 << 20)
    cache.claim()
    (tmp_path / "cache" / "ends-with-1").touch()
    for name in ("old", "new"):
        cache.put(name, FRAME)
    (tmp_path / "cache" / "killed.17.tmp").write_bytes(b"half a run")
    for file in ("old.arrow", "killed.17.tmp", "owner", "ends-with-1"):
        os.utime(tmp_path / "cache" / file, (0, 0))
    cache.put("newest", FRAME)
    left = {path.name for path in (tmp_path / "cache").iterdir()}
    assert left == {"new.arrow", "newest.arrow", "owner", "ends-with-1"}


SHARE = """
import sys
import time
from pathlib import Path
import polars as pl
from penstock.state.cache import HostCache

directory, mine, count = sys.argv[1:]
cache = HostCache(Path(directory), 1_000_000, in_use_seconds=0.0)
held = []
for number in range(int(count)):
    frame = pl.DataFrame({"n": range(number, number + 10_000)})
    cache.put(f"{mine}-{number}", frame)
    for other in "abcd":
        for name in (f"{other}-{number}", f"{other}-{max(number - 3, 0)}"):
            found = cache.get(name)
            if found is not None:
                first = int(name.partition("-")[2])
                assert found["n"].to_list() == list(range(first, first + 10_000)), name
                held = [*held[-20:], (first, found)]
for first, frame in held:
    assert frame["n"][0] == first
"""


@pytest.mark.process
def test_processes_that_share_a_cache_keep_it_in_bounds_and_read_what_was_put(tmp_path: Path) -> None:
    directory = tmp_path / "cache"
    command = [sys.executable, "-c", SHARE, str(directory)]
    processes = [subprocess.Popen([*command, mine, "150"]) for mine in "abcd"]
    sizes = []
    while any(process.poll() is None for process in processes):
        sizes.append(measure(directory))
    assert [process.wait() for process in processes] == [0, 0, 0, 0]
    assert max(sizes) > 500_000
    # each process may add one run at the same moment
    assert max(sizes) < 1_000_000 + 5 * 82_000
    newest = HostCache(directory, 1_000_000)
    assert any(newest.has(f"{mine}-149") for mine in "abcd"), "the cache is renewed when it is full"


def measure(directory: Path) -> int:
    """The bytes of the files that are in a directory while others come and go."""
    size = 0
    with contextlib.suppress(FileNotFoundError), os.scandir(directory) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                size += entry.stat().st_size
    return size
