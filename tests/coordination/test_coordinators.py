"""Coordinators of jobs as members of a store: who is alive, who carries what, and one that was missed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.catalogue.coordinators import Coordinator, Coordinators, coordinator
from penstock.catalogue.master_placement import Roster, manager_of
from penstock.coordination.address import open_store
from penstock.coordination.files import FileStore
from penstock.errors import PenstockError

WAIT = 60.0
Join = Callable[[str], Coordinators]


@pytest.fixture(params=["files", "zookeeper"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "files":
        return str(tmp_path / "store")
    return f"zk://{request.getfixturevalue('zookeeper').hosts}/{tmp_path.name}"


@pytest.fixture
def join(where: str) -> Iterator[Join]:
    joined: list[Coordinators] = []

    def begin(name: str) -> Coordinators:
        me = Coordinator(name, f"http://127.0.0.1/{name}")
        joined.append(Coordinators(open_store(where), "state", me, timeout_seconds=10.0))
        return joined[-1].__enter__()

    yield begin
    for one in joined:
        one.close()


def _until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT
    while not what():
        assert time.monotonic() < deadline, "it did not come in time"
        time.sleep(0.02)


def test_all_see_each_other_and_one_who_leaves(join: Join) -> None:
    one, two, three = join("one"), join("two"), join("three")
    everyone = {"one", "two", "three"}
    _until(lambda: all(set(c.alive) == everyone for c in (one, two, three)))
    jobs = [f"job_{n}" for n in range(50)]
    assert all(c.manager_of(job).name == manager_of(job, everyone) for job in jobs for c in (one, two, three))
    assert one.manager_of("job_1").url == f"http://127.0.0.1/{manager_of('job_1', everyone)}"
    two.close()
    _until(lambda: all(set(c.alive) == {"one", "three"} for c in (one, three)))
    assert one.roster == Roster("one", frozenset({"three"}))


def test_a_coordinator_whose_session_ended_joins_again(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    member = tmp_path / "members" / "jobs@state@coordinators" / "one"

    def session() -> str | None:
        return str(json.loads(member.read_bytes().partition(b"\n")[0])) if member.exists() else None

    with Coordinators(store, "state", Coordinator("one", ""), timeout_seconds=5.0) as one:
        assert one.wait_joined(WAIT)
        before = session()
        assert before is not None
        store.end_session(before)  # as others do who have not seen it for too long
        _until(lambda: session() not in (None, before))
        _until(lambda: store.members("jobs/state/coordinators").keys() == {"one"})


def test_a_name_that_is_alive_is_not_taken(join: Join) -> None:
    one = join("one")
    assert one.wait_joined(WAIT)
    again = join("one")
    assert not again.wait_joined(1.0)
    one.close()
    assert again.wait_joined(WAIT)


def test_an_unavailable_store_is_reported_and_all_masters_stay_here(tmp_path: Path) -> None:
    store, told = open_store(str(tmp_path / "store")), list[PenstockError]()
    (tmp_path / "store").rename(tmp_path / "away")
    (tmp_path / "store").write_text("not a directory")
    alone = Coordinators(store, "state", Coordinator("one", ""), timeout_seconds=1.0, problem=told.append)
    with alone:
        _until(lambda: bool(told))
        assert told[0].condition == "STORE_UNAVAILABLE"
        assert alone.manager_of("any").name == "one"
        (tmp_path / "store").unlink()
        (tmp_path / "away").rename(tmp_path / "store")
        assert alone.wait_joined(WAIT)


def test_a_coordinator_says_where_it_can_be_reached() -> None:
    named = coordinator(None, "http://0.0.0.0:81", engine=True)
    assert named.url == f"http://{named.host}:81"
    assert named.name == f"{named.host}:81"
    assert coordinator("a", "http://127.0.0.1:1").url == "http://127.0.0.1:1"
