"""Queries on lists of events, run without Spark, and the streams and jobs that they can read."""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import penstock as ps
from penstock.errors import UserError
from penstock.sql.parse import parse
from penstock.sql.select import plan_select
from penstock.sql.statements import Scalar, Select
from penstock.testing import ListLog, ListSink, run_inline

Row = dict[str, Any]
TIME = pl.Datetime("us", "UTC")
CLICKS = {
    "ts": TIME,
    "product": pl.String(),
    "clicks_count": pl.Int64(),
    "price": pl.Float64(),
    "store": pl.String(),
    "small": pl.Int32(),
    "user": pl.Struct({"id": pl.Int64(), "name": pl.String(), "location": pl.String()}),
    "tags": pl.List(pl.String()),
}
STORES = ("video_games", "books", None)


@dataclass
class Names:
    """Streams and jobs by their names."""

    known: dict[str, ps.Stream]
    parameters: Mapping[str, Scalar] = field(default_factory=dict)
    functions: Mapping[str, Callable[..., pl.Expr]] = field(default_factory=dict)
    jobs: dict[str, ps.Stream] = field(default_factory=dict)

    def names(self) -> Sequence[str]:
        return [*self.known, *self.jobs]

    def streams(self) -> Sequence[str]:
        return list(self.known)

    def previous(self, name: str, columns: Mapping[str, pl.DataType] | None) -> ps.Stream | None:
        return None

    def rows(self, name: str) -> ps.Stream | None:
        return self.known.get(name) or self.jobs.get(name)


def events(
    name: str, rows: Sequence[Row], schema: Mapping[str, Any] = CLICKS, time: str | None = "ts"
) -> ps.Stream:
    """A stream of these events; `ts` is in seconds."""
    lines = [json.dumps(row) for row in rows]
    times = {"ts": "s"} if "ts" in schema else {}
    return ps.stream(name, ListLog(lines), ps.json_lines(schema, times=times), time=time, lateness="1d")


def history() -> list[Row]:
    return [
        {
            "ts": 100 + n,
            "product": f"p{n * 7 % 4}",
            "clicks_count": None if n % 5 == 0 else n * 3 % 17,
            "price": n / 4,
            "store": STORES[n % 3],
            "small": n,
            "user": {"id": n % 6, "name": f"@u{n % 6}", "location": "Ohio"},
            "tags": ["a", f"t{n % 2}"],
        }
        for n in range(60)
    ]


def windows(rows: Iterable[Row], size: int, *keys: str) -> dict[tuple[Any, ...], list[Row]]:
    """Rows by window and keys, in the order of windows and then of keys."""
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        groups[(row["ts"] // size * size, *(row[key] for key in keys))].append(row)
    return dict(sorted(groups.items(), key=lambda one: tuple((part is None, part) for part in one[0])))


def select(text: str) -> Select:
    (statement,) = parse(text)
    assert isinstance(statement, Select)
    return statement


def run(text: str, names: Names | Sequence[Row], **surroundings: Any) -> list[Row]:
    """The rows of a query, times as seconds."""
    scope = names if isinstance(names, Names) else Names({"clicks": events("clicks", names)}, **surroundings)
    stream = plan_select(select(text), scope)
    return collect_rows(stream)


def collect_rows(stream: ps.Stream) -> list[Row]:
    sink = ListSink()
    with tempfile.TemporaryDirectory() as state:
        run_inline(ps.app("test", ps.output("rows", stream, sink)), Path(state) / "state", buckets=4)
    rows = sink.rows()
    assert all(list(row) == stream.columns for row in rows)
    return [
        {name: value.timestamp() if hasattr(value, "timestamp") else value for name, value in row.items()}
        for row in rows
    ]


def refusal(text: str, names: Names | Sequence[Row] = (), **surroundings: Any) -> UserError:
    """The error with which a query is refused."""
    scope = names if isinstance(names, Names) else Names({"clicks": events("clicks", names)}, **surroundings)
    with pytest.raises(UserError) as caught:
        plan_select(select(text), scope)
    return caught.value
