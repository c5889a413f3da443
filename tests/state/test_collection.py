"""Tables equal a dict and journals a list, over many epochs and with any assignment of buckets to slices."""

from __future__ import annotations

import functools
import random
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.state import compact, run_store
from penstock.state.buckets import HASH, assign_evenly, buckets_of, with_hash
from penstock.state.cache import HostCache
from penstock.state.collection import Changes, Scope
from penstock.state.compact import FAN_IN, MAX_RUNS
from penstock.state.journal import Journal
from penstock.state.manifest import Manifest, apply_changes
from penstock.state.run import RunEntry
from penstock.state.run_store import RunStore
from penstock.state.table import Table
from tests.operators.harness import fast_directory, modestly

BUCKETS = 8
Key = str | None


@pytest.fixture(autouse=True, scope="module", params=["at_once", "in_batches", "mapped"])
def _merge_few_rows_at_a_time(request: pytest.FixtureRequest) -> Iterator[None]:
    """Merge two rows at a time, so that small states have many parts: all in one epoch, or in batches over several.
    Runs are read as frames, or searched where they are mapped."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compact, "ROWS_AT_ONCE", 2)
        if request.param != "at_once":
            patch.setattr(compact, "ROWS_AN_EPOCH", 3)
            patch.setattr(compact, "ROWS_FOR_ONE", 0)
        if request.param == "mapped":
            patch.setattr(run_store, "LARGE", 0)
            patch.setattr(sys.modules[__name__], "open_store", open_cached_store)
        yield


@pytest.fixture
def merged_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows are merged in one epoch, however many there are."""
    monkeypatch.setattr(compact, "ROWS_AN_EPOCH", 1 << 40)


def hash_keys(keys: list[Key], collide: bool) -> pl.DataFrame:
    """Return keys with their hashes; with `collide`, with so few hashes that many keys share one."""
    frame = with_hash(pl.DataFrame({"k": keys}, schema={"k": pl.String}), ["k"])
    return frame.with_columns(pl.col(HASH) // 2**62 * 2**62) if collide else frame


def select_buckets(rows: pl.DataFrame, buckets: frozenset[int]) -> pl.DataFrame:
    """Return the rows whose keys are in these buckets."""
    own = [bucket in buckets for bucket in buckets_of(rows[HASH].to_numpy(), BUCKETS).tolist()]
    return rows.filter(pl.Series(own, dtype=pl.Boolean))


def open_store(folder: Path, slice_: int) -> RunStore:
    """Return a new store for each slice, as in a new process."""
    return RunStore(folder, None)


@functools.lru_cache(maxsize=8)
def open_cached_store(folder: Path, slice_: int) -> RunStore:
    """Return a store with a cache of its own, as an executor has: it reads parts of the runs that others wrote."""
    return RunStore(folder, HostCache(folder / f"cache-{slice_}", 1 << 30), open_limit_bytes=0)


def make_scopes(folder: Path, epoch: int, slices: int) -> list[Scope]:
    """Return the scope of each slice in an epoch."""
    owners = assign_evenly(BUCKETS, slices)
    return [
        Scope(
            open_store(folder, slice_),
            epoch,
            frozenset(bucket for bucket in range(BUCKETS) if owners[bucket] == slice_),
            BUCKETS,
        )
        for slice_ in range(slices)
    ]


table_epochs = st.lists(
    st.tuples(
        st.integers(1, 4), st.dictionaries(st.sampled_from([*"abcdefgh", None]), st.none() | st.integers())
    ),
    min_size=1,
    max_size=16,
)


@pytest.mark.slow
@modestly
@given(table_epochs, st.booleans(), st.booleans())
def test_a_table_returns_the_latest_row_of_every_key(
    epochs: list[tuple[int, dict[Key, int | None]]], collide: bool, compacting: bool
) -> None:
    expected: dict[Key, int | None] = {}
    manifest = Manifest()
    all_keys: list[Key] = [*"abcdefghz", None]
    with fast_directory() as folder:
        for epoch, (slices, new) in enumerate(epochs):
            changes, looked_up, all_rows = [], {}, []
            values = pl.Series("v", [None if v is None else v % 1000 for v in new.values()], dtype=pl.Int64)
            rows = hash_keys(list(new), collide).with_columns(values)
            for scope in make_scopes(Path(folder), epoch, slices):
                table = Table("op.t", manifest.entries("op", "t"), scope, keys=["k"])
                if compacting:
                    table.compact()
                requested = select_buckets(hash_keys(all_keys, collide), scope.buckets)
                found = table.lookup(requested, ["v"])
                looked_up |= dict(zip(requested["k"].to_list(), found["v"].to_list(), strict=True))
                if (slice_rows := table.all()) is not None:
                    all_rows += slice_rows.select("k", "v").rows()
                table.insert(select_buckets(rows, scope.buckets))
                assert table.lookup(requested, ["v"]).equals(found), "an epoch does not see what it inserts"
                changes.append(("op", "t", table.changes()))
            assert looked_up == {key: expected.get(key) for key in all_keys}
            assert sorted(all_rows, key=str) == sorted(expected.items(), key=str)
            manifest = Manifest.from_bytes(manifest.advance(epoch, changes).to_bytes())
            expected |= dict(zip(new, values.to_list(), strict=True))


deleting_epochs = st.lists(
    st.tuples(
        st.integers(1, 4),
        st.dictionaries(st.sampled_from([*"abcdefgh", None]), st.none() | st.integers(0, 9)),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=16,
)


@pytest.mark.slow
@modestly
@given(deleting_epochs, st.booleans())
def test_a_table_returns_due_rows_and_forgets_deleted_keys(
    epochs: list[tuple[int, dict[Key, int | None], int]], collide: bool
) -> None:
    expected: dict[Key, int] = {}
    manifest, floor = Manifest(), 0
    all_keys: list[Key] = [*"abcdefghz", None]
    schema = {"k": pl.String, "t": pl.Int64, "v": pl.Int64, "gone": pl.Boolean}
    with fast_directory() as folder:
        for epoch, (slices, new, step) in enumerate(epochs):
            below = floor + step
            # a deletion has the time of the row it deletes; a new row is due later than the one before
            inserts = {
                key: (expected.get(key, below), True)
                if ahead is None
                else (max(expected.get(key, 0), below) + ahead, False)
                for key, ahead in new.items()
            }
            changed = [(key, time, time * 2, gone) for key, (time, gone) in inserts.items()]
            rows = hash_keys([key for key, *_ in changed], collide).hstack(
                pl.DataFrame(changed, schema=schema, orient="row").drop("k")
            )
            changes, due, looked_up, all_rows = [], {}, {}, []
            for scope in make_scopes(Path(folder), epoch, slices):
                table = Table("op.t", manifest.entries("op", "t"), scope, keys=["k"], time="t", gone="gone")
                table.expire(floor)
                table.compact(floor)
                if (found := table.due(floor, below)) is not None:
                    assert found["v"].equals(found["t"] * 2, check_names=False)
                    assert found[HASH].is_sorted()
                    due |= dict(found.select("k", "t").rows())
                requested = select_buckets(hash_keys(all_keys, collide), scope.buckets)
                looked_up |= dict(zip(requested["k"], table.lookup(requested, ["t"])["t"], strict=True))
                if (slice_rows := table.all()) is not None:
                    all_rows += slice_rows.select("k", "t").rows()
                table.insert(select_buckets(rows, scope.buckets))
                changes.append(("op", "t", table.changes()))
            valid = {key: time for key, time in expected.items() if time >= floor}
            assert due == {key: time for key, time in valid.items() if time < below}
            assert {
                key: time for key, time in looked_up.items() if time is not None and time >= floor
            } == valid
            assert {key: time for key, time in all_rows if time >= floor} == valid
            manifest = Manifest.from_bytes(manifest.advance(epoch, changes).to_bytes())
            expected = {key: time for key, time in expected.items() if key not in inserts}
            expected |= {key: time for key, (time, gone) in inserts.items() if not gone}
            floor = below


@pytest.mark.usefixtures("merged_at_once")
def test_a_deleted_key_leaves_no_rows_once_all_runs_are_merged(tmp_path: Path) -> None:
    manifest = Manifest()
    rows = hash_keys(["a", "b", None], False)
    for epoch in range(3 * FAN_IN):
        (scope,) = make_scopes(tmp_path, epoch, 1)
        table = Table("op.t", manifest.entries("op", "t"), scope, keys=["k"], gone="gone")
        table.compact()
        table.insert(rows.with_columns(gone=pl.lit(epoch % FAN_IN == FAN_IN - 1)))
        manifest = manifest.advance(epoch, [("op", "t", table.changes())])
        if epoch % FAN_IN == 0:
            assert sum(entry.rows for entry in manifest.entries("op", "t")) == rows.height


journal_epochs = st.lists(
    st.tuples(
        st.integers(1, 4),
        st.lists(st.tuples(st.sampled_from([*"abcdef", None]), st.integers(0, 6)), max_size=6),
        st.integers(0, 4),
    ),
    min_size=1,
    max_size=16,
)


@modestly
@given(journal_epochs, st.booleans())
def test_a_journal_returns_every_row_once_when_it_is_due(
    epochs: list[tuple[int, list[tuple[Key, int]], int]], combining: bool
) -> None:
    waiting: Counter[tuple[Key, int]] = Counter()
    manifest, floor = Manifest(), 0

    def combine(rows: pl.DataFrame) -> pl.DataFrame:
        return rows.group_by(HASH, "k", "t").agg(pl.col("n").sum()).select(rows.columns)

    with fast_directory() as folder:
        for epoch, (slices, new, step) in enumerate(epochs):
            below = floor + step
            arrived = [(key, below + ahead) for key, ahead in new]
            times = pl.Series("t", [time for _, time in arrived], dtype=pl.Int64)
            rows = hash_keys([key for key, _ in arrived], False).with_columns(times, n=pl.lit(1, pl.Int64))
            changes, flushed = [], Counter[tuple[Key, int]]()
            for scope in make_scopes(Path(folder), epoch, slices):
                journal = Journal("op.j", manifest.entries("op", "j"), scope, time="t")
                due = journal.flush(floor, below)
                for key, time, n in () if due is None else due.select("k", "t", "n").rows():
                    flushed[key, time] += n
                journal.insert(select_buckets(rows, scope.buckets))
                journal.compact(below, combine if combining else None)
                changes.append(("op", "j", journal.changes()))
            assert flushed == Counter({row: n for row, n in waiting.items() if row[1] < below})
            waiting = Counter({row: n for row, n in waiting.items() if row[1] >= below}) + Counter(arrived)
            manifest = Manifest.from_bytes(manifest.advance(epoch, changes).to_bytes())
            floor = below
        for entry in manifest.entries("op", "j"):
            assert entry.high is not None
            assert entry.high >= floor, "a run whose rows have all been returned is dropped"


def test_two_keys_with_one_hash_keep_their_own_rows_through_compaction(tmp_path: Path) -> None:
    manifest = Manifest()
    frame = pl.DataFrame({"k": ["a", "b", None]}).with_columns(pl.lit(7, pl.UInt64).alias(HASH))
    for epoch in range(3 * FAN_IN):
        (scope,) = make_scopes(tmp_path, epoch, 1)
        table = Table("op.t", manifest.entries("op", "t"), scope, keys=["k"])
        table.compact()
        found = table.lookup(frame, ["v"])["v"].to_list()
        assert found == [None if epoch == 0 else f"{key}{epoch - 1}" for key in ("a", "b", None)]
        table.insert(frame.with_columns(v=pl.Series([f"a{epoch}", f"b{epoch}", f"None{epoch}"])))
        manifest = manifest.advance(epoch, [("op", "t", table.changes())])


def test_a_slice_changes_its_own_buckets_only(tmp_path: Path) -> None:
    rows = hash_keys([f"k{i}" for i in range(200)], False).with_columns(v=pl.lit(1))
    (scope,) = make_scopes(tmp_path, 0, 1)
    table = Table("op.t", (), scope, keys=["k"])
    table.insert(rows)
    manifest = Manifest().advance(0, [("op", "t", table.changes())])
    first, second = make_scopes(tmp_path, 1, 2)
    half = Table("op.t", manifest.entries("op", "t"), first, keys=["k"])
    half.empty()
    manifest = manifest.advance(1, [("op", "t", half.changes())])
    other = Table("op.t", manifest.entries("op", "t"), second, keys=["k"]).all()
    assert other is not None
    assert other.sort(HASH).equals(select_buckets(rows, second.buckets).sort(HASH))
    assert Table("op.t", manifest.entries("op", "t"), first, keys=["k"]).all() is None


def test_rows_merged_and_deleted_in_one_epoch_leave_no_run(tmp_path: Path) -> None:
    manifest = Manifest()
    rows = hash_keys(["a", "b"], False).with_columns(v=pl.lit(1))
    for epoch in range(FAN_IN):
        (scope,) = make_scopes(tmp_path, epoch, 1)
        table = Table("op.t", manifest.entries("op", "t"), scope, keys=["k"])
        table.insert(rows)
        manifest = manifest.advance(epoch, [("op", "t", table.changes())])
    (scope,) = make_scopes(tmp_path, FAN_IN, 1)
    table = Table("op.t", manifest.entries("op", "t"), scope, keys=["k"])
    table.compact()
    table.empty()
    manifest = manifest.advance(FAN_IN, [("op", "t", table.changes())])
    assert manifest.entries("op", "t") == ()


def test_a_lookup_without_keys_or_in_an_empty_table_finds_nothing(tmp_path: Path) -> None:
    (scope,) = make_scopes(tmp_path, 0, 1)
    empty = Table("op.t", (), scope, keys=["k"])
    assert empty.lookup(hash_keys(["a", None], False), ["v", "w"]).rows() == [(None, None), (None, None)]
    assert empty.lookup(hash_keys([], False), ["v"]).height == 0
    assert empty.all() is None


def test_a_table_without_keys_has_one_row(tmp_path: Path) -> None:
    entries: tuple[RunEntry, ...] = ()
    for epoch in range(9):
        scope = make_scopes(tmp_path, epoch, 1)[0]
        table = Table("op.t", entries, scope, keys=[])
        row = with_hash(pl.DataFrame({"v": [epoch]}), [])
        table.compact()
        assert table.lookup(row, ["v"])["v"].to_list() == [epoch - 1 if epoch else None]
        table.insert(row)
        entries = apply_changes(entries, table.changes())
    (latest,) = Table("op.t", entries, scope, keys=[]).all().iter_rows(named=True)  # type: ignore[union-attr]
    assert latest["v"] == 8
    assert len(entries) < 9


def test_changes_of_slices_are_applied_in_the_order_of_epochs() -> None:
    old = RunEntry("old", 3, 9, 9, {0: (0, 5), 1: (5, 4)})
    new = RunEntry("new", 5, 1, 1, {0: (0, 1)})
    merged = RunEntry("merged", 4, 5, 5, {0: (0, 5)})
    after = apply_changes((old,), Changes((new, merged), (("old", frozenset({0})),)))
    assert [(entry.name, sorted(entry.sections)) for entry in after] == [
        ("old", [1]),
        ("merged", [0]),
        ("new", [0]),
    ]


@pytest.mark.parametrize("parts", [1, 4])
def test_runs_of_a_journal_by_time_stay_sorted_by_hash_and_time_through_merges(parts: int) -> None:
    with fast_directory() as made:
        folder = Path(made)
        draw, entries = random.Random(5), ()
        inserted: list[tuple[int, int]] = []
        for epoch in range(30):
            scope = Scope(RunStore(folder, None), epoch, frozenset(range(BUCKETS)), BUCKETS)
            journal = Journal("j", entries, scope, time="t", by_time=True)
            for run in journal.runs(epoch, 1_000):
                rows = run.select(HASH, "t").rows()
                assert rows == sorted(rows)
            read = [row for run in journal.runs(epoch, 1_000) for row in run.select(HASH, "t").rows()]
            assert {row for row in inserted if row[1] >= epoch} <= set(read)
            rows = [(draw.randrange(4) << 62, epoch + draw.randrange(9)) for _ in range(draw.randrange(9))]
            inserted += rows
            journal.insert(pl.DataFrame(rows, schema={HASH: pl.UInt64, "t": pl.Int64}, orient="row"))
            journal.empty(epoch)
            journal.compact(epoch, parts=parts)
            entries = apply_changes(entries, journal.changes())


def test_a_table_drops_deleted_keys_once_no_older_run_holds_them() -> None:
    with fast_directory() as made:
        folder = Path(made)
        entries: tuple[RunEntry, ...] = ()
        for epoch in range(64):
            scope = Scope(RunStore(folder, None), epoch, frozenset(range(BUCKETS)), BUCKETS)
            table = Table("t", entries, scope, keys=["k"], gone="gone")
            keys: list[Key] = [f"k{epoch - epoch % 2}", "never deleted"]
            rows = hash_keys(keys, False).with_columns(pl.Series("gone", [epoch % 2 == 1, False]))
            table.insert(rows)
            table.compact()
            entries = apply_changes(entries, table.changes())
            latest = Table("t", entries, scope, keys=["k"]).lookup(hash_keys(keys, False), ["gone"])
            assert latest["gone"].fill_null(True).to_list() == [epoch % 2 == 1, False]
        remaining = Table("t", entries, scope, keys=["k"]).all()
        assert remaining is not None
        assert remaining.height < 16


@pytest.mark.usefixtures("merged_at_once")
@pytest.mark.parametrize("disorder", [1, 400])
def test_runs_that_are_read_until_they_expire_are_merged_within_ranges_of_time(disorder: int) -> None:
    """A row is read for 100 ticks. Merged runs span a short time, and runs stay few even if each spans all times."""
    with fast_directory() as made:
        entries: tuple[RunEntry, ...] = ()
        most = 0
        for epoch in range(300):
            scope = Scope(RunStore(Path(made), None), epoch, frozenset(range(BUCKETS)), BUCKETS)
            journal = Journal("j", entries, scope, time="t", by_time=True)
            times = pl.Series("t", [epoch, epoch + disorder // 2, epoch + disorder])
            journal.insert(hash_keys(["a", "b", "c"], False).with_columns(times))
            journal.empty(epoch - 100)
            journal.compact(epoch - 100, parts=8)
            entries = apply_changes(entries, journal.changes())
            most = max(most, len(entries))
            if disorder == 1:
                assert max((e.high or 0) - (e.low or 0) for e in entries) <= 13
                assert min(e.high or 0 for e in entries) >= epoch - 100
        assert most <= 8 + MAX_RUNS + 1
