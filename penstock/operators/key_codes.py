"""Keys as small numbers, while a batch of events is worked on: numbers are grouped several times faster than texts.

Receives key columns of a batch; hands a number for every row, the same for equal keys, and the keys of numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from penstock.state.buckets import column_hash

Codes = npt.NDArray[np.int64]
#: the column that holds them
CODE = "_code"


@dataclass(frozen=True)
class EncodedColumn:
    """A column's values, each once, and which of them every row has; null is one more."""

    values: pl.Series
    codes: Codes

    @property
    def count(self) -> int:
        return len(self.values)

    @cached_property
    def hashes(self) -> npt.NDArray[np.uint64]:
        """What each value has of a key's hash."""
        return column_hash(self.values)

    @staticmethod
    def of(column: pl.Series) -> EncodedColumn:
        encoded = column.to_arrow()
        if pa.types.is_string_view(encoded.type):
            encoded = encoded.cast(pa.large_string())
        found = encoded.dictionary_encode()
        values = pl.Series(column.name, found.dictionary, dtype=column.dtype)
        codes = found.indices.fill_null(len(values)).to_numpy(zero_copy_only=False).astype(np.int64)
        return EncodedColumn(values.extend(pl.Series([None], dtype=column.dtype)), codes)


@dataclass(frozen=True)
class EncodedKeys:
    """The keys of every row of a batch, in one number."""

    columns: tuple[EncodedColumn, ...]

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

    def value_codes(self, codes: Codes) -> list[Codes]:
        """Which of a column's values the keys of numbers have, column by column."""
        made: list[Codes] = []
        for column in reversed(self.columns[1:]):
            codes, at = np.divmod(codes, column.count)
            made.append(at)
        return [codes, *reversed(made)]


@dataclass(frozen=True)
class KeyDictionary:
    """The keys of several batches, whose numbers begin where those of the one before end."""

    names: tuple[str, ...]
    parts: tuple[tuple[int, EncodedKeys], ...]

    def decode(self, codes: Codes) -> list[pl.Series]:
        """The key columns of numbers that are in order, or at least batch after batch."""
        return [column.values.gather(column.codes) for column in self.columns(codes)]

    def columns(self, codes: Codes) -> list[EncodedColumn]:
        """The same, as numbers of values: a value can be there more than once, where batches have it."""
        begins = np.searchsorted(codes, [first for first, _ in self.parts])
        ends = [*begins[1:], len(codes)]
        found = [
            (keys, keys.value_codes(codes[begin:end] - first))
            for (first, keys), begin, end in zip(self.parts, begins, ends, strict=True)
            if end > begin or not len(codes)
        ]
        return [
            _joined(name, [(keys.columns[number], places[number]) for keys, places in found])
            for number, name in enumerate(self.names)
        ]


def _joined(name: str, parts: Sequence[tuple[EncodedColumn, Codes]]) -> EncodedColumn:
    """One column of several, whose values stand one after the other, each column's once."""
    firsts: dict[int, int] = {}
    columns: list[EncodedColumn] = []
    for column, _ in parts:
        if id(column) not in firsts:
            firsts[id(column)] = sum(before.count for before in columns)
            columns.append(column)
    codes = np.concatenate([places + firsts[id(column)] for column, places in parts])
    return EncodedColumn(pl.concat([column.values for column in columns]).alias(name), codes)


def concat_keys(names: Sequence[str], keys: Sequence[EncodedKeys]) -> KeyDictionary:
    """One dictionary of several batches' keys."""
    firsts = np.concatenate([[0], np.cumsum([part.count for part in keys])[:-1]]).astype(np.int64)
    return KeyDictionary(tuple(names), tuple(zip(map(int, firsts), keys, strict=True)))
