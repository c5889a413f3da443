"""Jobs of a follower: it has the leader's commands, writes nothing, and continues with them once it is promoted."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import polars as pl
import pytest

from penstock.catalogue.program import Program
from penstock.errors import ExternalError, PenstockError, UserError
from penstock.query.stream import Stream
from penstock.state.directory import StateDirectory
from penstock.state.epoch_record import EpochRecord, Offset
from penstock.testing.inline import InlineEngine
from tests.catalogue import kit

SQL = "CREATE JOB pages AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page WINDOWING 5 SECONDS"
ERROR = UserError("JOB_BROKEN", "it does not go")


def build_program(state: Path, stream: Stream, *, begin: str = SQL, fold_after: int = 1_000) -> Program:
    return Program("t", state, streams={"clicks": stream}, begin=begin, fold_after=fold_after)


def start_follower(state: Path, stream: Stream, commands: int, **options: str) -> Program:
    follower = build_program(state, stream, **options)  # type: ignore[arg-type]
    follower.start(follows=True)
    follower.open(StateDirectory(state).read_existing_facts().id, lambda name, scan: None, commands)
    return follower


def entries(state: Path) -> list[str]:
    return sorted(path.name for path in (state / "commands").iterdir())


def test_a_follower_has_the_plan_of_each_epoch_and_opens_its_sinks(tmp_path: Path) -> None:
    stream, state = kit.clicks(kit.events(60)), tmp_path / "state"
    leader = build_program(state, stream)
    engine = InlineEngine(leader, state, epoch_units=20)
    assert engine.step() is not None
    first = leader.commands
    leader.execute(
        f"CREATE JOB big AS SELECT user FROM clicks WHERE bytes > 900 INTO jsonl('{tmp_path}/big')"
    )
    second = leader.commands
    leader.execute("DROP JOB big; PAUSE JOB pages")

    follower = start_follower(state, stream, first)
    assert follower.commands == first
    assert set(follower.epochs.plan(first).outputs) == {"pages"}
    follower.follow_commands(second)
    assert follower.commands == second, "not commands that no epoch has executed"
    (sink,) = follower.epochs.plan(second).outputs["big"].sinks
    assert sink.write(0, pl.DataFrame({"user": ["u1"]})), "it is open"
    follower.follow_commands(leader.commands)
    assert not follower.epochs.plan(leader.commands).outputs
    engine.close()
    follower.close()


def test_a_follower_writes_nothing_until_it_is_promoted(tmp_path: Path) -> None:
    stream, state = kit.clicks(kit.events(60)), tmp_path / "state"
    leader = build_program(state, stream)
    engine = InlineEngine(leader, state, epoch_units=20)
    assert engine.step() is not None
    commands, before = leader.commands, entries(state)
    other = SQL.replace("5 SECONDS", "7 SECONDS")
    follower = start_follower(state, stream, commands, begin=other)
    number = follower.catalogue.jobs["pages"].number
    follower.epochs.pause_jobs(commands, {number: ERROR})
    for _ in range(2):
        follower.epochs.record_failures(1, commands, {number: ERROR})
    follower.epochs.record_failures(2, commands, {number: ERROR})  # another epoch: counted from one
    follower.epochs.forget_before(commands, 0)
    follower.follow_commands(commands)
    assert entries(state) == before
    assert not (state / "failures").exists()
    engine.close()
    follower.lead(commands)
    assert follower.commands > commands
    assert "7 SECONDS" in follower.catalogue.jobs["pages"].select, (
        "a promoted follower applies its script as any leader does"
    )
    follower.epochs.record_failures(3, follower.commands, {follower.catalogue.jobs["pages"].number: ERROR})
    assert follower.catalogue.jobs["pages"].master.life == "failed"
    assert [path.name for path in (state / "failures").iterdir()] == ["000000000003.json"]
    follower.close()


def test_a_job_that_fails_on_the_follower_alone_ends_the_follower(tmp_path: Path) -> None:
    stream, state = kit.clicks(kit.events(60)), tmp_path / "state"
    with kit.running(state, stream, SQL, epoch_units=20) as (leader, engine):
        assert engine.step() is not None
        commands = leader.commands
        follower = start_follower(state, stream, commands)
        number = follower.catalogue.jobs["pages"].number
        follower.epochs.record_failures(1, commands, {number: ERROR})
        follower.epochs.record_failures(1, commands, {number: ERROR})
        with pytest.raises(ExternalError) as ended:
            follower.epochs.record_failures(1, commands, {number: ERROR})
        assert ended.value.condition == "FOLLOWS_OTHERWISE"
        assert leader.catalogue.jobs["pages"].master.life == "running"
        follower.close()


def test_a_follower_without_the_function_of_a_new_job_ends(tmp_path: Path) -> None:
    stream, state = kit.clicks(kit.events(60)), tmp_path / "state"
    loud = {"loud": lambda page: page.str.to_uppercase()}
    with kit.running(state, stream, SQL, functions=loud, epoch_units=20) as (leader, engine):
        assert engine.step() is not None
        first = leader.commands
        follower = start_follower(state, stream, first)
        leader.execute("CREATE JOB shouts AS SELECT loud(page) AS page FROM clicks")
        with pytest.raises(ExternalError) as ended:
            follower.follow_commands(leader.commands)
        assert ended.value.condition == "FOLLOWS_OTHERWISE"
        assert follower.commands == first
        assert leader.catalogue.jobs["shouts"].master.life == "running"
        follower.close()


def test_a_follower_that_is_behind_the_snapshot_of_commands_ends(tmp_path: Path) -> None:
    stream, state = kit.clicks(kit.events(400)), tmp_path / "state"
    leader = build_program(state, stream, fold_after=2)
    engine = InlineEngine(leader, state, epoch_units=20)
    assert engine.step() is not None
    commands = leader.commands
    slow = start_follower(state, stream, commands)
    for _ in range(5):
        leader.execute("PAUSE JOB pages")
        leader.execute("RESUME JOB pages")
        assert engine.step() is not None
    engine.remove_old_state(1)
    assert any(name.endswith(".snapshot") for name in entries(state))
    with pytest.raises(ExternalError) as gone:
        slow.follow_commands(leader.commands)
    assert gone.value.condition == "COMMANDS_GONE"
    with pytest.raises(ExternalError) as gone:
        start_follower(state, stream, commands)
    assert gone.value.condition == "COMMANDS_GONE"
    later = start_follower(state, stream, leader.commands)
    assert set(later.epochs.plan(leader.commands).outputs) == {"pages"}
    engine.close()


@pytest.mark.parametrize("how", ["paused", "failed"])
def test_a_job_that_does_not_run_is_opened_once_it_is_resumed(how: str, tmp_path: Path) -> None:
    """An unreachable sink ends neither a follower nor its promotion. It is opened when there are rows for it."""
    stream, state, place = kit.clicks(kit.events(60)), tmp_path / "state", tmp_path / "disk"
    leader = build_program(
        state, stream, begin=f"CREATE JOB big AS SELECT user FROM clicks INTO jsonl('{place}/big')"
    )
    engine = InlineEngine(leader, state, epoch_units=20)
    assert engine.step() is not None
    if how == "paused":
        leader.execute("PAUSE JOB big")
    else:
        leader.epochs.record_failures(1, leader.commands, {leader.catalogue.jobs["big"].number: ERROR})
    stopped = leader.commands
    place.rename(tmp_path / "away")
    place.write_text("no folder")
    first = start_follower(state, stream, stopped)
    assert leader.catalogue.jobs["big"].master.life == how
    leader.execute("RESUME JOB big")
    first.follow_commands(leader.commands)
    leader.execute("PAUSE JOB big")
    engine.close()
    third = start_follower(state, stream, leader.commands, begin="")
    third.lead(leader.commands)
    with pytest.raises(PenstockError):
        third.execute("RESUME JOB big")
    place.unlink()
    third.execute("RESUME JOB big")
    (sink,) = third.epochs.plan(third.commands).outputs["big"].sinks
    assert sink.write(0, pl.DataFrame({"user": ["u1"]}))
    for each in (first, third):
        each.close()


def test_a_promoted_follower_opens_the_sinks_of_epochs_that_it_has_still_to_execute(tmp_path: Path) -> None:
    stream, state = kit.clicks(kit.events(60)), tmp_path / "state"
    begin = f"CREATE JOB big AS SELECT user FROM clicks INTO sqlite('{tmp_path}/out.db', 'big')"
    leader = build_program(state, stream, begin=begin)
    engine = InlineEngine(leader, state, epoch_units=20)
    assert engine.step() is not None
    leader.execute("PAUSE JOB big")
    follower = start_follower(state, stream, leader.commands, begin="")
    leader.execute("RESUME JOB big")
    between = leader.commands
    leader.execute("PAUSE JOB big")
    engine.close()
    assert follower.catalogue.jobs["big"].master.life == "paused", (
        "it has read commands that none of its epochs has executed"
    )
    follower.lead(leader.commands)
    record = EpochRecord(Offset(), Offset(7, commands=between))
    emitted = follower.epochs.emit(7, record, {"big": pl.DataFrame({"user": ["new"]})}, {}, None, {})
    follower.deliveries.lead()
    follower.deliveries.add(7, emitted)
    follower.deliveries.finish(30.0)
    follower.close()
    with sqlite3.connect(tmp_path / "out.db") as database:
        assert database.execute("SELECT count(*) FROM big WHERE user = 'new'").fetchall() == [(1,)]
