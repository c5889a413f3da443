"""The decision which copy is read, against a plain look at what every member has."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.logs.copy_choice import Choice, Extent, choose_copy, intersect_extents

MEMBERS, COPIES = 3, 3


def whole(**latest: int) -> dict[int, Extent]:
    return {int(name[1:]): Extent(0, limit) for name, limit in latest.items()}


@pytest.mark.parametrize(
    ("at", "now", "reports", "wanted"),
    [
        (0, None, [whole(c0=5, c1=9)], Choice(1, 9)),  # the furthest on
        (0, None, [whole(c0=5, c1=5)], Choice(0, 5)),
        (0, 0, [whole(c0=5, c1=9)], Choice(0, 5)),  # it has more than half: stay
        (0, 0, [whole(c0=4, c1=9)], Choice(1, 9)),  # a straggler
        (5, 0, [whole(c0=5, c1=9)], Choice(1, 9)),  # it has stopped
        (5, 1, [whole(c0=5, c1=5)], Choice(1, 5)),  # nothing new anywhere
        (0, None, [whole(c0=5, c1=9), whole(c0=5)], Choice(0, 5)),  # what all have
        (0, 1, [whole(c0=5, c1=9), whole(c0=5)], Choice(0, 5)),
        (0, None, [whole(c0=5, c1=9), whole(c0=4, c1=3)], Choice(0, 4)),
        (0, None, [whole(c0=5), whole(c1=5)], None),  # no copy that both have
        (0, None, [whole(c0=5), {}], None),
        (7, 1, [whole(c0=5)], None),  # the one that is left is behind
        (3, 0, [{0: Extent(4, 9), 1: Extent(2, 6)}], Choice(1, 6)),  # it has forgotten what comes next
        (3, 0, [{0: Extent(0, 9)}, {0: Extent(4, 9)}], None),
        (0, None, [], None),
    ],
)
def test_what_is_chosen(
    at: int, now: int | None, reports: list[dict[int, Extent]], wanted: Choice | None
) -> None:
    assert choose_copy(at, now, reports) == wanted


@dataclass
class Source:
    """A partition of so many events, and how many of them each member has of each copy. A copy may be cut off."""

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
_happenings = st.lists(
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
@given(_happenings)
def test_nothing_is_lost_or_repeated_all_have_what_is_read_and_stragglers_are_passed_over(
    happenings: list[tuple[object, ...]],
) -> None:
    source, members, at, now, read = Source(), list(range(MEMBERS)), 0, None, []
    for happening in [*happenings, ("epoch", 1_000)]:
        match happening:
            case ("come", int(member), int(copy), int(events)):
                source.has[member][copy] += events
            case ("cut off", int(member), int(copy), bool(reached)):
                source.reached[member][copy] = reached
            case ("forget", int(copy), int(events)):
                source.forgotten[copy] = min(source.forgotten[copy] + events, at)
            case ("leave", int(member)) if len(members) > 1 and member in members:
                members.remove(member)
            case ("epoch", int(most)):
                # plainly: of each copy, the last event that no member lacks, counting on from the next one
                there = {}
                for copy in range(COPIES):
                    event = at
                    while all(
                        source.reached[m][copy]
                        and source.forgotten[copy] <= at
                        and event < source.has[m][copy]
                        for m in members
                    ):
                        event += 1
                    there[copy] = event - at
                choice = choose_copy(at, now, source.reports(members))
                if choice is None or choice.limit == at:
                    assert max(there.values()) == 0, "it waits though a copy has more"
                    continue
                assert choice.limit - at == there[choice.copy], "not what all of them have"
                assert 2 * there[choice.copy] >= max(there.values()), "a straggler"
                end = min(at + most, choice.limit)
                read += list(range(at, end))
                at, now = end, choice.copy
    assert read == list(range(at))


@given(st.lists(st.dictionaries(_copies, st.tuples(st.integers(0, 9), st.integers(0, 9))), max_size=4))
def test_what_is_common_does_not_depend_on_the_order_of_reports(
    told: list[dict[int, tuple[int, int]]],
) -> None:
    reports = [{copy: Extent(*extent) for copy, extent in one.items()} for one in told]
    assert intersect_extents(reports) == intersect_extents(reports[::-1])
