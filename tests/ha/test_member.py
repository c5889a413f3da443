"""What an engine of a unit says of itself arrives as it was said."""

from __future__ import annotations

import json

import pytest

from penstock.ha.history import ReportedLoad
from penstock.ha.unit import Member

LOAD = ReportedLoad(5.0, 1.0, 2.0, 3.0, 4.0, 5e6, 6e3, 0.5, 0.25, 0.75)


@pytest.mark.parametrize("load", [LOAD, None])
def test_what_a_member_says_arrives(load: ReportedLoad | None) -> None:
    said = Member(7, "h", "active", "s1", "primary", epoch=3, load=load, reach={"s": {"p": {"0": [0, 9]}}})
    assert Member.from_bytes(said.to_bytes()) == said


def test_a_member_that_reports_no_load_yet_may_say_so_with_an_empty_one() -> None:
    body = json.loads(Member(7, "h", "active").to_bytes()) | {"load": {}}
    assert Member.from_bytes(json.dumps(body).encode()).load is None


def test_a_load_is_taken_by_the_clock_of_who_hears_of_it() -> None:
    load = LOAD.to_load(90.0, cpu_cores=1.5, memory_bytes=1e9)
    assert (load.at, load.cpu_cores, load.memory_bytes) == (90.0, 1.5, 1e9)
    assert (load.events_per_second, load.run_growth, load.work_seconds) == (1.0, 0.75, 0.25)
