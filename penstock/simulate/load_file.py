"""Reads a load from a CSV file of `time,rate`.

Receives a path; returns instants (seconds from the first) and events a second, or reports which row is wrong.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path

from penstock.errors import UserError


def read_points(path: Path, names: Sequence[str]) -> list[tuple[float, float]]:
    """The points of a file, ascending; `names`: the traces that need no file."""
    if not path.is_file():
        raise UserError(
            "NO_SUCH_TRACE",
            f"{str(path)!r} is neither a trace nor a file",
            hint=f"Use one of {', '.join(names)}, or a CSV file with the columns time and rate.",
        )
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        rows = [row for row in csv.reader(file) if row and not row[0].lstrip().startswith("#")]
    if rows and [cell.strip().lower() for cell in rows[0][:2]] == ["time", "rate"]:
        del rows[0]
    points: list[tuple[float, float]] = []
    for number, row in enumerate(rows, 1):
        try:
            at, rate = float(row[0]), float(row[1])
        except (ValueError, IndexError):
            raise bad_trace(path, f"row {number} is not two numbers: {','.join(row)[:80]!r}") from None
        if not (math.isfinite(at) and math.isfinite(rate)) or rate < 0:
            raise bad_trace(
                path, f"row {number} has a rate or a time that is not possible: {','.join(row)[:80]!r}"
            )
        if points and at <= points[-1][0]:
            raise bad_trace(path, f"row {number} is not later than the row before it")
        points.append((at, rate))
    if len(points) < 2:
        raise bad_trace(path, f"it has {len(points)} rows")
    return [(at - points[0][0], rate) for at, rate in points]


def bad_trace(path: Path, why: str) -> UserError:
    """The error for a file that is not a load."""
    return UserError(
        "BAD_TRACE",
        f"{path} is not a trace",
        detail=f"{why}.",
        hint="Write lines of time,rate: seconds, ascending, and events a second; at least two.",
    )
