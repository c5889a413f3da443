"""A frame with values of many types, written as a run."""

from __future__ import annotations

from datetime import UTC, datetime

import polars as pl

from penstock.state.buckets import HASH, with_hash
from penstock.state.run import RunEntry
from penstock.state.run_store import RunStore

FRAME = pl.DataFrame(
    {
        "user": ["ada", None, "żółw 🐢", ""],
        "n": [1, None, -(2**63), 2**63 - 1],
        "x": [float("nan"), -0.0, None, float("inf")],
        "list": [["a", None], [], None, ["b"]],
        "time": [datetime(2026, 1, 1, tzinfo=UTC), None, None, datetime(1969, 1, 1, tzinfo=UTC)],
        "flag": [True, False, None, True],
    },
    schema_overrides={"time": pl.Datetime("us", "UTC")},
)


def sorted_by_hash(frame: pl.DataFrame, *keys: str) -> pl.DataFrame:
    return with_hash(frame, keys).sort(HASH)


def write_run(store: RunStore, frame: pl.DataFrame, **changed: object) -> RunEntry:
    arguments = {"collection": "op.c", "epoch": 3, "through": 3, "buckets": 8, "time": None} | changed
    return store.write(frame, **arguments)  # type: ignore[arg-type]
