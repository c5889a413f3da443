"""What a job told in one epoch, as a client has it.

Receives the service's JSON; hands a Polars frame with the job's own types, where Polars is there, and plain dicts.
"""

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
class Told:
    """A job's rows of one epoch. `columns` are their types, as Polars names them."""

    job: str
    epoch: int
    columns: Mapping[str, str]
    _rows: Sequence[dict[str, Any]]

    @staticmethod
    def of(facts: Mapping[str, Any]) -> Told | None:
        """From JSON; None before the job's first answer."""
        if facts["epoch"] is None:
            return None
        columns = {column["name"]: column["type"] for column in facts["columns"]}
        return Told(facts["job"], facts["epoch"], columns, facts["rows"])

    def dicts(self) -> list[dict[str, Any]]:
        """The rows as they came: times as text, lengths of time in seconds."""
        return list(self._rows)

    @property
    def rows(self) -> pl.DataFrame:
        """The rows as a Polars frame; as dicts where there is no Polars."""
        try:
            import polars as pl
        except ImportError:
            return self.dicts()  # type: ignore[return-value]
        sent = {name: _sent_as(kind) for name, kind in self.columns.items()}
        known = {name: getattr(pl, kind) for name, kind in sent.items() if kind is not None}
        frame = pl.DataFrame(
            self._rows,
            schema=list(self.columns),
            schema_overrides=known,
            orient="row",
            infer_schema_length=None,
        )
        return frame.with_columns(
            _as_meant(name, kind).alias(name) for name, kind in self.columns.items() if sent[name] != kind
        )

    def __len__(self) -> int:
        return len(self._rows)


def _sent_as(kind: str) -> str | None:
    """What JSON has for a type: None where Polars finds that out by itself."""
    if _PLAIN.fullmatch(kind):
        return kind
    if kind == "Duration" or kind.startswith("Duration("):
        return "Float64"
    if kind in ("Date", "Time", "Binary") or _DATETIME.fullmatch(kind) or _DECIMAL.fullmatch(kind):
        return "String"
    return None


def _as_meant(name: str, kind: str) -> pl.Expr:
    """A column with the type it had before it travelled."""
    import polars as pl

    column = pl.col(name)
    if found := _DATETIME.fullmatch(kind):
        unit: Any = found[1]
        read = column.str.strip_chars_end("Z").str.to_datetime("%Y-%m-%dT%H:%M:%S%.f", time_unit=unit)
        zone = found[2]
        return read if zone is None else read.dt.replace_time_zone("UTC").dt.convert_time_zone(zone)
    if found := _DECIMAL.fullmatch(kind):
        return column.cast(pl.Decimal(int(found[1]), int(found[2])))
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
