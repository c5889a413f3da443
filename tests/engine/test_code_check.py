"""Engines that load different versions of a file do not follow each other."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

import penstock as ps
from penstock.catalogue.program import Program
from penstock.catalogue.program_of import program_of
from penstock.engine.code_check import check_replica
from penstock.engine.role import Assignment, EngineRole, FollowedLeader
from penstock.errors import InternalError, UserError
from penstock.query.describe_code import PYTHON
from penstock.state.epoch_record import EpochRecord, Offset
from penstock.state.shared_records import SharedRecords

ONE = "def kept(frame):\n    return frame.filter(pl.col('status') == 200)\n"
OTHER = "def kept(frame):\n    return frame.filter(pl.col('status') == 404)\n"


class Lease:
    def __init__(self, generation: int) -> None:
        self.generation = generation

    def check(self) -> None:
        pass


def program(text: str, *, jobs: Path | None = None) -> Program:
    """An app, or jobs, with a function of this text."""
    names: dict[str, object] = {"pl": pl}
    exec(compile(text, "/home/somebody/app.py", "exec"), names)
    if jobs is not None:
        functions = {"kept": lambda status: status.map_batches(names["kept"], return_dtype=pl.Int64)}
        return Program("few", jobs, functions=functions)
    clicks = ps.stream("clicks", ps.generated(total=9, live=False), ps.combined_log(), time="time")
    rows = clicks.map_batches(names["kept"])  # type: ignore[arg-type]
    return program_of(ps.app("few", ps.output("all", rows.select("path"))), Path("nowhere"))


class Replicas:
    """Roles of engines of one unit."""

    def __init__(self, root: Path) -> None:
        self.root, self.generation = root, 1
        self.roles: list[EngineRole] = []

    def role(self, name: str, *, follows: bool) -> EngineRole:
        shared_records = SharedRecords(self.root / "state" / "ha" / "agreed")
        leader = FollowedLeader(lambda: self.generation, dict) if follows else None
        path = self.root / "state" / "ha" / "replicas" / name if follows else self.root / "state"
        assignment = Assignment(name, shared_records, self.root, leader=leader)
        self.roles.append(EngineRole(path, assignment))
        return self.roles[-1]

    def lead(self, name: str, code: Program) -> EngineRole:
        role = self.role(name, follows=False)
        role.claim(code, Lease(self.generation))
        return role

    def follow(self, name: str, code: Program) -> EngineRole:
        role = self.role(name, follows=True)
        role.claim(code, None)
        return role


@pytest.fixture
def replicas(tmp_path: Path) -> Replicas:
    made = Replicas(tmp_path)
    yield made  # type: ignore[misc]
    for role in made.roles:
        role.state.release()


@pytest.mark.parametrize("jobs", [False, True], ids=["app", "jobs"])
def test_a_follower_with_other_code_is_refused_with_the_function_that_differs(
    replicas: Replicas, jobs: bool, tmp_path: Path
) -> None:
    root = tmp_path / "state" if jobs else None
    replicas.lead("e1", program(ONE, jobs=root))
    with pytest.raises(UserError) as refused:
        replicas.follow("e2", program(OTHER, jobs=root))
    assert refused.value.condition == "REPLICA_RUNS_OTHER_CODE"
    assert refused.value.detail == "what differs: kept"


def test_a_follower_with_the_same_code_follows(replicas: Replicas) -> None:
    replicas.lead("e1", program(ONE))
    replicas.follow("e2", program(f"# from another host\n\n{ONE}"))


def test_without_a_record_of_the_leaders_code_any_follower_follows(replicas: Replicas) -> None:
    replicas.lead("e1", program(ONE))
    replicas.generation = (
        2  # another engine leads, which has recorded no code yet, or is of an older Penstock
    )
    replicas.follow("e2", program(OTHER))


def test_a_new_leader_may_have_other_code_and_records_it(replicas: Replicas, tmp_path: Path) -> None:
    first = replicas.lead("e1", program(ONE))
    first.state.release()
    replicas.generation = 2
    replicas.lead("e3", program(OTHER))
    with pytest.raises(UserError):
        replicas.follow("e2", program(ONE))
    recorded = json.loads((tmp_path / "state" / "ha" / "agreed" / "code.json").read_bytes())
    assert recorded["generation"] == 2


def test_a_follower_checks_the_code_of_a_new_leader(replicas: Replicas) -> None:
    records = replicas.lead("e1", program(ONE)).state.shared_records
    assert records is not None
    own = program(ONE)
    follower = replicas.follow("e2", own)
    follower.logs = object()  # type: ignore[assignment]
    later = SharedRecords(records.path)
    later.take_over(2)
    later.write_code(program(OTHER).code)
    later.write(0, EpochRecord(Offset(), Offset(0)))
    with pytest.raises(UserError) as refused:
        follower.follow(own, 0, 0)
    assert refused.value.condition == "REPLICA_RUNS_OTHER_CODE"


def test_a_promoted_follower_records_its_code(replicas: Replicas) -> None:
    same = program(ONE)
    replicas.lead("e1", same)
    follower = replicas.follow("e2", same)
    follower.promote(Lease(5), same)
    assert follower.state.shared_records is not None
    assert follower.state.shared_records.read_code(5) == same.code


def test_another_version_of_python_is_reported_as_such() -> None:
    mine, theirs = {PYTHON: "cpython 3.11", "f": "1"}, {PYTHON: "cpython 3.12", "f": "2"}
    with pytest.raises(UserError) as refused:
        check_replica(mine, theirs)
    assert "by cpython 3.11 here, by cpython 3.12 there" in str(refused.value.detail)


def test_a_difference_outside_functions_is_reported_by_its_place() -> None:
    with pytest.raises(UserError) as refused:
        check_replica({"output a: step 1": "1"}, {"output a: step 1": "2"})
    assert refused.value.detail == "what differs: output a: step 1"


def test_an_unreadable_record_of_the_leaders_code_is_damage(tmp_path: Path) -> None:
    records = SharedRecords(tmp_path)
    records.take_over(1)
    (tmp_path / "code.json").write_text("{")
    with pytest.raises(InternalError) as damaged:
        records.read_code()
    assert damaged.value.condition == "STATE_DAMAGED"
