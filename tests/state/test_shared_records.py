"""The records of a unit: one record an epoch, by the highest generation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.errors import ExternalError, UserError
from penstock.ha.seed import seed_state
from penstock.state.directory import StateDirectory
from penstock.state.epoch_record import EpochRecord, Offset
from penstock.state.manifest import Manifest
from penstock.state.shared_records import RECORDS_KEPT, SharedRecords


def record_of(epoch: int) -> EpochRecord:
    return EpochRecord(Offset(epoch - 1), Offset(epoch))


def test_an_epoch_has_one_record_for_all_engines(tmp_path: Path) -> None:
    leader, follower = SharedRecords(tmp_path / "records"), SharedRecords(tmp_path / "records")
    leader.take_over(3)
    written = leader.write(0, record_of(0))
    assert written == replace(record_of(0), generation=3)
    assert follower.read(0) == written
    assert follower.write(0, EpochRecord(Offset(), Offset(0, commands=1))) == written
    assert follower.read(1) is None


def test_a_reader_cannot_write_records(tmp_path: Path) -> None:
    with pytest.raises(ExternalError) as refused:
        SharedRecords(tmp_path / "records").write(0, record_of(0))
    assert refused.value.condition == "FENCED"


def test_a_lower_generation_cannot_add_records(tmp_path: Path) -> None:
    old, new = SharedRecords(tmp_path / "records"), SharedRecords(tmp_path / "records")
    old.take_over(1)
    old.write(0, record_of(0))
    new.take_over(2)
    with pytest.raises(ExternalError) as refused:
        old.write(1, record_of(1))
    assert refused.value.condition == "FENCED"
    new.write(1, record_of(1))
    with pytest.raises(ExternalError):
        old.write(1, record_of(1))
    assert new.write(0, record_of(0)).generation == 1, "an existing record is returned"


def test_old_records_are_deleted_unless_a_slow_replica_may_need_them(tmp_path: Path) -> None:
    records = SharedRecords(tmp_path / "records")
    records.take_over(1)
    for epoch in (0, 5, RECORDS_KEPT, RECORDS_KEPT + 7):
        records.write(epoch, record_of(epoch))
    records.remove_old(RECORDS_KEPT + 5)
    assert records.epochs() == [5, RECORDS_KEPT, RECORDS_KEPT + 7]


def test_the_directories_of_a_unit_read_their_records_from_the_shared_ones(tmp_path: Path) -> None:
    records = SharedRecords(tmp_path / "state" / "ha" / "agreed")
    records.take_over(1)
    leader = StateDirectory(tmp_path / "state", records)
    leader.claim("query", "summary", 1)
    assert leader.records.write(0, record_of(0)).generation == 1
    leader.manifests.commit(Manifest(epoch=0))
    leader.release()
    assert seed_state(tmp_path / "replica", leader) == 0
    follower = StateDirectory(tmp_path / "replica", SharedRecords(records.path))
    follower.claim("query", "summary")
    assert follower.read_existing_facts() == leader.read_existing_facts()
    assert follower.manifests.latest().epoch == 0
    records.write(1, record_of(1))
    assert follower.records.read_end(1) == Offset(1)
    assert follower.records.write(1, EpochRecord(Offset(), Offset(1, commands=1))).end == Offset(1)
    with pytest.raises(ExternalError):
        follower.records.write(2, record_of(2))
    follower.release()


def test_all_engines_of_a_unit_skip_the_same_spans(tmp_path: Path) -> None:
    shared = SharedRecords(tmp_path / "records")
    shared.take_over(1)
    shared.write(0, EpochRecord(Offset(), Offset(0, at={"events": {"p0": 5, "p1": 7}})))
    leader, follower = (StateDirectory(tmp_path / name, shared) for name in ("leader", "follower"))
    leader.records.skip_spans(0, [("events", "p1")])
    record = follower.records.read(0)
    assert record is not None
    assert [(stream, span.partition) for stream, span in record.spans] == [("events", "p0")]
    assert [(stream, span.end) for stream, span in record.skipped_spans] == [("events", 7)]
    shared.write(RECORDS_KEPT + 1, record_of(RECORDS_KEPT + 1))
    shared.remove_old(RECORDS_KEPT + 1)
    assert [path.name for path in shared.folder.iterdir()] == [f"{RECORDS_KEPT + 1:012d}.json"]


def test_a_single_engine_is_refused_the_directory_of_a_unit(tmp_path: Path) -> None:
    SharedRecords(tmp_path / "state" / "ha" / "agreed").take_over(1)
    with pytest.raises(UserError) as refused:
        StateDirectory(tmp_path / "state").claim("query", "summary")
    assert refused.value.condition == "STATE_OF_A_UNIT"
