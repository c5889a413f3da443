"""Encode the keys of a batch of events as numbers (dictionary encoding), which are grouped several times faster.

Every row gets one number for all its key columns. Equal keys have equal numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from penstock.state.buckets import column_hash

Codes = npt.NDArray[np.int64]
#: the column of the codes
CODE = "_code"


@dataclass(frozen=True)
class EncodedColumn:
    """A dictionary-encoded column: its distinct values, null last, and for each row the number of its value."""

    values: pl.Series
    codes: Codes

    @property
    def count(self) -> int:
        return len(self.values)

    @cached_property
    def hashes(self) -> npt.NDArray[np.uint64]:
        """The part of each value in the hash of a key."""
        return column_hash(self.values)

    @staticmethod
    def of(column: pl.Series) -> EncodedColumn:
        encoded = column.to_arrow()
        if pa.types.is_string_view(encoded.type):
            encoded = encoded.cast(pa.large_string())
        dictionary = encoded.dictionary_encode()
        values = pl.Series(column.name, dictionary.dictionary, dtype=column.dtype)
        codes = dictionary.indices.fill_null(len(values)).to_numpy(zero_copy_only=False).astype(np.int64)
        return EncodedColumn(values.extend(pl.Series([None], dtype=column.dtype)), codes)


@dataclass(frozen=True)
class EncodedKeys:
    """The keys of every row of a batch, as one number."""

    columns: tuple[EncodedColumn, ...]

    @property
    def count(self) -> int:
        """One more than the highest possible code."""
        return math.prod(column.count for column in self.columns)

    def codes(self, rows: int) -> Codes:
        """The code of every row."""
        codes = np.zeros(rows, dtype=np.int64)
        for column in self.columns:
            codes = codes * column.count + column.codes
        return codes

    def value_codes(self, codes: Codes) -> list[Codes]:
        """For every key column the numbers of the values that these codes stand for."""
        by_column: list[Codes] = []
        for column in reversed(self.columns[1:]):
            codes, of_column = np.divmod(codes, column.count)
            by_column.append(of_column)
        return [codes, *reversed(by_column)]


@dataclass(frozen=True)
class KeyDictionary:
    """The keys of several batches; the codes of a batch start where those of the batch before end."""

    names: tuple[str, ...]
    #: the first code of each batch, and its keys
    parts: tuple[tuple[int, EncodedKeys], ...]

    def decode(self, codes: Codes) -> list[pl.Series]:
        """The key columns of these codes, which stand batch after batch."""
        return [column.values.gather(column.codes) for column in self.columns(codes)]

    def columns(self, codes: Codes) -> list[EncodedColumn]:
        """The encoded key columns of these codes. A value that several batches have can be there several times."""
        starts = np.searchsorted(codes, [first for first, _ in self.parts])
        ends = [*starts[1:], len(codes)]
        parts = [
            (keys, keys.value_codes(codes[start:end] - first))
            for (first, keys), start, end in zip(self.parts, starts, ends, strict=True)
            if end > start or not len(codes)
        ]
        return [
            _concat_columns(name, [(keys.columns[number], by_column[number]) for keys, by_column in parts])
            for number, name in enumerate(self.names)
        ]


def _concat_columns(name: str, parts: Sequence[tuple[EncodedColumn, Codes]]) -> EncodedColumn:
    """One column of several, with codes into each. The values of each distinct column stand there once."""
    starts: dict[int, int] = {}
    columns: list[EncodedColumn] = []
    for column, _ in parts:
        if id(column) not in starts:
            starts[id(column)] = sum(earlier.count for earlier in columns)
            columns.append(column)
    codes = np.concatenate([part + starts[id(column)] for column, part in parts])
    return EncodedColumn(pl.concat([column.values for column in columns]).alias(name), codes)


def concat_keys(names: Sequence[str], keys: Sequence[EncodedKeys]) -> KeyDictionary:
    """One dictionary of the keys of several batches."""
    firsts = np.concatenate([[0], np.cumsum([part.count for part in keys])[:-1]]).astype(np.int64)
    return KeyDictionary(tuple(names), tuple(zip(map(int, firsts), keys, strict=True)))
