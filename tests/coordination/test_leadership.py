"""Leadership of a unit: one engine leads, the next waits, and one that is no longer needed stops waiting."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from penstock.coordination.files import FileStore
from penstock.coordination.leadership import lead_unit, leader_lease_path
from penstock.coordination.lease import read_lease


def test_one_engine_leads_and_the_next_waits_until_it_has_ended(tmp_path: Path) -> None:
    order, second_waits = [], threading.Event()

    def second() -> None:
        second_waits.set()
        with lead_unit(str(tmp_path), "unit", above=lambda: 0, session_seconds=30.0) as lease:
            assert lease is not None
            order.append(lease.generation)

    with lead_unit(str(tmp_path), "unit", above=lambda: 6, session_seconds=30.0) as lease:
        assert lease is not None
        thread = threading.Thread(target=second)
        thread.start()
        assert second_waits.wait(10)
        lease.check()
        order.append(lease.generation)
    thread.join(20)  # long before the session of the first could have run out
    assert order == [7, 8]
    assert read_lease(FileStore(tmp_path), leader_lease_path("unit")).session is None


@pytest.mark.slow
def test_an_engine_that_is_no_longer_needed_stops_waiting(tmp_path: Path) -> None:
    with lead_unit(str(tmp_path), "unit", above=lambda: 0, session_seconds=30.0) as lease:
        assert lease is not None
        still_needed = iter([True, True, True])
        with lead_unit(
            str(tmp_path), "unit", above=lambda: 0, wanted=lambda: next(still_needed, False)
        ) as other:
            assert other is None


def test_a_fenced_engine_leaves_the_lease_to_the_other(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    with lead_unit(str(tmp_path), "unit", above=lambda: 0, session_seconds=5.0) as lease:
        assert lease is not None
        record = store.get(leader_lease_path("unit"))
        assert record is not None
        assert store.replace(
            leader_lease_path("unit"), b'{"generation": 5, "session": "another"}', record.version
        )
    assert read_lease(store, leader_lease_path("unit")).generation == 5
