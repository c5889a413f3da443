"""Reporting and deciding, searched through: every order in which copies come on, members report, and leaders die.

Two members, two copies, two events. A member knows what it has itself; of the other, what that reported last.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from penstock.logs.copy_choice import Extent, choose_copy

EVENTS, COPIES = 2, (0, 1)
Had = tuple[int, int]


class State(NamedTuple):
    has: tuple[Had, Had]
    #: what each reported last; None before it has
    told: tuple[Had | None, Had | None]
    up: tuple[bool, bool]
    leader: int
    #: (end, copy) of each epoch, and the copy the leader read last
    book: tuple[tuple[int, int], ...]
    now: int | None

    @property
    def at(self) -> int:
        return self.book[-1][0] if self.book else 0


def reports(state: State) -> list[dict[int, Extent]]:
    told: list[Had | None] = [state.has[state.leader]]
    other = 1 - state.leader
    if state.up[other]:
        told.append(state.told[other])
    return [{copy: Extent(0, one[copy]) for copy in COPIES} for one in told if one is not None]


def put(pair: tuple, place: int, value: object) -> tuple:  # type: ignore[type-arg]
    return (value, pair[1]) if place == 0 else (pair[0], value)


def following(state: State) -> Iterator[State]:
    for member in (0, 1):
        if not state.up[member]:
            continue
        for copy in COPIES:
            if state.has[member][copy] < EVENTS:
                grown = put(state.has[member], copy, state.has[member][copy] + 1)
                yield state._replace(has=put(state.has, member, grown))
        if state.told[member] != state.has[member]:
            yield state._replace(told=put(state.told, member, state.has[member]))
    choice = choose_copy(state.at, state.now, reports(state))
    if choice is not None and choice.limit > state.at:
        for end in range(state.at + 1, choice.limit + 1):
            yield state._replace(book=(*state.book, (end, choice.copy)), now=choice.copy)
    if all(state.up):
        up = put(state.up, state.leader, False)
        yield state._replace(up=up, leader=1 - state.leader, now=None)


def search(first: State) -> tuple[set[State], list[State]]:
    seen, waiting, ends = {first}, [first], []
    while waiting:
        state = waiting.pop()
        after = list(following(state))
        for one in after:
            check(state, one)
            if one not in seen:
                seen.add(one)
                waiting.append(one)
        if not after:
            ends.append(state)
    return seen, ends


def check(before: State, after: State) -> None:
    if after.book == before.book:
        return
    end, copy = after.book[-1]
    assert end > before.at, "repeated"
    for member in (0, 1):
        if before.up[member] and (before.told[member] is not None or member == before.leader):
            assert before.has[member][copy] >= end, f"{member} is to read what it does not have: {before}"


def test_nobody_is_sent_where_it_has_nothing_and_everything_is_read_in_the_end() -> None:
    seen, ends = search(State(((0, 0), (0, 0)), (None, None), (True, True), 0, (), None))
    assert len(seen) > 1_000
    assert ends
    for state in ends:  # all has come and is reported: nothing is left
        assert state.at == EVENTS, state
    assert {copy for state in seen for _, copy in state.book} == set(COPIES)


def test_a_leader_waits_for_no_copy_that_does_not_come_on() -> None:
    """From any state, once one copy is all there and reported, the rest is read though the other copy stands still."""
    seen, _ = search(State(((0, 0), (0, 0)), (None, None), (True, True), 0, (), None))
    met = 0
    for state in seen:
        others = [
            state.told[m] for m in (0, 1) if state.up[m] and m != state.leader and state.told[m] is not None
        ]
        for copy in COPIES:
            if state.has[state.leader][copy] == EVENTS and all(one and one[copy] == EVENTS for one in others):
                choice = choose_copy(state.at, state.now, reports(state))
                assert choice is not None
                assert choice.limit > state.at or state.at == EVENTS
                met += 1
    assert met > 100
