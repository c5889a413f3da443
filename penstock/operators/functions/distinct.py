"""Count different values: exactly, from all of them, or with a theta sketch.

Nulls are ignored; NaN is one value, and so are both zeros.

The sketch is Apache DataSketches'. It keeps the k least hashes. While it is filled it may hold more, depending on the
order of values; a union reduces it to the k least, which are the same in any order. Up to k different values are stored
as they are, in bytes that NumPy reads: there is no sketch, and the count is exact.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import ClassVar

import datasketches
import numpy as np
import polars as pl
import polars_hash  # noqa: F401 - registers the `nchash` namespace
import pyarrow as pa

from penstock.errors import UserError
from penstock.operators.functions.columns import BytesPiece, ColumnPiece, Numbers, build_lists, flatten_lists
from penstock.operators.functions.contract import AggregateFunction, Piece

#: the last byte of a sketch. A list of 8-byte values has a length that 8 divides; a marked sketch does not
_MARK = b"\1"


@dataclass(frozen=True)
class DistinctValues(ColumnPiece):
    """One column of lists of the different values."""

    value: pl.Expr
    of: pl.DataType

    @property
    def dtype(self) -> pl.DataType:
        return pl.List(self.of)

    def values(self) -> pl.Expr:
        return self.value

    def from_events(self) -> list[pl.Expr]:
        return [self.value.drop_nulls().unique().implode().alias(self.column)]

    def from_values(self, values: pl.Series, number: Numbers, count: int) -> pl.Series:
        return build_lists(values, number, count).list.unique()

    def merge_parts(self, parts: pl.Series, number: Numbers, count: int) -> pl.Series:
        values, row = flatten_lists(parts)
        return self.from_values(values, number[row], count)


@dataclass(frozen=True)
class ThetaSketch(BytesPiece):
    """Bytes: up to 2**lg_k different values, 8 bytes each in order, or a theta sketch of more."""

    value: pl.Expr
    lg_k: int

    sorts = True

    def values(self) -> pl.Expr:
        return self.value

    def from_values(self, values: pl.Series, number: Numbers, count: int) -> pl.Series:
        return self._pack(values.to_numpy(), number, count)

    def merge_parts(self, parts: pl.Series, number: Numbers, count: int) -> pl.Series:
        plain = parts.bin.size().to_numpy() % 8 == 0
        sizes = parts.filter(pl.Series(plain)).bin.size().to_numpy() // 8
        content = b"".join(parts.filter(pl.Series(plain)).to_list())
        packed = self._pack(np.frombuffer(content, np.int64), np.repeat(number[plain], sizes), count)
        if plain.all():
            return packed
        whole, sketches = packed.to_list(), parts.filter(pl.Series(~plain)).to_list()
        to_merge: dict[int, list[bytes]] = {}
        for group, sketch in zip(number[~plain].tolist(), sketches, strict=True):
            to_merge.setdefault(group, []).append(sketch)
        for group, some in to_merge.items():
            whole[group] = self.merge_bytes(some if whole[group] is None else [whole[group], *some])
        return pl.Series(whole, dtype=pl.Binary)

    def merge_bytes(self, parts: list[bytes]) -> bytes:
        if len(parts) == 1:
            return parts[0]
        if any(len(part) % 8 for part in parts):
            return self._merge_sketches([self._open_sketch(part) for part in parts])
        content = np.frombuffer(b"".join(parts), np.int64)
        packed: bytes = self._pack(content, np.zeros(len(content), dtype=np.int64), 1).item()
        return packed

    def estimate(self) -> pl.Expr:
        """The number of different values."""

        def each(parts: pl.Series) -> pl.Series:
            sizes = parts.bin.size().fill_null(0)
            counts = (sizes // 8).cast(pl.Int64)
            large = (sizes % 8 != 0).arg_true()
            if not len(large):
                return counts
            estimates = [round(self._open_sketch(part).get_estimate()) for part in parts.gather(large)]
            return counts.scatter(large, estimates)

        return pl.col(self.column).map_batches(each, return_dtype=pl.Int64(), is_elementwise=True)

    def _pack(self, values: np.ndarray, number: Numbers, count: int) -> pl.Series:
        """The sorted different values of each group as bytes, or as a sketch where there are too many."""
        same = number[1:] == number[:-1]
        if (same & (values[1:] < values[:-1])).any():
            order = np.lexsort((values, number))
            values, number = values[order], number[order]
        repeated = np.append(False, same & (values[1:] == values[:-1]))[: len(values)]
        if repeated.any():
            values, number = values[~repeated], number[~repeated]
        offsets = np.searchsorted(number, np.arange(count + 1))
        sizes = np.diff(offsets)
        buffers = [_bitmap(sizes > 0), pa.py_buffer(offsets * 8), pa.py_buffer(np.ascontiguousarray(values))]
        packed = pl.Series(pl.from_arrow(pa.Array.from_buffers(pa.large_binary(), count, buffers)))
        large = np.flatnonzero(sizes > 1 << self.lg_k)
        if not len(large):
            return packed
        whole = packed.to_list()
        for group in large.tolist():
            whole[group] = self._merge_sketches(
                [self._fill_sketch(values[offsets[group] : offsets[group + 1]])]
            )
        return pl.Series(whole, dtype=pl.Binary)

    def _open_sketch(self, part: bytes) -> datasketches.theta_sketch:
        if len(part) % 8 == 0:
            return self._fill_sketch(np.frombuffer(part, np.int64))
        return datasketches.compact_theta_sketch.deserialize(part[: -len(_MARK)])

    def _fill_sketch(self, values: np.ndarray) -> datasketches.theta_sketch:
        sketch = datasketches.update_theta_sketch(self.lg_k)
        deque(map(sketch.update, values.tolist()), maxlen=0)
        return sketch

    def _merge_sketches(self, sketches: list[datasketches.theta_sketch]) -> bytes:
        """The sketch of the k least hashes of all."""
        union = datasketches.theta_union(self.lg_k)
        for sketch in sketches:
            union.update(sketch)
        packed: bytes = union.get_result().serialize() + _MARK
        return packed


def _bitmap(flags: np.ndarray) -> pa.Buffer:
    return pa.py_buffer(np.packbits(flags, bitorder="little"))


@dataclass(frozen=True)
class _Distinct(AggregateFunction):
    """Shared by functions of the different values."""

    def result_type(self, given: pl.DataType) -> pl.DataType:
        if given.is_nested() or given in (pl.Object, pl.Null, pl.Int128, pl.UInt128):
            raise self.type_error("numbers, texts, booleans or times", given, "pl.String")
        return pl.Int64()

    def _canonical_values(self) -> tuple[pl.Expr, pl.DataType]:
        """The values, with one form for equal ones, and their type."""
        assert self.column is not None
        value = pl.col(self.column)
        if isinstance(self.column_type, pl.Categorical | pl.Enum):
            return value.cast(pl.String), pl.String()
        if self.column_type.is_float():
            zero, nan = pl.lit(0.0, self.column_type), pl.lit(float("nan"), self.column_type)
            return pl.when(value == 0).then(zero).when(value.is_nan()).then(nan).otherwise(
                value
            ), self.column_type
        return value, self.column_type


@dataclass(frozen=True)
class CountDistinct(_Distinct):
    """The exact number of different values, an Int64. Stores every one of them."""

    kind: ClassVar[str] = "count-distinct"
    state_version: ClassVar[int] = 1

    @property
    def grows(self) -> bool:
        return True

    @property
    def name(self) -> str:
        return "count_distinct"

    def pieces(self) -> tuple[Piece, ...]:
        return (DistinctValues(self.part("d"), *self._canonical_values()),)

    def result(self) -> pl.Expr:
        return pl.col(self.part("d")).list.len().cast(pl.Int64).fill_null(0).alias(self.alias)


@dataclass(frozen=True)
class ApproxCountDistinct(_Distinct):
    """The number of different values, an Int64: exact up to 2**lg_k, else with a standard error of 2**(-lg_k / 2)."""

    kind: ClassVar[str] = "approx-count-distinct"
    state_version: ClassVar[int] = 1

    lg_k: int = 12

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 5 <= self.lg_k <= 20:
            raise UserError(
                "BAD_SKETCH",
                f"a sketch cannot have 2**{self.lg_k} values",
                hint="Choose lg_k from 5 to 20; 12 is the default and stores 4096 values.",
            )

    @property
    def name(self) -> str:
        return "approx_count_distinct"

    def pieces(self) -> tuple[Piece, ...]:
        return (self._theta(),)

    def result(self) -> pl.Expr:
        return self._theta().estimate().alias(self.alias)

    def _theta(self) -> ThetaSketch:
        return ThetaSketch(self.part("d"), self._value_bits(), self.lg_k)

    def _value_bits(self) -> pl.Expr:
        """A value as 64 bits: those of a number, or a hash of a text."""
        value, dtype = self._canonical_values()
        if dtype.is_float():
            return value.cast(pl.Float64).map_batches(_as_bits, return_dtype=pl.Int64(), is_elementwise=True)
        if dtype == pl.UInt64:
            return value.reinterpret(signed=True)
        if dtype.is_integer() or dtype.is_temporal() or dtype == pl.Boolean:
            return value.to_physical().cast(pl.Int64)
        text = value.to_physical().cast(pl.String) if isinstance(dtype, pl.Decimal) else value
        hashed: pl.Expr = text.nchash.xxhash64()  # type: ignore[attr-defined]
        return hashed.reinterpret(signed=True)


def _as_bits(values: pl.Series) -> pl.Series:
    bits = pl.Series(values.name, values.fill_null(0.0).to_numpy().view(np.int64))
    return bits.set(values.is_null(), None)


def count_distinct(column: str, alias: str | None = None) -> AggregateFunction:
    """The exact number of different values."""
    return CountDistinct(alias or f"count_distinct_{column}", column)


def approx_count_distinct(column: str, alias: str | None = None, *, lg_k: int = 12) -> AggregateFunction:
    """The number of different values, from a sketch of bounded size."""
    return ApproxCountDistinct(alias or f"approx_count_distinct_{column}", column, lg_k=lg_k)
