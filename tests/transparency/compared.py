"""Rows as they are compared: in no order, instants as microseconds, numbers to nine digits."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")


def plain(value: Any) -> Any:
    """A value that equals another if it is written alike."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, str) and _INSTANT.fullmatch(value):
        value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        value = round(value.timestamp() * 1_000_000)
    if isinstance(value, float):
        return "nan" if math.isnan(value) else float(f"{value:.9g}") + 0.0
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def sorted_rows(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Rows as sorted texts."""
    return sorted(
        json.dumps({name: plain(value) for name, value in row.items()}, sort_keys=True) for row in rows
    )


def rows_of(folder: Path) -> list[str]:
    """What a JSON-lines sink holds."""
    lines = (line for file in folder.glob("*.jsonl") for line in file.read_text().splitlines())
    return sorted_rows(map(json.loads, lines))
