"""Errors of sizing by a sample."""

from __future__ import annotations

import pytest

from penstock.errors import UserError
from penstock.scaling.sizes import propose_size


@pytest.mark.parametrize(("events", "seconds"), [([0, 0], 1.0), ([10, 10], 0.0), ([], 1.0)])
def test_a_sample_without_events_or_work_is_refused(events: list[int], seconds: float) -> None:
    with pytest.raises(UserError, match="EMPTY_SAMPLE"):
        propose_size({"scan": [seconds] * len(events)}, events, 1_000, target_utilisation=0.6)
