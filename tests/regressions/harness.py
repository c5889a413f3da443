"""Streams of a few rows, written as dictionaries, and the rows of queries on them, for the smallest examples."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import polars as pl

import penstock as ps
from penstock.testing.inline import run_inline
from penstock.testing.list_log import ListLog

S = 1_000_000
COLUMNS = {
    "time": pl.Datetime("us", "UTC"),
    "user": pl.String(),
    "page": pl.String(),
    "n": pl.Int64(),
    "x": pl.Float64(),
    "tags": pl.List(pl.String()),
}


def ev(second: float, **columns: Any) -> dict[str, Any]:
    """An event at a second of event time."""
    return {"time": int(second * S), **columns}


def stream(rows: Any, name: str = "s", *, finished: bool = True, **options: Any) -> ps.Stream:
    """A stream of events: a list of them, or a list for each partition."""
    parts = rows if isinstance(rows, dict) else {"p0": rows}
    lines = {name: [json.dumps(row) for row in part] for name, part in parts.items()}
    decoder = ps.json_lines(COLUMNS, times={"time": "us"})
    return ps.stream(name, ListLog(lines, finished=finished), decoder, time="time", **options)


def run(*streams: ps.Stream, slices: int = 2, units: int = 1 << 40, **options: Any) -> Any:
    """The rows that the streams emit: a list for each, or one list for one stream."""
    app = ps.app("t", *(ps.output(f"o{at}", rows) for at, rows in enumerate(streams)))
    emitted: dict[str, list[dict[str, Any]]] = {f"o{at}": [] for at in range(len(streams))}
    with tempfile.TemporaryDirectory() as folder:
        reports = run_inline(
            app, Path(folder) / "state", slices=slices, epoch_units=units, buckets=8, **options
        )
    for report in reports:
        for name, rows in report.rows.items():
            emitted[name] += rows.to_dicts()
    outputs = list(emitted.values())
    return outputs[0] if len(outputs) == 1 else outputs
