"""Units of jobs that come and go: killed and switched while commands are said; no engine but the leader decides.

Which commands an epoch takes in stands in the unit's book. So what a job that was created, altered and paused meanwhile
has to tell in each epoch is known: the rows of `everything` in that epoch, or some, or none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from penstock.catalogue.command import Reply
from penstock.engine.job_client import JobClient
from penstock.errors import ExternalError
from penstock.ha.schemes import Scheme
from tests.ha.test_unit import stands
from tests.ha.unit_kit import JOBS, Kit

pytestmark = [pytest.mark.kill, pytest.mark.timeout(240)]

LATE = "SELECT time, user, page, amount FROM events"
Row = dict[str, Any]
Make = Callable[..., "JobsKit"]


class JobsKit(Kit):
    """A unit of jobs; what is said to it is kept, with the number that it was given."""

    def __init__(self, folder: Path, scheme: Scheme, **settings: Any) -> None:
        super().__init__(folder, scheme, app=JOBS, count=2_000, pause_seconds=0.4, **settings)
        self.extra = folder / "extra"
        #: by number: whether the row is among those to be told from then on
        self.holds: list[tuple[int, Callable[[Row], bool]]] = []

    def said(self, sql: str) -> list[Reply]:
        """What whoever leads answers to a statement, as soon as somebody does."""

        def answers() -> list[Reply] | None:
            try:
                with JobClient(self.root) as client:
                    return client.execute(sql)
            except (ExternalError, OSError):  # nobody leads, or not any more
                return None

        found: list[Reply] = self.until(f"{sql} is answered", answers)
        return found

    def say(self, sql: str) -> int:
        """Have a statement carried out; hands its number."""
        number = self.said(sql)[0].command
        assert number is not None
        return number

    def tells(self, sql: str, row: Callable[[Row], bool]) -> None:
        """Say something about the job that came later; from then on it tells these rows."""
        self.holds.append((self.say(sql), row))

    def replaced(self) -> str:
        """Kill the primary; hands who leads then."""
        first = self.leader()
        assert first is not None
        self.kill(first)
        return str(self.until("another leads", lambda: self.leader() not in (None, first) and self.leader()))

    def life(self, job: str) -> str:
        return str(next(row["life"] for row in self.said("SHOW JOBS")[0].rows if row["job"] == job))

    def check(self, job: str) -> None:
        """The job that came later has told in each epoch what it was to tell by the commands that this took in."""
        all_rows, found = told(self.out / "everything"), told(self.extra / job)
        expected: dict[int, list[Row]] = {}
        for epoch, rows in all_rows.items():
            record = self.unit.shared_records.read(epoch)
            if record is None:  # long before the job
                continue
            kept = [row for number, row in self.holds if number <= record.commands]
            if kept and (some := [row for row in rows if kept[-1](row)]):
                expected[epoch] = some
        assert {epoch: ordered(rows) for epoch, rows in found.items()} == {
            epoch: ordered(rows) for epoch, rows in expected.items()
        }
        assert expected


def told(folder: Path) -> Mapping[int, list[Row]]:
    """What a job told, by epoch."""
    return {
        int(file.stem.rpartition("-")[2]): [json.loads(line) for line in file.read_text().splitlines()]
        for file in folder.glob("epoch-*.jsonl")
    }


def ordered(rows: list[Row]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


def everything(row: Row) -> bool:
    return True


def nothing(row: Row) -> bool:
    return False


def cheap(row: Row) -> bool:
    return bool(row["amount"] < 1)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    kits: list[JobsKit] = []

    def made(scheme: Scheme, **settings: Any) -> JobsKit:
        kits.append(JobsKit(tmp_path / "unit", scheme, **settings))
        return kits[-1]

    yield made
    for kit in kits:
        kit.close()


@pytest.mark.parametrize(("scheme", "every"), [(Scheme.active_standby, 1), (Scheme.active_replication, 5)])
def test_a_follower_of_jobs_overtakes_and_nothing_is_lost_or_repeated(
    scheme: Scheme, every: int, make: Make
) -> None:
    """Twice, so that one follows who has led; one job may lose events, and loses none, also where few manifests are
    durable."""
    kit = make(scheme, checkpoint_every=every)
    kit.feeder.go()
    kit.until("the unit stands", lambda: stands(kit, scheme))
    kit.tells(f"CREATE JOB late AS {LATE} INTO jsonl('{kit.extra}/late')", everything)
    kit.flowing()
    first, leads = kit.leader(), kit.replaced()
    kit.tells("ALTER JOB late SET WHERE amount < 1", cheap)
    kit.flowing()
    kit.until("there is a second one again", lambda: stands(kit, scheme))
    kit.tells("PAUSE JOB late", nothing)
    kit.flowing()
    assert kit.replaced() not in (first, leads)
    assert kit.life("late") == "paused"
    kit.tells("RESUME JOB late", cheap)
    kit.flowing()
    kit.finish()
    kit.check("late")
    assert "replicas" in kit.record().directory
    assert [one.outcome for one in kit.record().recoveries] == [{}, {}], "nothing was repeated or lost"
    assert all(one.first_result_after is not None for one in kit.record().recoveries)


def test_the_scheme_of_jobs_changes_while_commands_are_said(make: Make) -> None:
    """Through all six; twice the primary is killed after a change. Where its secondary runs no epochs, a job that may
    lose events would."""
    kit = make(Scheme.passive_replication)
    kit.feeder.go()
    kit.until("it leads", kit.leader)
    kit.say("ALTER JOB sessions SET RECOVERY precise")
    kit.tells(f"CREATE JOB late AS {LATE} INTO jsonl('{kit.extra}/late')", everything)
    for scheme in (
        Scheme.active_replication,
        Scheme.passive_hot,
        Scheme.active_standby,
        Scheme.deployed,
        Scheme.passive_cold,
    ):
        kit.unit.switch_scheme(scheme)
        kit.until(f"{scheme} stands", lambda scheme=scheme: stands(kit, scheme))  # type: ignore[misc]
        kit.tells("ALTER JOB late SET WHERE amount < 1", cheap)
        kit.flowing(2)
        if scheme in (Scheme.active_replication, Scheme.passive_cold):
            kit.replaced()
        kit.tells("ALTER JOB late SET WHERE TRUE", everything)
    kit.unit.switch_scheme(Scheme.passive_replication)
    kit.until("it is alone", lambda: stands(kit, Scheme.passive_replication))
    kit.tells("DROP JOB late", nothing)
    kit.flowing()
    kit.finish()
    kit.check("late")
    assert kit.record().generation == 3
    assert len(kit.record().switches) == 6


def test_a_job_that_fails_with_the_leader_alone_has_failed(make: Make) -> None:
    kit = make(Scheme.active_replication)
    kit.feeder.go()
    kit.until("the unit stands", lambda: stands(kit, Scheme.active_replication))
    risky = LATE.replace("user,", "risky(user) AS user,")
    kit.tells(f"CREATE JOB late AS {risky} INTO jsonl('{kit.extra}/late')", everything)
    kit.flowing()
    mark(kit, kit.leader())
    kit.until("it has failed", lambda: kit.life("late") == "failed")
    kit.flowing()
    kit.replaced()
    assert kit.life("late") == "failed"
    (failed_in,) = (int(file.stem) for file in (kit.root / "failures").glob("*.json"))
    assert failed_in not in told(kit.extra / "late"), "no engine tells what another left out"
    kit.flowing()
    begin = max(told(kit.extra / "late"))
    assert begin < failed_in
    resumed = kit.say("RESUME JOB late")
    kit.flowing()
    kit.finish()
    rows, late = told(kit.out / "everything"), told(kit.extra / "late")
    records = {epoch: kit.unit.shared_records.read(epoch) for epoch in rows}
    taken = {epoch: 0 if record is None else record.commands for epoch, record in records.items()}
    created = kit.holds[0][0]
    wanted = {e for e in rows if created <= taken[e] and (e < failed_in or taken[e] >= resumed)}
    assert late.keys() == wanted
    assert all(ordered(late[epoch]) == ordered(rows[epoch]) for epoch in wanted)


def test_a_follower_in_which_a_job_fails_alone_is_replaced(make: Make) -> None:
    kit = make(Scheme.active_standby)
    kit.feeder.go()
    kit.until("the unit stands", lambda: stands(kit, Scheme.active_standby))
    risky = LATE.replace("user,", "risky(user) AS user,")
    kit.tells(f"CREATE JOB late AS {risky} INTO jsonl('{kit.extra}/late')", everything)
    kit.flowing()
    second = kit.until("one follows", lambda: kit.secondary("following"))
    mark(kit, second)
    kit.until("it has ended", lambda: second not in kit.members())
    kit.until("it has said why", lambda: "[FOLLOWS_OTHERWISE]" in kit.unit.log(second).read_text())
    assert not kit.record().errors, "that says nothing of those that lead"
    assert kit.life("late") == "running"
    kit.until("there is another", lambda: kit.secondary("following"))
    kit.flowing()
    kit.replaced()
    kit.flowing()
    kit.finish()
    kit.check("late")


def test_a_follower_that_cannot_build_a_job_at_its_start_ends_alone(make: Make) -> None:
    kit = make(Scheme.active_standby)
    kit.feeder.go()
    kit.until("the unit stands", lambda: stands(kit, Scheme.active_standby))
    risky = LATE.replace("user,", "risky(user) AS user,")
    kit.tells(f"CREATE JOB late AS {risky} INTO jsonl('{kit.extra}/late')", everything)
    kit.flowing()
    first, leader = kit.secondary("following"), kit.leader()
    assert first
    assert leader
    mark(kit, leader, others=True)
    kit.kill(first)
    second = kit.until(
        "another follows", lambda: kit.secondary("following") not in (None, first) and kit.secondary()
    )
    kit.until("it has ended", lambda: second not in kit.members())
    kit.until("it has said why", lambda: "[FOLLOWS_OTHERWISE]" in kit.unit.log(second).read_text())
    (kit.folder / "fails").unlink()
    kit.until("there is another", lambda: kit.secondary("following") not in (None, second))
    assert not kit.record().errors, "that says nothing of those that lead"
    kit.flowing()
    kit.finish()
    kit.check("late")


def mark(kit: JobsKit, name: str | None, *, others: bool = False) -> None:
    """Have the job's function raise in an engine's process, or in all other processes."""
    draft = kit.folder / "fails.tmp"
    draft.write_text(("not " if others else "") + str(kit.members()[name or ""].pid))
    draft.rename(kit.folder / "fails")
