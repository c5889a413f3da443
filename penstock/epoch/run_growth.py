"""How the bytes that a durable manifest brings to disk grow with the epochs since the one before.

Receives the report of every epoch; hands the power: with 1 a manifest of n epochs writes n times what one of every
epoch does; with less it saves what was merged or dropped in between.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

from penstock.epoch.report import EpochReport

#: durable manifests that count: large merges come seldom, and are part of the mean
_KEPT = 64


class RunGrowth:
    """Measured where manifests are several epochs apart; 1 until then."""

    def __init__(self) -> None:
        self._runs: list[int] = []
        #: of durable manifests: the epochs they close, the bytes of all their runs, the bytes brought to disk
        self._closed: deque[tuple[int, int, int]] = deque(maxlen=_KEPT)

    def add(self, report: EpochReport) -> None:
        """Count an epoch."""
        self._runs.append(report.run_bytes)
        if report.durable_epoch == report.epoch:
            if len(self._runs) > 1:
                self._closed.append((len(self._runs), sum(self._runs), report.checkpoint_bytes))
            self._runs = []

    @property
    def power(self) -> float:
        return power(self._closed)


def power(closed: Sequence[tuple[int, int, int]]) -> float:
    """The power that the sums over durable manifests tell, from 0 to 1."""
    epochs, written, durable = (sum(column) for column in zip(*closed, strict=True)) if closed else (0, 0, 0)
    if not written or not durable:
        return 1.0
    apart, each = epochs / len(closed), written / epochs
    return min(max(math.log(durable / len(closed) / each) / math.log(apart), 0.0), 1.0)
