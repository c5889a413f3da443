"""The estimate of a migration, and the choice of its protocol."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.epoch.migration_cost import Circumstances, MigrationRules, choose_protocol, estimate_costs
from penstock.errors import UserError

MB = 1_000_000
RULES = MigrationRules(pause_seconds=0.1, patience_seconds=30, most_rounds=4)
#: 200 MB go to an executor that reads 100 MB a second; epochs of a second add 1 MB
GROWING = Circumstances(200 * MB, 200 * MB, MB, 100 * MB, 1.0, placed=True)


def by_name(now: Circumstances, rules: MigrationRules = RULES) -> dict[str, tuple[float, int, float]]:
    return {e.protocol: (e.pause_seconds, e.bytes, e.seconds) for e in estimate_costs(now, rules)}


def test_an_immediate_migration_reads_all_state_in_the_pause() -> None:
    pause, size, seconds = by_name(GROWING)["immediate"]
    assert (pause, size, seconds) == (2.0, 200 * MB, 0.0)


def test_after_a_warm_up_the_pause_reads_what_was_added_meanwhile() -> None:
    pause, size, seconds = by_name(GROWING)["warm"]
    assert pause == 0.02, "two epochs passed while it read"
    assert size == 200 * MB
    assert 2 <= seconds <= 2.1


def test_a_warm_up_of_state_that_changes_fast_takes_rounds() -> None:
    fast = replace(GROWING, bytes_per_epoch=8 * MB)
    pause, size, _ = by_name(fast)["warm"]
    assert pause == 0.08, "what one epoch adds"
    assert size == 200 * MB + 16 * MB + 8 * MB + 8 * MB


def test_recreate_moves_the_state_of_early_events() -> None:
    pause, size, seconds = by_name(replace(GROWING, windows_end_in=12.0))["recreate"]
    assert (pause, size, seconds) == (0.02, 2 * MB, 13.0)


def test_impossible_protocols_are_not_estimated() -> None:
    assert by_name(replace(GROWING, placed=False)).keys() == {"immediate"}


def test_little_state_moves_at_once() -> None:
    choice = choose_protocol(replace(GROWING, bytes=MB, most_bytes=MB), RULES)
    assert choice.protocol == "immediate"
    assert "0.010 s" in choice.reason


def test_much_state_is_warmed_up() -> None:
    choice = choose_protocol(GROWING, RULES)
    assert choice.protocol == "warm"
    assert "2.000 s" in choice.reason, "it says what the alternative was"
    assert [e.protocol for e in choice.estimates] == ["immediate", "warm"]


def test_windows_that_end_soon_are_waited_for() -> None:
    assert choose_protocol(replace(GROWING, windows_end_in=12.0), RULES).protocol == "recreate"
    assert choose_protocol(replace(GROWING, windows_end_in=40.0), RULES).protocol == "warm", "not so soon"


def test_if_no_protocol_is_good_enough_the_shortest_pause_wins() -> None:
    busy = replace(GROWING, bytes_per_epoch=50 * MB)
    choice = choose_protocol(busy, RULES)
    assert choice.protocol == "warm"
    assert "comes nearest" in choice.reason


def test_a_requested_protocol_is_chosen_if_it_is_possible() -> None:
    assert choose_protocol(GROWING, RULES, "immediate").protocol == "immediate"
    refused = choose_protocol(replace(GROWING, placed=False), RULES, "warm")
    assert refused.protocol == "immediate"
    assert "warm is not possible" in refused.reason


def test_a_requested_recreate_that_is_impossible_is_refused() -> None:
    with pytest.raises(UserError) as refused:
        choose_protocol(GROWING, RULES, "recreate")
    assert refused.value.condition == "RECREATION_IMPOSSIBLE"


@given(
    st.integers(0, 10**12),
    st.integers(0, 10**10),
    st.floats(0, 1e10),
    st.floats(1e-3, 100),
    st.booleans(),
    st.none() | st.floats(0, 1e6),
)
def test_a_chosen_protocol_is_possible_and_never_worse_than_immediate(
    size: int, growth: int, rate: float, epoch: float, placed: bool, end: float | None
) -> None:
    now = Circumstances(size, size, growth, rate, epoch, placed, end)
    choice = choose_protocol(now, RULES)
    costs = {estimate.protocol: estimate for estimate in choice.estimates}
    assert choice.protocol in costs
    assert costs[choice.protocol].pause_seconds <= max(costs["immediate"].pause_seconds, RULES.pause_seconds)
    assert all(e.pause_seconds >= 0 and e.bytes >= 0 and e.seconds >= 0 for e in choice.estimates)
