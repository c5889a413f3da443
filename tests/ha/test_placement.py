"""Where secondaries go: never beside their primary, and a lost node's work over as many others as there are."""

from __future__ import annotations

from collections.abc import Collection

from hypothesis import given
from hypothesis import strategies as st

from penstock.ha.placement import choose_node, count_takeovers

NODES = [f"n{number}" for number in range(6)]


def one_by_one(primaries: dict[str, str], nodes: Collection[str]) -> dict[str, str]:
    """The secondaries of units that come one after the other."""
    placed: dict[str, str] = {}
    for unit, home in primaries.items():
        placed[unit] = choose_node(home, [(primaries[one], node) for one, node in placed.items()], nodes)
    return placed


@given(
    st.dictionaries(st.text("abcd", min_size=1, max_size=4), st.sampled_from(NODES), max_size=40),
    st.sets(st.sampled_from(NODES), min_size=2),
)
def test_a_lost_nodes_work_is_spread_over_the_others(primaries: dict[str, str], nodes: set[str]) -> None:
    placed = one_by_one(primaries, nodes)
    assert all(node in nodes and node != primaries[unit] for unit, node in placed.items())
    for lost in {*primaries.values()}:
        taken = count_takeovers(primaries, placed, lost)
        assert sum(taken.values()) == [*primaries.values()].count(lost)
        shares = [taken.get(node, 0) for node in nodes - {lost}]
        assert max(shares) - min(shares) <= 1


@given(st.permutations([f"{node}-{number}" for node in NODES for number in range(5)]))
def test_with_as_many_units_on_each_node_every_node_carries_as_many_secondaries(units: list[str]) -> None:
    placed = one_by_one({unit: unit.partition("-")[0] for unit in units}, NODES)
    assert sorted(sum(node == place for place in placed.values()) for node in NODES) == [5] * 6


def test_one_node_has_both() -> None:
    assert choose_node("n0", [], ["n0"]) == "n0"


def test_a_shunned_node_is_taken_only_where_there_is_no_other_beside_the_primarys() -> None:
    there = [("n0", "n2")] * 3
    assert choose_node("n0", there, ["n0", "n1", "n2"], avoided=["n1"]) == "n2"
    assert choose_node("n0", there, ["n0", "n1"], avoided=["n1"]) == "n1"
