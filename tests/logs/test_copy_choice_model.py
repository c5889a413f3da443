"""A model of reporting and deciding: every order in which copies grow, replicas report, and leaders die.

Two replicas, two copies, two events. A replica knows its own events, and of the other what that reported last.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from penstock.logs.copy_choice import Extent, choose_copy

EVENTS, COPIES = 2, (0, 1)
Counts = tuple[int, int]


class State(NamedTuple):
    has: tuple[Counts, Counts]
    #: what each replica reported last; None before the first report
    reported: tuple[Counts | None, Counts | None]
    up: tuple[bool, bool]
    leader: int
    #: (end, copy) of each epoch, and the copy the leader read last
    epochs: tuple[tuple[int, int], ...]
    now: int | None

    @property
    def at(self) -> int:
        return self.epochs[-1][0] if self.epochs else 0


def reports(state: State) -> list[dict[int, Extent]]:
    reported: list[Counts | None] = [state.has[state.leader]]
    other = 1 - state.leader
    if state.up[other]:
        reported.append(state.reported[other])
    return [{copy: Extent(0, one[copy]) for copy in COPIES} for one in reported if one is not None]


def replace_at(pair: tuple, index: int, value: object) -> tuple:  # type: ignore[type-arg]
    return (value, pair[1]) if index == 0 else (pair[0], value)


def successors(state: State) -> Iterator[State]:
    for member in (0, 1):
        if not state.up[member]:
            continue
        for copy in COPIES:
            if state.has[member][copy] < EVENTS:
                grown = replace_at(state.has[member], copy, state.has[member][copy] + 1)
                yield state._replace(has=replace_at(state.has, member, grown))
        if state.reported[member] != state.has[member]:
            yield state._replace(reported=replace_at(state.reported, member, state.has[member]))
    choice = choose_copy(state.at, state.now, reports(state))
    if choice is not None and choice.limit > state.at:
        for end in range(state.at + 1, choice.limit + 1):
            yield state._replace(epochs=(*state.epochs, (end, choice.copy)), now=choice.copy)
    if all(state.up):
        up = replace_at(state.up, state.leader, False)
        yield state._replace(up=up, leader=1 - state.leader, now=None)


def search(first: State) -> tuple[set[State], list[State]]:
    seen, waiting, ends = {first}, [first], []
    while waiting:
        state = waiting.pop()
        after = list(successors(state))
        for one in after:
            check(state, one)
            if one not in seen:
                seen.add(one)
                waiting.append(one)
        if not after:
            ends.append(state)
    return seen, ends


def check(before: State, after: State) -> None:
    if after.epochs == before.epochs:
        return
    end, copy = after.epochs[-1]
    assert end > before.at, "repeated"
    for member in (0, 1):
        if before.up[member] and (before.reported[member] is not None or member == before.leader):
            assert before.has[member][copy] >= end, f"{member} has to read what it does not have: {before}"


def test_no_replica_reads_what_it_lacks_and_everything_is_read_in_the_end() -> None:
    seen, ends = search(State(((0, 0), (0, 0)), (None, None), (True, True), 0, (), None))
    assert len(seen) > 1_000
    assert ends
    for state in ends:  # all events have arrived and are reported: none is left
        assert state.at == EVENTS, state
    assert {copy for state in seen for _, copy in state.epochs} == set(COPIES)


def test_a_leader_waits_for_no_copy_that_does_not_grow() -> None:
    """From any state, once one copy is complete and reported, the rest is read even if the other copy does not grow."""
    seen, _ = search(State(((0, 0), (0, 0)), (None, None), (True, True), 0, (), None))
    cases = 0
    for state in seen:
        others = [
            state.reported[m]
            for m in (0, 1)
            if state.up[m] and m != state.leader and state.reported[m] is not None
        ]
        for copy in COPIES:
            if state.has[state.leader][copy] == EVENTS and all(one and one[copy] == EVENTS for one in others):
                choice = choose_copy(state.at, state.now, reports(state))
                assert choice is not None
                assert choice.limit > state.at or state.at == EVENTS
                cases += 1
    assert cases > 100
