"""The contract of decoders: raw bytes of whole records in, typed columns and dead letters out.

Guarantees: a record is in the result once, in `good` or in `bad`; the result depends only on the chunk's bytes and the
requested columns. Bad data raises nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass

import polars as pl

from penstock.logs.contract import Chunk

#: the column with the number of the record in its chunk, from 0, which keeps the order of a partition (UInt32)
ROW = "_row"


@dataclass(frozen=True)
class Decoded:
    """`good`: the requested columns and `_row`, ordered by `_row`.

    `bad`: `_row`, `reason` and `raw` (at most 4,096 bytes, undecodable bytes replaced), ordered by `_row`.
    """

    good: pl.DataFrame
    bad: pl.DataFrame


BAD_SCHEMA = {ROW: pl.UInt32, "reason": pl.String, "raw": pl.String}


class Decoder(ABC):
    """Decodes bytes to columns. Picklable and without state."""

    @abstractmethod
    def schema(self) -> dict[str, pl.DataType]:
        """Every column this decoder can return, with its type."""

    @abstractmethod
    def decode(self, chunk: Chunk, columns: Collection[str]) -> Decoded:
        """Decode the requested columns of a chunk's records."""
