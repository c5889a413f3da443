"""Keys as small numbers, while a batch of events is worked on: numbers are grouped several times faster than texts.

Receives key columns of a batch; hands a number for every row, the same for equal keys, and the keys of numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

Codes = npt.NDArray[np.int64]
#: the column that holds them
CODE = "_code"


@dataclass(frozen=True)
class Column:
    """A column's values, each once, and which of them every row has; null is one more."""

    values: pl.Series
    codes: Codes

    @property
    def count(self) -> int:
        return len(self.values)

    @staticmethod
    def of(column: pl.Series) -> Column:
        encoded = column.to_arrow()
        if pa.types.is_string_view(encoded.type):
            encoded = encoded.cast(pa.large_string())
        found = encoded.dictionary_encode()
        values = pl.Series(column.name, found.dictionary, dtype=column.dtype)
        codes = found.indices.fill_null(len(values)).to_numpy(zero_copy_only=False).astype(np.int64)
        return Column(values.extend(pl.Series([None], dtype=column.dtype)), codes)


@dataclass(frozen=True)
class Keys:
    """The keys of every row of a batch, in one number."""

    columns: tuple[Column, ...]

    @property
    def count(self) -> int:
        """One more than the highest number there can be."""
        made = 1
        for column in self.columns:
            made *= column.count
        return made

    def codes(self, rows: int) -> Codes:
        """The number of every row."""
        made = np.zeros(rows, dtype=np.int64)
        for column in self.columns:
            made = made * column.count + column.codes
        return made

    def values(self, codes: Codes) -> list[pl.Series]:
        """The keys of numbers, column by column."""
        made: list[pl.Series] = []
        for column in reversed(self.columns):
            codes, at = np.divmod(codes, column.count)
            made.append(column.values.gather(at))
        return made[::-1]


@dataclass(frozen=True)
class Dictionary:
    """The keys of several batches, whose numbers begin where those of the one before end."""

    names: tuple[str, ...]
    parts: tuple[tuple[int, Keys], ...]

    def decoded(self, codes: Codes) -> list[pl.Series]:
        """The key columns of numbers that are in order."""
        begins = np.searchsorted(codes, [first for first, _ in self.parts])
        ends = [*begins[1:], len(codes)]
        found = [
            keys.values(codes[begin:end] - first)
            for (first, keys), begin, end in zip(self.parts, begins, ends, strict=True)
            if end > begin or not len(codes)
        ]
        return [
            pl.concat([columns[number] for columns in found]).alias(name)
            for number, name in enumerate(self.names)
        ]


def together(names: Sequence[str], keys: Sequence[Keys]) -> Dictionary:
    """One dictionary of several batches' keys."""
    firsts = np.concatenate([[0], np.cumsum([part.count for part in keys])[:-1]]).astype(np.int64)
    return Dictionary(tuple(names), tuple(zip(map(int, firsts), keys, strict=True)))
