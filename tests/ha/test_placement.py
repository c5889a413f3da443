"""Placement of followers: never beside their leader, and a lost node's load is spread over all others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from hypothesis import given
from hypothesis import strategies as st

from penstock.ha.nodes import choose_node

NODES = [f"n{number}" for number in range(6)]


def place_one_by_one(leaders: dict[str, str], nodes: Collection[str]) -> dict[str, str]:
    """The nodes of the followers of units that come one after the other."""
    placed: dict[str, str] = {}
    for unit, home in leaders.items():
        placed[unit] = choose_node(home, [(leaders[one], node) for one, node in placed.items()], nodes)
    return placed


@given(
    st.dictionaries(st.text("abcd", min_size=1, max_size=4), st.sampled_from(NODES), max_size=40),
    st.sets(st.sampled_from(NODES), min_size=2),
)
def test_a_lost_nodes_load_is_spread_over_the_others(leaders: dict[str, str], nodes: set[str]) -> None:
    placed = place_one_by_one(leaders, nodes)
    assert all(node in nodes and node != leaders[unit] for unit, node in placed.items())
    for lost in {*leaders.values()}:
        takeovers = Counter(node for unit, node in placed.items() if leaders[unit] == lost)
        assert sum(takeovers.values()) == [*leaders.values()].count(lost)
        shares = [takeovers.get(node, 0) for node in nodes - {lost}]
        assert max(shares) - min(shares) <= 1


@given(st.permutations([f"{node}-{number}" for node in NODES for number in range(5)]))
def test_with_equally_many_leaders_on_each_node_followers_are_spread_equally(units: list[str]) -> None:
    placed = place_one_by_one({unit: unit.partition("-")[0] for unit in units}, NODES)
    assert sorted(sum(node == place for place in placed.values()) for node in NODES) == [5] * 6


def test_a_single_node_gets_both_engines() -> None:
    assert choose_node("n0", [], ["n0"]) == "n0"


def test_an_avoided_node_is_used_only_if_there_is_no_other_than_the_leaders() -> None:
    placed = [("n0", "n2")] * 3
    assert choose_node("n0", placed, ["n0", "n1", "n2"], avoided=["n1"]) == "n2"
    assert choose_node("n0", placed, ["n0", "n1"], avoided=["n1"]) == "n1"
