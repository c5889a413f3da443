"""What a service tells of its engine in numbers, and of records it put aside.

Receives gauges, or a folder of the state; hands what the API tells.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl

from penstock.engine.gauges import Gauges


def numbers(gauges: Gauges) -> dict[str, Any]:
    """Epochs, events and latency so far."""
    latency, rate = gauges.latency(recent=True), gauges.rate()
    return {
        "epochs": gauges.epochs,
        "events": gauges.events,
        "events_per_second": rate if gauges.epochs else 0.0,
        "late": gauges.late,
        "leaped": gauges.leaped,
        "dead": gauges.bad,
        "latency_seconds": None if latency is None else {"p50": latency.p50, "p99": latency.p99},
        "watermark": _instant(gauges.watermark),
        "watermarks": {name: _instant(mark) for name, mark in gauges.watermarks.items()},
        "state_bytes": gauges.state_bytes,
    }


def put_aside(folder: Path, committed: int, most: int) -> list[dict[str, Any]]:
    """The records in a folder that committed epochs have put aside, the latest first."""
    found: list[dict[str, Any]] = []
    for path in sorted(folder.glob("epoch-*.jsonl"), reverse=True):
        rows = pl.read_ndjson(path, infer_schema_length=None)
        epoch = int(path.stem.removeprefix("epoch-"))
        if epoch <= committed:
            found += [{"epoch": epoch, **row} for row in rows.reverse().head(most - len(found)).to_dicts()]
        if len(found) >= most:
            break
    return found


def _instant(micros: int | None) -> str | None:
    """An instant for people; None before there is one, and once all of time has passed."""
    if micros is None or abs(micros) > 250_000_000_000_000_000:
        return None
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)).isoformat()
