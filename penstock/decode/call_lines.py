"""Decode call records as `penstock.logs.calls` writes them."""

from __future__ import annotations

import polars as pl

from penstock.decode.delimited import Delimited
from penstock.logs.calls import COLUMNS

_INSTANT = pl.Datetime("us", "UTC")
_TYPES = (pl.String, pl.String, _INSTANT, _INSTANT, pl.Int32, pl.Float64, pl.Float64, _INSTANT)


def call_lines() -> Delimited:
    """A decoder of calls: `src`, `dst`, `start`, `end`, `district`, `lat`, `lon` and `ts`, the time of emission."""
    return Delimited(
        dict(zip(COLUMNS, _TYPES, strict=True)), quote=None, times=dict.fromkeys(("start", "end", "ts"), "us")
    )
