"""A follower may execute an epoch of an app once it is recorded, of jobs once the leader has committed it."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock as ps
from penstock.catalogue.program import Program
from penstock.catalogue.program_of import program_of
from penstock.engine.role import Assignment, EngineRole, FollowedLeader
from penstock.state.epoch_record import EpochRecord, Offset
from penstock.state.shared_records import SharedRecords


class Lease:
    """A lease that is held."""

    generation = 2

    def check(self) -> None:
        pass


def app() -> Program:
    clicks = ps.stream("clicks", ps.generated(total=9, live=False), ps.combined_log(), time="time")
    return program_of(ps.app("few", ps.output("all", clicks.select("path"))), Path("nowhere"))


@pytest.mark.parametrize("what", ["jobs", "app", "app and jobs"])
def test_an_epoch_of_jobs_is_executed_when_its_failures_are_decided(what: str, tmp_path: Path) -> None:
    records = SharedRecords(tmp_path / "state" / "ha" / "agreed")
    records.take_over(1)
    for epoch in range(3):
        commands = 0 if what == "app" else epoch
        records.write(epoch, EpochRecord(Offset(epoch - 1), Offset(epoch, commands=commands)))
    assignment = Assignment(
        "e2", SharedRecords(records.path), tmp_path, leader=FollowedLeader(lambda: 1, dict)
    )
    program = Program("few", tmp_path / "state") if what == "jobs" else app()
    role = EngineRole(tmp_path / "state" / "ha" / "replicas" / "e2", assignment)
    role.claim(program, None)
    try:
        allowed = [epoch for epoch in range(4) if role.recorded_end(epoch) is not None]
        assert allowed == {"jobs": [0, 1], "app": [0, 1, 2], "app and jobs": [0, 1]}[what]
        assert role.applied_commands() == 0, "it has executed none yet"
        role.leader_committed = 2
        assert role.recorded_end(2) is not None
        role.leader_committed = -1
        role.promote(Lease(), program)
        role.is_leader = True
        assert role.recorded_end(2) is not None, "whoever leads repeats what is recorded"
        assert role.recorded_end(3) is None
        assert role.applied_commands() == (0 if what == "app" else 2)
    finally:
        role.state.release()
