"""Coordinators of jobs as members of a store: which are alive, which job each manages, and one that joins again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.catalogue.coordinators import Coordinator, Coordinators, coordinator
from penstock.catalogue.master_placement import Roster, manager_of
from penstock.coordination.address import open_store
from penstock.coordination.files import FileStore
from penstock.coordination.shared_key import SharedKey
from penstock.errors import PenstockError
from tests.ha.waiting import wait_until

WAIT = 60.0
KEY = SharedKey(b"the secret of a state directory")
Join = Callable[[str], Coordinators]


@pytest.fixture(params=["files", pytest.param("zookeeper", marks=pytest.mark.process)])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "files":
        return str(tmp_path / "store")
    return f"zk://{request.getfixturevalue('zookeeper').hosts}/{tmp_path.name}"


@pytest.fixture
def join(address: str) -> Iterator[Join]:
    joined: list[Coordinators] = []

    def start(name: str) -> Coordinators:
        me = Coordinator(name, f"http://127.0.0.1/{name}")
        joined.append(Coordinators(open_store(address), "state", me, KEY, timeout_seconds=10.0))
        return joined[-1].__enter__()

    yield start
    for coordinators in joined:
        coordinators.close()


def test_coordinators_see_which_others_join_and_leave(join: Join) -> None:
    one, two, three = join("one"), join("two"), join("three")
    everyone = {"one", "two", "three"}
    wait_until("all see each other", lambda: all(set(c.alive) == everyone for c in (one, two, three)))
    jobs = [f"job_{n}" for n in range(50)]
    assert all(c.manager_of(job).name == manager_of(job, everyone) for job in jobs for c in (one, two, three))
    assert one.manager_of("job_1").url == f"http://127.0.0.1/{manager_of('job_1', everyone)}"
    two.close()
    wait_until(
        "the others see that it left", lambda: all(set(c.alive) == {"one", "three"} for c in (one, three))
    )
    assert one.roster == Roster("one", frozenset({"three"}))


@pytest.mark.slow
def test_a_coordinator_whose_session_ended_joins_again(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    member = tmp_path / "members" / "jobs@state@coordinators" / "one"

    def session() -> str | None:
        return str(json.loads(member.read_bytes().partition(b"\n")[0])) if member.exists() else None

    with Coordinators(store, "state", Coordinator("one", ""), KEY, timeout_seconds=5.0) as one:
        assert one.wait_joined(WAIT)
        before = session()
        assert before is not None
        store.end_session(before)  # as others do once its heartbeat is overdue
        wait_until("it has another session", lambda: session() not in (None, before))
        wait_until("it is a member again", lambda: store.members("jobs/state/coordinators").keys() == {"one"})


def test_a_coordinator_waits_while_another_of_its_name_is_alive(join: Join) -> None:
    one = join("one")
    assert one.wait_joined(WAIT)
    again = join("one")
    assert not again.wait_joined(1.0)
    one.close()
    assert again.wait_joined(WAIT)


def test_while_the_store_is_unavailable_a_coordinator_reports_it_and_manages_all_jobs(tmp_path: Path) -> None:
    store, problems = open_store(str(tmp_path / "store")), list[PenstockError]()
    (tmp_path / "store").rename(tmp_path / "moved")
    (tmp_path / "store").write_text("not a directory")
    me = Coordinator("one", "")
    alone = Coordinators(store, "state", me, KEY, timeout_seconds=1.0, problem=problems.append)
    with alone:
        wait_until("the problem is reported", lambda: bool(problems))
        assert problems[0].condition == "STORE_UNAVAILABLE"
        assert alone.manager_of("any").name == "one"
        (tmp_path / "store").unlink()
        (tmp_path / "moved").rename(tmp_path / "store")
        assert alone.wait_joined(WAIT)


def test_a_member_that_has_no_key_of_the_state_is_no_coordinator_and_is_reported_once(address: str) -> None:
    store, problems = open_store(address), list[PenstockError]()
    session, other = store.start_session(10.0), store.start_session(10.0)
    forged = {"name": "forged", "url": "http://127.0.0.1:1", "engine": False, "host": "", "process": 0}
    right = json.dumps(forged | {"name": "another"})
    signature = KEY.sign("coordinator", "jobs/state/coordinators", right)
    group = "jobs/state/coordinators"
    assert session.join(group, "plain", json.dumps(forged).encode())
    assert session.join(group, "forged", json.dumps({"facts": json.dumps(forged), "signature": "0"}).encode())
    assert session.join(group, "renamed", json.dumps({"facts": right, "signature": signature}).encode())
    assert other.join(group, "broken", b"{")
    me = Coordinator("one", "")
    with Coordinators(
        open_store(address), "state", me, KEY, timeout_seconds=10.0, problem=problems.append
    ) as one:
        assert one.wait_joined(WAIT)
        wait_until("the members are reported", lambda: bool(problems))
        other.close()
        wait_until("one of them is gone", lambda: "broken" not in store.members(group))
        assert set(one.alive) == {"one"}
        assert all(one.manager_of(f"job_{n}").name == "one" for n in range(50))
        refused = [error.text() for error in problems if error.condition == "COORDINATOR_NOT_VERIFIED"]
        assert len(refused) == 1
        assert "broken, forged, plain, renamed" in refused[0]
    session.close()
    store.close()


def test_a_coordinator_has_the_url_at_which_it_can_be_reached() -> None:
    named = coordinator(None, "http://0.0.0.0:81", engine=True)
    assert named.url == f"http://{named.host}:81"
    assert named.name == f"{named.host}:81"
    assert coordinator("a", "http://127.0.0.1:1").url == "http://127.0.0.1:1"
