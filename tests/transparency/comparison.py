"""Rows in a form that can be compared: sorted, instants as microseconds, numbers to nine digits."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")


def normalize(value: Any) -> Any:
    """Return a value in the form in which it is compared."""
    if isinstance(value, list):
        return [normalize(item) for item in value]
    if isinstance(value, str) and _INSTANT.fullmatch(value):
        value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        value = round(value.timestamp() * 1_000_000)
    if isinstance(value, float):
        return "nan" if math.isnan(value) else float(f"{value:.9g}") + 0.0
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def sorted_rows(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return rows as sorted texts."""
    return sorted(
        json.dumps({name: normalize(value) for name, value in row.items()}, sort_keys=True) for row in rows
    )


def read_rows(folder: Path) -> list[str]:
    """Return the rows of a JSON-lines sink, as sorted texts."""
    lines = (line for file in folder.glob("*.jsonl") for line in file.read_text().splitlines())
    return sorted_rows(map(json.loads, lines))
