"""Frames without rows, on which expressions are tried out: made once for each list of columns."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import polars as pl


def no_rows(schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """A frame of these columns without rows."""
    return _made(tuple(schema.items()))


@functools.lru_cache(maxsize=256)
def _made(columns: tuple[tuple[str, pl.DataType], ...]) -> pl.DataFrame:
    return pl.DataFrame(schema=dict(columns))
