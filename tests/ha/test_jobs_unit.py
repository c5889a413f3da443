"""Units of managed jobs: killed and switched while commands arrive; only the leader decides.

The epoch record says which commands an epoch applies. So the output of a job that is created, altered and paused
meanwhile is known for each epoch: the rows of `everything` in that epoch, or some, or none.
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
from tests.ha.test_unit import is_complete
from tests.ha.unit_kit import JOBS, Kit

pytestmark = [pytest.mark.kill, pytest.mark.timeout(240)]

ADDED = "SELECT time, user, page, amount FROM events"
Row = dict[str, Any]
Make = Callable[..., "JobsKit"]


class JobsKit(Kit):
    """A unit of jobs; remembers each command with its number."""

    def __init__(self, folder: Path, scheme: Scheme, **settings: Any) -> None:
        super().__init__(folder, scheme, app=JOBS, count=2_000, pause_seconds=0.4, **settings)
        self.extra = folder / "extra"
        #: by command: which rows the job emits from then on
        self.filters: list[tuple[int, Callable[[Row], bool]]] = []

    def execute(self, sql: str) -> list[Reply]:
        """Execute a statement on the leader, as soon as there is one; return its replies."""

        def response() -> list[Reply] | None:
            try:
                with JobClient(self.root) as client:
                    return client.execute(sql)
            except (ExternalError, OSError):  # nobody leads, or not any more
                return None

        found: list[Reply] = self.wait_until(f"{sql} is executed", response)
        return found

    def execute_command(self, sql: str) -> int:
        """Execute a statement; return the number of its command."""
        number = self.execute(sql)[0].command
        assert number is not None
        return number

    def change_job(self, sql: str, row: Callable[[Row], bool]) -> None:
        """Execute a statement about the late job; from then on it emits these rows."""
        self.filters.append((self.execute_command(sql), row))

    def job_state(self, job: str) -> str:
        return str(next(row["life"] for row in self.execute("SHOW JOBS")[0].rows if row["job"] == job))

    def check_output(self, job: str) -> None:
        """Check that the late job emitted in each epoch what the commands applied by then ask for."""
        source, found = rows_by_epoch(self.out / "everything"), rows_by_epoch(self.extra / job)
        expected: dict[int, list[Row]] = {}
        for epoch, rows in source.items():
            record = self.unit.shared_records.read(epoch)
            if record is None:  # long before the job
                continue
            filters = [row for number, row in self.filters if number <= record.commands]
            if filters and (some := [row for row in rows if filters[-1](row)]):
                expected[epoch] = some
        assert {epoch: sort_rows(rows) for epoch, rows in found.items()} == {
            epoch: sort_rows(rows) for epoch, rows in expected.items()
        }
        assert expected


def rows_by_epoch(folder: Path) -> Mapping[int, list[Row]]:
    """The rows that a job emitted, by epoch."""
    return {
        int(file.stem.rpartition("-")[2]): [json.loads(line) for line in file.read_text().splitlines()]
        for file in folder.glob("epoch-*.jsonl")
    }


def sort_rows(rows: list[Row]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


def emits_all(row: Row) -> bool:
    return True


def emits_none(row: Row) -> bool:
    return False


def emits_cheap(row: Row) -> bool:
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
def test_a_follower_with_jobs_takes_over_and_nothing_is_lost_or_repeated(
    scheme: Scheme, every: int, make: Make
) -> None:
    """Twice, so that a replacement follows a promoted follower; a job with `gap` loses nothing either, also where few
    manifests are durable."""
    kit = make(scheme, checkpoint_every=every)
    kit.feeder.start()
    kit.wait_until("the unit is complete", lambda: is_complete(kit, scheme))
    kit.change_job(f"CREATE JOB late AS {ADDED} INTO jsonl('{kit.extra}/late')", emits_all)
    kit.wait_for_epochs()
    first, leads = kit.leader(), kit.replace_leader()
    kit.change_job("ALTER JOB late SET WHERE amount < 1", emits_cheap)
    kit.wait_for_epochs()
    kit.wait_until("there is a follower again", lambda: is_complete(kit, scheme))
    kit.change_job("PAUSE JOB late", emits_none)
    kit.wait_for_epochs()
    assert kit.replace_leader() not in (first, leads)
    assert kit.job_state("late") == "paused"
    kit.change_job("RESUME JOB late", emits_cheap)
    kit.wait_for_epochs()
    kit.finish()
    kit.check_output("late")
    assert "replicas" in kit.record().directory
    assert [one.outcome for one in kit.record().recoveries] == [{}, {}], "nothing was repeated or lost"
    assert all(one.first_result_after is not None for one in kit.record().recoveries)


def test_the_scheme_of_a_unit_with_jobs_changes_while_commands_arrive(make: Make) -> None:
    """Through all six; twice the leader is killed after a change. `sessions` is made precise, since `gap` would lose
    events where the follower runs no epochs."""
    kit = make(Scheme.passive_replication)
    kit.feeder.start()
    kit.wait_until("an engine leads", kit.leader)
    kit.execute_command("ALTER JOB sessions SET RECOVERY precise")
    kit.change_job(f"CREATE JOB late AS {ADDED} INTO jsonl('{kit.extra}/late')", emits_all)
    for scheme in (
        Scheme.active_replication,
        Scheme.passive_hot,
        Scheme.active_standby,
        Scheme.deployed,
        Scheme.passive_cold,
    ):
        kit.unit.switch_scheme(scheme)
        kit.wait_until(f"{scheme} is complete", lambda scheme=scheme: is_complete(kit, scheme))  # type: ignore[misc]
        kit.change_job("ALTER JOB late SET WHERE amount < 1", emits_cheap)
        kit.wait_for_epochs(2)
        if scheme in (Scheme.active_replication, Scheme.passive_cold):
            kit.replace_leader()
        kit.change_job("ALTER JOB late SET WHERE TRUE", emits_all)
    kit.unit.switch_scheme(Scheme.passive_replication)
    kit.wait_until("the leader is alone", lambda: is_complete(kit, Scheme.passive_replication))
    kit.change_job("DROP JOB late", emits_none)
    kit.wait_for_epochs()
    kit.finish()
    kit.check_output("late")
    assert kit.record().generation == 3
    assert len(kit.record().switches) == 6


def test_a_job_that_fails_with_the_leader_alone_has_failed(make: Make) -> None:
    kit = start_with_risky_job(make, Scheme.active_replication)
    raise_in(kit, kit.leader())
    kit.wait_until("it has failed", lambda: kit.job_state("late") == "failed")
    kit.wait_for_epochs()
    kit.replace_leader()
    assert kit.job_state("late") == "failed"
    (failed_epoch,) = (int(file.stem) for file in (kit.root / "failures").glob("*.json"))
    assert failed_epoch not in rows_by_epoch(kit.extra / "late"), "no engine emits what another left out"
    kit.wait_for_epochs()
    last_before = max(rows_by_epoch(kit.extra / "late"))
    assert last_before < failed_epoch
    resumed = kit.execute_command("RESUME JOB late")
    kit.wait_for_epochs()
    kit.finish()
    rows, late = rows_by_epoch(kit.out / "everything"), rows_by_epoch(kit.extra / "late")
    records = {epoch: kit.unit.shared_records.read(epoch) for epoch in rows}
    applied = {epoch: 0 if record is None else record.commands for epoch, record in records.items()}
    created = kit.filters[0][0]
    expected = {e for e in rows if created <= applied[e] and (e < failed_epoch or applied[e] >= resumed)}
    assert late.keys() == expected
    assert all(sort_rows(late[epoch]) == sort_rows(rows[epoch]) for epoch in expected)


def test_a_follower_in_which_a_job_fails_alone_is_replaced(make: Make) -> None:
    kit = start_with_risky_job(make, Scheme.active_standby)
    follower = kit.wait_until("there is a follower", lambda: kit.follower("following"))
    raise_in(kit, follower)
    kit.wait_until("it has ended", lambda: follower not in kit.engines())
    kit.wait_until("its log says why", lambda: "[FOLLOWS_OTHERWISE]" in kit.unit.log(follower).read_text())
    assert not kit.record().errors, "that is no error of the leader"
    assert kit.job_state("late") == "running"
    kit.wait_until("there is another follower", lambda: kit.follower("following"))
    kit.wait_for_epochs()
    kit.replace_leader()
    kit.wait_for_epochs()
    kit.finish()
    kit.check_output("late")


def test_a_follower_that_cannot_build_a_job_at_its_start_ends_alone(make: Make) -> None:
    kit = start_with_risky_job(make, Scheme.active_standby)
    first, leader = kit.follower("following"), kit.leader()
    assert first
    assert leader
    raise_in(kit, leader, others=True)
    kit.kill(first)
    follower = kit.wait_until(
        "another follows", lambda: kit.follower("following") not in (None, first) and kit.follower()
    )
    kit.wait_until("it has ended", lambda: follower not in kit.engines())
    kit.wait_until("its log says why", lambda: "[FOLLOWS_OTHERWISE]" in kit.unit.log(follower).read_text())
    (kit.folder / "fails").unlink()
    kit.wait_until("there is another follower", lambda: kit.follower("following") not in (None, follower))
    assert not kit.record().errors, "that is no error of the leader"
    kit.wait_for_epochs()
    kit.finish()
    kit.check_output("late")


def start_with_risky_job(make: Make, scheme: Scheme) -> JobsKit:
    """A unit with a job whose function raises where `raise_in` says."""
    kit = make(scheme)
    kit.feeder.start()
    kit.wait_until("the unit is complete", lambda: is_complete(kit, scheme))
    risky = ADDED.replace("user,", "risky(user) AS user,")
    kit.change_job(f"CREATE JOB late AS {risky} INTO jsonl('{kit.extra}/late')", emits_all)
    kit.wait_for_epochs()
    return kit


def raise_in(kit: JobsKit, name: str | None, *, others: bool = False) -> None:
    """Make the job's function raise in an engine's process, or in all other processes."""
    temporary = kit.folder / "fails.tmp"
    temporary.write_text(("not " if others else "") + str(kit.engines()[name or ""].pid))
    temporary.rename(kit.folder / "fails")
