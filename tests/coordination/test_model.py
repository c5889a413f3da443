"""A search of all states of the fencing protocol; without each of its parts it violates a guarantee."""

from __future__ import annotations

import pytest

from tests.coordination.fencing_model import Protection, search

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("lease", [False, True], ids=["without-lease", "lease-checked"])
def test_no_order_of_steps_violates_a_guarantee(lease: bool) -> None:
    found = search(Protection(lease=lease))
    assert found.trace is None, found.trace
    assert found.states > 100_000
    assert found.complete > 1_000  # engines do finish


@pytest.mark.parametrize(("every", "epochs", "generations"), [(3, 3, 2), (2, 3, 2), (2, 2, 3)])
def test_no_order_of_steps_violates_a_guarantee_between_manifests(
    every: int, epochs: int, generations: int
) -> None:
    found = search(Protection(every=every), epochs=epochs, generations=generations)
    assert found.trace is None, found.trace
    assert found.complete > 100


@pytest.mark.parametrize(
    ("protection", "violation"),
    [
        (Protection(generations=False, exclusive=False, lease=True), "epoch 0 has two contents"),
        (Protection(generations=False, lease=True), "the sink's reader sees epoch 0 after 1 epochs"),
        (Protection(generations=False), "the sink's reader sees epoch 0 after 1 epochs"),
        (Protection(checks_higher=False), "the sink's reader sees epoch 0 after 1 epochs"),
        (Protection(reads_last=False), "the sink's reader sees epoch 0 after 1 epochs"),
        (Protection(every=2, skips_delivered=False), "the sink's reader sees epoch 0 after 2 epochs"),
    ],
    ids=[
        "lease-only",
        "lease-and-exclusive-names",
        "exclusive-names",
        "no-check-for-a-higher-generation",
        "state-read-before-others-are-fenced",
        "delivered-epochs-delivered-again",
    ],
)
def test_without_a_part_of_the_protocol_the_search_finds_a_violation(
    protection: Protection, violation: str
) -> None:
    found = search(protection)
    assert found.trace is not None
    assert found.violation is not None
    assert found.violation.endswith(violation), found.trace
