"""Who does not say who he is holds only a place that the next one takes; who has said it keeps his."""

from __future__ import annotations

import contextlib
import resource
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.descriptors import compute_room, raise_descriptor_limit
from penstock.errors import ExternalError
from penstock.ingest.admission import Admission, Bounds, Place, name_address


class Visitors:
    """An admission, and which connections it closed."""

    def __init__(self, bounds: Bounds, room: int = 1000) -> None:
        self.closed: list[str] = []
        self.admission = Admission(bounds, lambda: room)

    def visit(self, name: str, address: str = "a") -> Place:
        place = Place(address, lambda: self.closed.append(name))
        assert self.admission.admit(place)
        return place


def test_a_new_connection_takes_the_place_of_the_oldest_of_its_address_that_is_silent() -> None:
    visitors = Visitors(Bounds(most_waiting_per_address=2))
    visitors.visit("other", "b")
    known = visitors.visit("known")
    visitors.admission.establish(known)
    for name in ("one", "two", "three", "four"):
        visitors.visit(name)
    assert visitors.closed == ["one", "two"]
    assert (visitors.admission.waiting, visitors.admission.established) == (3, 1)


def test_the_address_with_the_most_silent_connections_gives_up_a_place() -> None:
    visitors = Visitors(Bounds(most_waiting=3))
    visitors.visit("b", "b")
    for name in ("a1", "a2", "a3"):
        visitors.visit(name)
    assert visitors.closed == ["a1"]


def test_established_connections_are_limited_in_total_and_by_address() -> None:
    visitors = Visitors(Bounds(most=3, most_per_address=2))
    for name in ("one", "two"):
        visitors.admission.establish(visitors.visit(name))
    with pytest.raises(ExternalError, match="TOO_MANY_CONNECTIONS"):
        visitors.admission.establish(visitors.visit("three"))
    last = visitors.visit("b", "b")
    visitors.admission.establish(last)
    with pytest.raises(ExternalError, match=r"TOO_MANY_CONNECTIONS.*3 connections"):
        visitors.admission.check_room("c")
    visitors.admission.leave(last)
    visitors.admission.check_room("c")


def test_without_descriptors_nobody_comes_in_and_nobody_known_is_closed() -> None:
    visitors = Visitors(Bounds(), room=1)
    known = visitors.visit("known")
    visitors.admission.establish(known)
    assert not visitors.admission.admit(Place("b", lambda: None))
    assert visitors.closed == []


def test_who_was_displaced_is_not_established_afterwards() -> None:
    visitors = Visitors(Bounds(most_waiting_per_address=1))
    first = visitors.visit("first")
    visitors.visit("second")
    with pytest.raises(ExternalError, match="TOO_MANY_CONNECTIONS"):
        visitors.admission.establish(first)


@given(st.lists(st.tuples(st.sampled_from(["admit", "establish", "leave"]), st.integers(0, 9)), max_size=200))
def test_places_are_bounded_and_none_leaks(steps: list[tuple[str, int]]) -> None:
    bounds = Bounds(most=3, most_per_address=2, most_waiting=4, most_waiting_per_address=3)
    admission = Admission(bounds, lambda: 6)
    places: dict[int, Place] = {}
    for verb, number in steps:
        if verb == "admit" and number not in places:
            place = Place(f"address {number % 3}", lambda number=number: places.pop(number) and None)  # type: ignore[misc]
            if admission.admit(place):
                places[number] = place
        elif verb == "leave" and number in places:
            admission.leave(places.pop(number))
        elif verb == "establish" and number in places:
            with contextlib.suppress(ExternalError):
                admission.establish(places[number])
        assert admission.waiting + admission.established == len(places) <= 6
        assert admission.waiting <= bounds.most_waiting
        assert admission.established <= bounds.most
    for place in list(places.values()):
        admission.leave(place)
    assert (admission.waiting, admission.established) == (0, 0)


def test_a_network_of_ipv6_is_one_address() -> None:
    assert (
        name_address("2001:db8:1:2:3::4")
        == name_address("2001:db8:1:2::9")
        != name_address("2001:db8:1:3::9")
    )
    assert name_address("::ffff:10.0.0.1") == name_address("10.0.0.1") == "10.0.0.1"
    assert name_address("unknown") == "unknown"


@pytest.mark.process
def test_the_limit_of_open_files_is_raised_as_far_as_allowed() -> None:
    program = "from penstock.descriptors import *; print(raise_descriptor_limit(), raise_descriptor_limit())"
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    wanted = min(hard, 600) if hard != resource.RLIM_INFINITY else 600
    for soft in (256, wanted):
        found = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            check=True,
            text=True,
            preexec_fn=lambda soft=soft: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, wanted)),
        )
        assert found.stdout.split() == [str(wanted)] * 2
    assert raise_descriptor_limit() >= resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def test_connections_leave_descriptors_to_files() -> None:
    assert compute_room(1024, 200) == 1024 - 200 - 128
    assert compute_room(256, 49) == 256 - 49 - 64
    assert compute_room(64, 500) == 1
