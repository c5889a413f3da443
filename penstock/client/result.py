"""Decodes a result of a job: the service's JSON becomes a Polars frame with the job's own types, or plain dicts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

_DATETIME = re.compile(r"Datetime\(time_unit='(ms|us|ns)', time_zone=(?:None|'(.*)')\)")
_DECIMAL = re.compile(r"Decimal\(precision=(\d+), scale=(\d+)\)")
_PLAIN = re.compile(r"U?Int(8|16|32|64|128)|Float(32|64)|Boolean|String")


@dataclass(frozen=True)
class Result:
    """The rows that a job emitted in one epoch. `columns` are their types, as Polars names them."""

    job: str
    epoch: int
    columns: Mapping[str, str]
    _rows: Sequence[dict[str, Any]]

    @staticmethod
    def from_json(facts: Mapping[str, Any]) -> Result | None:
        """Decode JSON; None before the job's first result."""
        if facts["epoch"] is None:
            return None
        columns = {column["name"]: column["type"] for column in facts["columns"]}
        return Result(facts["job"], facts["epoch"], columns, facts["rows"])

    def dicts(self) -> list[dict[str, Any]]:
        """The rows as JSON has them: times as text, durations in seconds."""
        return list(self._rows)

    @property
    def rows(self) -> pl.DataFrame:
        """The rows as a Polars frame; as dicts if Polars is not installed."""
        try:
            import polars as pl
        except ImportError:
            return self.dicts()  # type: ignore[return-value]
        json_types = {name: _json_type(kind) for name, kind in self.columns.items()}
        overrides = {name: getattr(pl, kind) for name, kind in json_types.items() if kind is not None}
        frame = pl.DataFrame(
            self._rows,
            schema=list(self.columns),
            schema_overrides=overrides,
            orient="row",
            infer_schema_length=None,
        )
        return frame.with_columns(
            _decode_column(name, kind).alias(name)
            for name, kind in self.columns.items()
            if json_types[name] != kind
        )

    def __len__(self) -> int:
        return len(self._rows)


def _json_type(kind: str) -> str | None:
    """The type that JSON has for a type; None if Polars infers it."""
    if _PLAIN.fullmatch(kind):
        return kind
    if kind == "Duration" or kind.startswith("Duration("):
        return "Float64"
    if kind in ("Date", "Time", "Binary") or _DATETIME.fullmatch(kind) or _DECIMAL.fullmatch(kind):
        return "String"
    return None


def _decode_column(name: str, kind: str) -> pl.Expr:
    """Decode a column from its JSON type to its own."""
    import polars as pl

    column = pl.col(name)
    if match := _DATETIME.fullmatch(kind):
        unit: Any = match[1]
        instant = column.str.strip_chars_end("Z").str.to_datetime("%Y-%m-%dT%H:%M:%S%.f", time_unit=unit)
        zone = match[2]
        return instant if zone is None else instant.dt.replace_time_zone("UTC").dt.convert_time_zone(zone)
    if match := _DECIMAL.fullmatch(kind):
        return column.cast(pl.Decimal(int(match[1]), int(match[2])))
    if kind.startswith("Duration"):
        return pl.duration(microseconds=(column * 1e6).round().cast(pl.Int64))
    match kind:
        case "Date":
            return column.str.to_date("%Y-%m-%d")
        case "Time":
            return column.str.to_time("%H:%M:%S%.f")
        case "Binary":
            return column.str.decode("base64")
    return column
