"""Run files: rows are read as they were written, and only the blocks that hold them are read."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import InternalError
from penstock.state.buckets import HASH
from penstock.state.cache import HostCache
from penstock.state.ipc import dense_table, write_compressed
from penstock.state.run import Piece, piece_of, ranges_of
from penstock.state.run_file import BATCH_ROWS, BLOCK, check_run, read_rows, read_run, write_run
from penstock.state.run_store import RunStore

ROWS, BUCKETS = 3 * BATCH_ROWS + 77, 16
RNG = np.random.default_rng(5)
FRAME = pl.DataFrame(
    {
        HASH: pl.Series(np.sort(RNG.integers(0, 2**64, ROWS, dtype=np.uint64))),
        "n": RNG.integers(0, 1 << 40, ROWS),
        "text": pl.Series(RNG.integers(0, 1 << 40, ROWS)).cast(pl.String),
        "list": pl.Series([[1, 2], None, []] * (ROWS // 3) + [[7]] * (ROWS % 3), dtype=pl.List(pl.Int64)),
        "kind": pl.Series(["a", "b", None] * (ROWS // 3) + ["c"] * (ROWS % 3)).cast(pl.Enum(["a", "b", "c"])),
    }
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "op.c" / "000000000003-abc.run"
    write_run(path, dense_table(FRAME), {"collection": "op.c", "epoch": 3, "rows": ROWS})
    return path


def test_a_file_is_read_as_one_chunk(path: Path) -> None:
    header, frame = check_run(path)
    assert frame.equals(FRAME)
    assert frame.n_chunks() == 1
    assert header["batches"] == [BATCH_ROWS] * 3 + [77]
    assert header["epoch"] == 3


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.integers(0, ROWS - 1), st.integers(1, 40_000)), min_size=1, max_size=6))
def test_ranges_of_rows_are_read_as_written(path: Path, requested: list[tuple[int, int]]) -> None:
    ranges, through = [], 0
    for start, count in sorted(requested):
        start = max(start, through)
        count = min(count, ROWS - start)
        if count > 0:
            ranges.append((start, count))
            through = start + count
    found, _ = read_rows(path, tuple(ranges))
    assert found.equals(pl.concat([FRAME.slice(*rows) for rows in ranges]))
    assert found.n_chunks() == 1


def test_reading_a_few_rows_reads_a_few_bytes(path: Path) -> None:
    found, size = read_rows(path, ((BATCH_ROWS + 5, 10),))
    assert found.equals(FRAME.slice(BATCH_ROWS + 5, 10))
    assert size < path.stat().st_size * 0.6


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_damage_is_detected_when_the_damaged_rows_are_read(path: Path, data: st.DataObject) -> None:
    content = path.read_bytes()
    at = data.draw(st.integers(0, len(content) - 1))
    broken = path.with_name("000000000004-abc.run")
    broken.write_bytes(content[:at] + bytes([content[at] ^ 16]) + content[at + 1 :])
    ranges = ((0, ROWS),)
    with pytest.raises(InternalError) as damage:
        read_rows(broken, ranges)
    assert damage.value.condition == "STATE_DAMAGED"
    read_rows(path, ((0, 5),))


@pytest.mark.parametrize("size", [0, 6, 30, BLOCK, 2 * BLOCK + 1])
def test_a_truncated_file_is_detected(path: Path, size: int) -> None:
    truncated = path.with_name("000000000005-abc.run")
    truncated.write_bytes(path.read_bytes()[:size])
    with pytest.raises(InternalError) as damage:
        read_rows(truncated, ((0, 5),))
    assert damage.value.condition == "STATE_DAMAGED"


def test_files_of_format_1_are_read(tmp_path: Path) -> None:
    old = tmp_path / "op.c" / "000000000001-abc.run"
    old.parent.mkdir()
    header = json.dumps({"format": 1, "collection": "op.c", "epoch": 1, "rows": ROWS}).encode()
    with open(old, "wb") as file:
        file.write(b"PSRUN1\n" + struct.pack(">I", len(header)) + header)
        write_compressed(dense_table(FRAME), file, ROWS)
    with open(old, "ab") as file:
        file.write(struct.pack(">I", zlib.crc32(old.read_bytes())))
    assert read_run(old).equals(FRAME)
    assert read_rows(old, ((7, 9), (99, 1)))[0].equals(pl.concat([FRAME.slice(7, 9), FRAME.slice(99, 1)]))


@pytest.mark.parametrize("cached", [False, True])
def test_a_store_reads_the_requested_buckets_only(tmp_path: Path, cached: bool) -> None:
    cache = HostCache(tmp_path / "cache", 1 << 30) if cached else None
    writer = RunStore(tmp_path / "runs", None)
    entry = writer.write(FRAME, collection="op.c", epoch=1, through=1, buckets=BUCKETS, time=None)
    store = RunStore(tmp_path / "runs", cache)
    few, most = frozenset({3, 4, 9}), frozenset(range(15))
    expected = pl.concat([FRAME.slice(*rows) for rows in ranges_of(entry, few)])
    assert store.section(entry, few).equals(expected)
    assert store.section(entry, few) is store.section(entry, few), "the part is cached in memory"
    assert piece_of(entry, most) == Piece(entry.name), "most of a run is read as the whole run"
    assert piece_of(entry, few).ranges == tuple(ranges_of(entry, few))
    if cache is not None:
        assert cache.has(piece_of(entry, few).key)
        assert not cache.has(entry.name)
        assert store.warm(piece_of(entry, few)) == 0
        assert store.warm(piece_of(entry, frozenset({1}))) > 0
        store.forget([entry.name])
        assert not cache.has(piece_of(entry, few).key)
        assert not any((tmp_path / "cache" / "parts").iterdir())
    store.release(entry.name)
    assert store.section(entry, most).equals(
        pl.concat([FRAME.slice(*rows) for rows in ranges_of(entry, most)])
    )
    assert store.section(entry, few).equals(expected), (
        "it is a slice of the whole run, which is in memory now"
    )
