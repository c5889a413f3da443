"""Of two writers only the one of the higher generation writes, wherever the other was paused."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from penstock.errors import ExternalError, InternalError
from penstock.state import durable
from penstock.state.buckets import HASH
from penstock.state.directory import StateDirectory
from penstock.state.epoch_record import EpochRecord, Offset
from penstock.state.generation import FencedDirectory
from penstock.state.manifest import Manifest
from penstock.state.rollback import roll_back
from penstock.state.run_store import RunStore

RECORD = EpochRecord(Offset(), Offset(0))


def take_over(folder: Path, generation: int | None = None) -> FencedDirectory:
    fenced_directory = FencedDirectory(folder / "generations")
    fenced_directory.take_over(generation)
    return fenced_directory


def test_a_generation_is_higher_than_all_before_it(tmp_path: Path) -> None:
    assert [take_over(tmp_path).generation for _ in range(3)] == [1, 2, 3]
    assert take_over(tmp_path, 10).generation == 10
    assert take_over(tmp_path).generation == 11
    assert os.listdir(tmp_path / "generations") == ["000000000011"]


@pytest.mark.parametrize("generation", [3, 5])
def test_a_lower_generation_or_the_same_again_is_refused_and_leaves_nothing(
    tmp_path: Path, generation: int
) -> None:
    holder = take_over(tmp_path, 5)
    with pytest.raises(ExternalError) as refused:
        take_over(tmp_path, generation)
    assert refused.value.condition == "FENCED"
    assert holder.write_once(tmp_path / "file", b"mine")
    assert os.listdir(tmp_path / "generations") == ["000000000005"]


@pytest.mark.parametrize(
    ("once", "operation"),
    [(True, "open"), (True, "fsync"), (True, "link"), (False, "open"), (False, "fsync"), (False, "replace")],
)
def test_a_writer_paused_before_any_system_call_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str, once: bool
) -> None:
    paused, target = take_over(tmp_path), tmp_path / "output" / "file"
    system_call = open if operation == "open" else getattr(os, operation)

    def pause(*arguments: Any, **options: Any) -> Any:
        monkeypatch.undo()
        take_over(tmp_path)
        return system_call(*arguments, **options)

    monkeypatch.setattr(durable if operation == "open" else os, operation, pause, raising=False)
    with pytest.raises(ExternalError) as refused:
        paused.write_once(target, b"late") if once else paused.write_whole(target, b"late")
    assert refused.value.condition == "FENCED"
    assert "generation 2; this one is 1" in str(refused.value)
    assert not target.exists()


def test_a_writer_killed_while_it_fences_others_leaves_a_directory_that_can_be_taken_over(
    tmp_path: Path,
) -> None:
    first = take_over(tmp_path)
    (tmp_path / "generations" / ".gone-1-dead").mkdir()
    (tmp_path / "generations" / ".gone-1-dead" / "draft").write_text("half")
    (
        tmp_path / "generations" / "000000000002"
    ).mkdir()  # the writer was killed before it looked for a higher one
    assert take_over(tmp_path).generation == 3
    assert os.listdir(tmp_path / "generations") == ["000000000003"]
    with pytest.raises(ExternalError):
        first.write_whole(tmp_path / "file", b"late")


# -- a state directory -----------------------------------------------------------------------------------


def claim(folder: Path, generation: int | None = None) -> StateDirectory:
    directory = StateDirectory(folder)
    directory.claim("query", "a summary", generation)
    return directory


def test_an_engine_with_a_lease_takes_the_directory_from_one_that_holds_its_lock(tmp_path: Path) -> None:
    old = claim(tmp_path / "state")
    new = claim(tmp_path / "state", 7)
    for attempt in (
        lambda: old.records.write(0, RECORD),
        lambda: old.manifests.commit(Manifest(epoch=0)),
        lambda: old.update_facts(buckets=7),
    ):
        with pytest.raises(ExternalError) as refused:
            attempt()
        assert refused.value.condition == "FENCED"
        assert "generation 7; this one is 1" in str(refused.value)
    assert new.records.write(0, RECORD) == replace(RECORD, generation=7)
    new.manifests.commit(Manifest(epoch=0))
    assert new.manifests.latest().generation == 7


def test_removed_records_and_manifests_are_not_written_again(tmp_path: Path) -> None:
    old = claim(tmp_path / "state")
    new = claim(tmp_path / "state", 2)
    for epoch in range(5):
        new.records.write(epoch, RECORD)
        new.manifests.commit(Manifest(epoch=epoch))
    new.remove_old_state(1)
    for attempt in (lambda: old.records.write(0, RECORD), lambda: old.manifests.commit(Manifest(epoch=0))):
        with pytest.raises(ExternalError) as refused:
            attempt()
        assert refused.value.condition == "FENCED"
    assert new.manifests.epochs() == [4]


def test_a_second_manifest_of_one_generation_is_a_defect(tmp_path: Path) -> None:
    directory = claim(tmp_path / "state")
    directory.manifests.commit(Manifest(epoch=0))
    directory.manifests.commit(Manifest(epoch=0))  # a repetition after a failure, with the same content
    with pytest.raises(InternalError) as refused:
        directory.manifests.commit(Manifest(epoch=0, counters={"events": 1}))
    assert refused.value.condition == "EPOCH_COMMITTED_TWICE"


def test_a_rollback_fences_an_engine_without_a_lock(tmp_path: Path) -> None:
    paused = claim(tmp_path / "state")
    running = claim(tmp_path / "state", 2)  # without the lock, which the first one holds
    paused.release()
    for epoch in range(3):
        running.records.write(epoch, RECORD)
        running.manifests.commit(Manifest(epoch=epoch))
    operator = StateDirectory(tmp_path / "state")
    with operator.locked():
        assert roll_back(operator, 1) == (1, [2])
    with pytest.raises(ExternalError) as refused:
        running.manifests.commit(Manifest(epoch=2))
    assert refused.value.condition == "FENCED"


def test_a_directory_that_was_removed_is_reported_as_such_and_is_not_created_again(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path / "state")
    state.claim("query", "summary", 2)
    runs = RunStore(state.runs, None)
    os.rename(tmp_path / "state", tmp_path / "away")
    frame = pl.DataFrame({HASH: pl.Series([1], dtype=pl.UInt64)})
    for write in (
        lambda: state.records.write(0, RECORD),
        lambda: state.manifests.commit(Manifest(0)),
        lambda: runs.write(frame, collection="op0", epoch=0, through=0, buckets=64, time=None),
    ):
        with pytest.raises(ExternalError) as refused:
            write()
        assert refused.value.condition == "STATE_GONE"
        assert "no longer there" in refused.value.primary
    assert os.listdir(tmp_path) == ["away"]
    state.release()
