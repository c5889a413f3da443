"""Where secondaries go: never beside their primary, and a lost node's work over as many others as there are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.ha.placement import after_loss, interleaved

NODES = [f"n{number}" for number in range(6)]


@given(
    st.dictionaries(st.text("abcd", min_size=1, max_size=4), st.sampled_from(NODES), max_size=40),
    st.sets(st.sampled_from(NODES), min_size=1),
    st.randoms(use_true_random=False),
)
def test_a_lost_nodes_work_is_spread_over_the_others(
    primaries: dict[str, str], nodes: set[str], draw: object
) -> None:
    placed = interleaved(primaries, nodes)
    shuffled = list(primaries.items())
    draw.shuffle(shuffled)  # type: ignore[attr-defined]
    assert interleaved(dict(shuffled), sorted(nodes, reverse=True)) == placed
    assert all(node in nodes and node != primaries[unit] for unit, node in placed.items())
    for lost in {*primaries.values()}:
        others = nodes - {lost}
        units = [unit for unit, node in primaries.items() if node == lost]
        if not others:
            assert not any(unit in placed for unit in units)
            continue
        taken = after_loss(primaries, placed, lost)
        assert sum(taken.values()) == len(units)
        shares = [taken.get(node, 0) for node in others]
        assert max(shares) - min(shares) <= 1


def test_with_as_many_units_on_each_node_every_node_carries_as_many_secondaries() -> None:
    primaries = {f"{node}-{number}": node for node in NODES for number in range(10)}
    placed = interleaved(primaries, NODES)
    assert sorted(sum(node == place for place in placed.values()) for node in NODES) == [10] * 6


def test_one_node_has_no_place_for_secondaries() -> None:
    assert interleaved({"a": "n0", "b": "n0"}, ["n0"]) == {}
