"""The state benchmark: all sides have the same aggregates, and its findings."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

from bench import state
from bench.findings import Finding
from bench.held import Held, file_bytes
from bench.key_stream import BYTES, PAGE, KeyStream
from bench.state_sides import COUNT, SUM, Collections, Plain, Reduced, Side, State, Taken, measure
from penstock.errors import InternalError

SMALL = KeyStream(500, batch_events=100)
TAKEN = Taken(
    events=3_000_000,
    keys=1_000_000,
    insert_seconds=4.0,
    insert_cpu_seconds=3.0,
    flush_seconds=1.0,
    held=100_000_000,
    most=400_000_000,
    disk=50_000_000,
    kept=0,
    digest=7,
)
DICTIONARY = replace(TAKEN, insert_seconds=6.0, held=250_000_000, most=300_000_000, disk=0)


def sides(tmp_path: Path) -> dict[str, State]:
    return {
        "dictionary": Plain(),
        "reduced": Reduced(),
        "penstock": Collections(tmp_path / "one", tmp_path / "cache", emit_each_batch=False),
        "told": Collections(tmp_path / "two", tmp_path / "cache", emit_each_batch=True),
    }


def test_every_side_has_the_aggregates_of_the_stream(tmp_path: Path) -> None:
    right: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for batch in SMALL.batches():
        for page, size in batch.select(PAGE, BYTES).iter_rows():
            right[page] = right[page][0] + 1, right[page][1] + size
    for name, side in sides(tmp_path).items():
        for batch in SMALL.batches():
            side.insert(batch)
        found = {page: (n, b) for page, n, b in side.flush().select(PAGE, COUNT, SUM).iter_rows()}
        assert found == right, name


@pytest.mark.slow
def test_sides_are_measured_and_agree(tmp_path: Path) -> None:
    taken = {name: measure(side, SMALL, rest_seconds=0) for name, side in sides(tmp_path).items()}
    assert len({(one.digest, one.keys, one.events) for one in taken.values()}) == 1
    assert taken["dictionary"].disk == 0
    assert taken["penstock"].disk > 0
    assert all(one.insert_seconds > 0 and one.most >= one.held for one in taken.values())


@pytest.mark.slow
def test_a_side_runs_in_a_process_of_its_own() -> None:
    taken = [state.run_side(side, SMALL, rest_seconds=0) for side in ("penstock", "dictionary")]
    assert taken[0].digest == taken[1].digest
    assert taken[0].events == SMALL.events


def test_the_same_keys_come_in_every_process_and_batches_have_hardly_one_twice() -> None:
    stream = KeyStream(10_000, batch_events=1_000)
    batches = list(stream.batches())
    assert sum(batch.height for batch in batches) == stream.events == 30_000
    assert batches[3].equals(list(stream.batches())[3])
    assert min(batch[PAGE].n_unique() for batch in batches) > 900
    assert {batch.height for batch in KeyStream(100, batch_events=70).batches()} == {70, 20}


def found(ours: Taken, theirs: Taken = DICTIONARY) -> dict[tuple[str, str], Finding]:
    taken: dict[Side, list[Taken]] = {
        side: [ours if side.startswith("penstock") else theirs] for side in state.SIDES
    }
    return {(f.engine, f.metric): f for f in state.findings("state", taken)}


def test_penstock_is_held_against_the_plain_dictionary() -> None:
    by_metric = found(TAKEN)
    assert by_metric["penstock", "inserts"].value == 750_000
    assert by_metric["penstock", "memory and disk at rest"].value == 150
    inserts, rest = (
        by_metric["penstock/dictionary", metric] for metric in ("inserts", "memory and disk at rest")
    )
    assert (inserts.value, inserts.met) == (1.5, True)
    assert (rest.value, rest.met) == (0.6, True)
    assert (
        found(replace(TAKEN, held=300_000_000))["penstock/dictionary", "memory and disk at rest"].met is False
    )
    assert by_metric["penstock/dictionary", "memory at most"].met is None


def test_of_few_keys_nothing_is_asked() -> None:
    few, theirs = replace(TAKEN, keys=1_000), replace(DICTIONARY, keys=1_000)
    assert all(finding.met is None for finding in found(few, theirs).values())


def test_there_are_no_findings_when_sides_disagree() -> None:
    with pytest.raises(InternalError) as refused:
        found(replace(TAKEN, digest=8))
    assert refused.value.condition == "BENCH_DISAGREES"


def test_memory_is_what_the_process_and_the_folders_hold(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    with Held(tmp_path) as holding:
        (tmp_path / "below" / "file").write_bytes(bytes(1_000_000))
        # much more than a kernel takes from the rest of the process meanwhile
        block = bytearray(b"x") * 300_000_000
        assert holding.now() > 200_000_000 + 1_000_000
        del block
    assert holding.most > 201_000_000
    assert file_bytes(tmp_path) == 1_000_000
