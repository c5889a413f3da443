"""Engines that load different versions of a file are no replicas of each other."""

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

    def __init__(self, place: Path) -> None:
        self.place, self.generation = place, 1
        self.roles: list[EngineRole] = []

    def role(self, name: str, *, follows: bool) -> EngineRole:
        shared_records = SharedRecords(self.place / "state" / "ha" / "agreed")
        leader = FollowedLeader(lambda: self.generation, dict) if follows else None
        path = self.place / "state" / "ha" / "replicas" / name if follows else self.place / "state"
        assignment = Assignment(name, shared_records, self.place, leader=leader)
        self.roles.append(EngineRole(path, assignment))
        return self.roles[-1]

    def lead(self, name: str, what: Program) -> EngineRole:
        role = self.role(name, follows=False)
        role.claim(what, Lease(self.generation))
        return role

    def follow(self, name: str, what: Program) -> EngineRole:
        role = self.role(name, follows=True)
        role.claim(what, None)
        return role


@pytest.fixture
def replicas(tmp_path: Path) -> Replicas:
    made = Replicas(tmp_path)
    yield made  # type: ignore[misc]
    for role in made.roles:
        role.state.release()


@pytest.mark.parametrize("jobs", [False, True], ids=["app", "jobs"])
def test_a_follower_of_other_code_is_refused_and_told_which_function_differs(
    replicas: Replicas, jobs: bool, tmp_path: Path
) -> None:
    place = tmp_path / "state" if jobs else None
    replicas.lead("e1", program(ONE, jobs=place))
    with pytest.raises(UserError) as refused:
        replicas.follow("e2", program(OTHER, jobs=place))
    assert refused.value.condition == "REPLICA_RUNS_OTHER_CODE"
    assert refused.value.detail == "what differs: kept"


def test_a_follower_of_the_same_code_follows(replicas: Replicas) -> None:
    replicas.lead("e1", program(ONE))
    replicas.follow("e2", program(f"# from another host\n\n{ONE}"))


def test_a_follower_of_a_leader_that_said_nothing_follows(replicas: Replicas) -> None:
    replicas.lead("e1", program(ONE))
    replicas.generation = 2  # another leads, which has said nothing yet or is of a Penstock that does not
    replicas.follow("e2", program(OTHER))


def test_whoever_leads_may_bring_other_code_and_says_so(replicas: Replicas, tmp_path: Path) -> None:
    first = replicas.lead("e1", program(ONE))
    first.state.release()
    replicas.generation = 2
    replicas.lead("e3", program(OTHER))
    with pytest.raises(UserError):
        replicas.follow("e2", program(ONE))
    said = json.loads((tmp_path / "state" / "ha" / "agreed" / "code.json").read_bytes())
    assert said["generation"] == 2


def test_a_follower_looks_again_when_another_leads(replicas: Replicas) -> None:
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


def test_a_promoted_follower_says_what_it_runs(replicas: Replicas) -> None:
    same = program(ONE)
    replicas.lead("e1", same)
    follower = replicas.follow("e2", same)
    follower.promote(Lease(5), same)
    assert follower.state.shared_records is not None
    assert follower.state.shared_records.read_code(5) == same.code


def test_another_version_of_python_is_named_as_that() -> None:
    mine, theirs = {PYTHON: "cpython 3.11", "f": "1"}, {PYTHON: "cpython 3.12", "f": "2"}
    with pytest.raises(UserError) as refused:
        check_replica(mine, theirs)
    assert "by cpython 3.11 here, by cpython 3.12 there" in str(refused.value.detail)


def test_what_is_no_function_is_named_by_its_place() -> None:
    with pytest.raises(UserError) as refused:
        check_replica({"output a: step 1": "1"}, {"output a: step 1": "2"})
    assert refused.value.detail == "what differs: output a: step 1"


def test_what_the_leader_said_and_cannot_be_read_is_damage(tmp_path: Path) -> None:
    records = SharedRecords(tmp_path)
    records.take_over(1)
    (tmp_path / "code.json").write_text("{")
    with pytest.raises(InternalError) as damaged:
        records.read_code()
    assert damaged.value.condition == "STATE_DAMAGED"
