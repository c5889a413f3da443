"""A stream of pages and bytes with any number of different pages, which fills a state.

The batches of events depend on the number of keys and the seed alone.

Pages are drawn evenly: a batch has hardly a page twice, so that nothing is gained by reducing it first, which is the
worst case for a state. With three events a key 95 of 100 keys occur.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from penstock.logs.draw import below, draws, mixed

PAGE, BYTES = "page", "bytes"
_CATEGORIES = ("garden", "kitchen", "books", "toys", "music", "outdoor", "tools", "sale")


@dataclass(frozen=True)
class KeyStream:
    """How many keys there are to draw from, and how their events come."""

    keys: int
    events_a_key: int = 3
    batch_events: int = 100_000
    seed: int = 1

    @property
    def events(self) -> int:
        return self.keys * self.events_a_key

    def batches(self) -> Iterator[pl.DataFrame]:
        """The events, batch after batch: `page`, a text of some 20 letters, and `bytes`, an Int64."""
        for first in range(0, self.events, self.batch_events):
            yield self._batch(first, min(self.batch_events, self.events - first))

    def _batch(self, first: int, count: int) -> pl.DataFrame:
        draw = draws(self.seed, 0, first, count)
        number = below(draw, self.keys)
        category = pl.Series(_CATEGORIES).gather(pl.Series(number % len(_CATEGORIES)))
        columns = pl.DataFrame(
            {"shelf": category, "number": number, BYTES: 300 + below(mixed(draw + np.uint64(1)), 40_000)}
        )
        return columns.select(pl.format("/products/{}/{}", "shelf", "number").alias(PAGE), BYTES)
