"""The decision which copy is read, compared with a plain computation from what every replica has."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.logs.copy_choice import Choice, Extent, choose_copy, intersect_extents

MEMBERS, COPIES = 3, 3


def extents_of(**latest: int) -> dict[int, Extent]:
    return {int(name[1:]): Extent(0, limit) for name, limit in latest.items()}


@pytest.mark.parametrize(
    ("at", "now", "reports", "expected"),
    [
        (0, None, [extents_of(c0=5, c1=9)], Choice(1, 9)),  # the furthest on
        (0, None, [extents_of(c0=5, c1=5)], Choice(0, 5)),
        (0, 0, [extents_of(c0=5, c1=9)], Choice(0, 5)),  # it has more than half: stay
        (0, 0, [extents_of(c0=4, c1=9)], Choice(1, 9)),  # a straggler
        (5, 0, [extents_of(c0=5, c1=9)], Choice(1, 9)),  # it has stopped
        (5, 1, [extents_of(c0=5, c1=5)], Choice(1, 5)),  # nothing new anywhere
        (0, None, [extents_of(c0=5, c1=9), extents_of(c0=5)], Choice(0, 5)),  # the part that all have
        (0, 1, [extents_of(c0=5, c1=9), extents_of(c0=5)], Choice(0, 5)),
        (0, None, [extents_of(c0=5, c1=9), extents_of(c0=4, c1=3)], Choice(0, 4)),
        (0, None, [extents_of(c0=5), extents_of(c1=5)], None),  # no copy that both have
        (0, None, [extents_of(c0=5), {}], None),
        (7, 1, [extents_of(c0=5)], None),  # the remaining copy is behind
        (3, 0, [{0: Extent(4, 9), 1: Extent(2, 6)}], Choice(1, 6)),  # the next event was pruned from it
        (3, 0, [{0: Extent(0, 9)}, {0: Extent(4, 9)}], None),
        (0, None, [], None),
    ],
)
def test_the_copy_that_is_read(
    at: int, now: int | None, reports: list[dict[int, Extent]], expected: Choice | None
) -> None:
    assert choose_copy(at, now, reports) == expected


@dataclass
class Source:
    """A partition, and how many of its events each replica has of each copy. A replica may be cut off from a copy."""

    has: list[list[int]] = field(default_factory=lambda: [[0] * COPIES for _ in range(MEMBERS)])
    forgotten: list[int] = field(default_factory=lambda: [0] * COPIES)
    reached: list[list[bool]] = field(default_factory=lambda: [[True] * COPIES for _ in range(MEMBERS)])

    def reports(self, members: list[int]) -> list[dict[int, Extent]]:
        return [
            {
                copy: Extent(self.forgotten[copy], self.has[member][copy])
                for copy in range(COPIES)
                if self.reached[member][copy] and self.forgotten[copy] <= self.has[member][copy]
            }
            for member in members
        ]


_members = st.integers(0, MEMBERS - 1)
_copies = st.integers(0, COPIES - 1)
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("come"), _members, _copies, st.integers(1, 20)),
        st.tuples(st.just("cut off"), _members, _copies, st.booleans()),
        st.tuples(st.just("forget"), _copies, st.integers(1, 10)),
        st.tuples(st.just("leave"), _members),
        st.tuples(st.just("epoch"), st.integers(1, 40)),
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(_steps)
def test_every_event_is_read_once_from_copies_that_all_have_and_stragglers_are_skipped(
    steps: list[tuple[object, ...]],
) -> None:
    source, members, at, now, read = Source(), list(range(MEMBERS)), 0, None, []
    for step in [*steps, ("epoch", 1_000)]:
        match step:
            case ("come", int(member), int(copy), int(events)):
                source.has[member][copy] += events
            case ("cut off", int(member), int(copy), bool(reached)):
                source.reached[member][copy] = reached
            case ("forget", int(copy), int(events)):
                source.forgotten[copy] = min(source.forgotten[copy] + events, at)
            case ("leave", int(member)) if len(members) > 1 and member in members:
                members.remove(member)
            case ("epoch", int(most)):
                # by definition: of each copy, the last event that no replica lacks, counted from the next one
                common = {}
                for copy in range(COPIES):
                    event = at
                    while all(
                        source.reached[m][copy]
                        and source.forgotten[copy] <= at
                        and event < source.has[m][copy]
                        for m in members
                    ):
                        event += 1
                    common[copy] = event - at
                choice = choose_copy(at, now, source.reports(members))
                if choice is None or choice.limit == at:
                    assert max(common.values()) == 0, "it waits though a copy has more"
                    continue
                assert choice.limit - at == common[choice.copy], "not what all of them have"
                assert 2 * common[choice.copy] >= max(common.values()), "a straggler"
                end = min(at + most, choice.limit)
                read += list(range(at, end))
                at, now = end, choice.copy
    assert read == list(range(at))


@given(st.lists(st.dictionaries(_copies, st.tuples(st.integers(0, 9), st.integers(0, 9))), max_size=4))
def test_the_common_extent_does_not_depend_on_the_order_of_reports(
    extents: list[dict[int, tuple[int, int]]],
) -> None:
    reports = [{copy: Extent(*extent) for copy, extent in one.items()} for one in extents]
    assert intersect_extents(reports) == intersect_extents(reports[::-1])
