"""The protocol of generations, searched through; and what goes wrong without each of its parts."""

from __future__ import annotations

import pytest

from tests.coordination.fencing_model import Protection, search


@pytest.mark.parametrize("lease", [False, True], ids=["clocks-lie", "leases-looked-at"])
def test_no_order_of_steps_breaks_a_promise(lease: bool) -> None:
    found = search(Protection(lease=lease))
    assert found.way is None, found.way
    assert found.states > 100_000
    assert found.complete > 1_000  # engines do come to the end


@pytest.mark.parametrize(("every", "epochs", "generations"), [(3, 3, 2), (2, 3, 2), (2, 2, 3)])
def test_no_order_of_steps_breaks_a_promise_between_manifests(
    every: int, epochs: int, generations: int
) -> None:
    found = search(Protection(every=every), epochs=epochs, generations=generations)
    assert found.way is None, found.way
    assert found.complete > 100


@pytest.mark.parametrize(
    ("protection", "broken"),
    [
        (Protection(generations=False, exclusive=False, lease=True), "epoch 0 has two contents"),
        (Protection(generations=False, lease=True), "the sink's reader meets epoch 0 after 1 epochs"),
        (Protection(generations=False), "the sink's reader meets epoch 0 after 1 epochs"),
        (Protection(looks_up=False), "the sink's reader meets epoch 0 after 1 epochs"),
        (Protection(reads_last=False), "the sink's reader meets epoch 0 after 1 epochs"),
        (Protection(every=2, looks_ahead=False), "the sink's reader meets epoch 0 after 2 epochs"),
    ],
    ids=[
        "a-lease-alone",
        "a-lease-and-names-made-once",
        "names-made-once",
        "no-look-for-a-higher-generation",
        "the-state-read-before-the-others-are-shut-out",
        "what-is-repeated-is-offered-again",
    ],
)
def test_without_a_part_of_the_protocol_the_search_finds_how_it_breaks(
    protection: Protection, broken: str
) -> None:
    found = search(protection)
    assert found.way is not None
    assert found.broken is not None
    assert found.broken.endswith(broken), found.way
