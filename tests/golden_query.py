"""A query with all operators, its input, and its expected results, computed event by event in plain Python."""

from __future__ import annotations

import random
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl

import penstock as ps
from penstock import col
from penstock.logs import Log
from penstock.testing.list_log import ListLog
from tests.transparency import description as d
from tests.transparency import oracle

BEGIN = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
LATENESS = 5


@dataclass(frozen=True)
class Event:
    partition: int
    offset: int
    time: datetime
    user: str
    page: str
    amount: float


def lines(seed: int = 7, count: int = 300, partitions: int = 2) -> dict[str, list[str]]:
    """Return comma-separated events: out of order, some too late, some undecodable, with silent gaps."""
    draw = random.Random(seed)
    found: dict[str, list[str]] = {}
    for partition in range(partitions):
        at = BEGIN + timedelta(milliseconds=100 * partition)
        part = found.setdefault(f"p{partition}", [])
        for number in range(count):
            at += timedelta(milliseconds=draw.choice([0, 10, 200, 900]))
            jitter = timedelta(seconds=draw.choice([0] * 8 + [3] + ([20] if draw.random() < 0.1 else [2])))
            user, page = f"u{draw.randrange(12)}", f"/{draw.choice('abcde')}"
            amount = draw.choice([0.1, 0.25, 1e-3, -2.5, 1000.0])
            bad = number % 71 == 70
            text = (at - jitter).isoformat()
            part.append("broken line" if bad else f"{text},{user},{page},{amount}")
    return found


def decoder() -> ps.Delimited:
    return ps.Delimited(
        {"time": pl.Datetime("us", "UTC"), "user": pl.String(), "page": pl.String(), "amount": pl.Float64()},
        times={"time": "%Y-%m-%dT%H:%M:%S%.f%:z"},
    )


def shouted(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(shout=pl.col("page").str.to_uppercase())


def before(last: float | None, row: dict[str, Any], emit: Callable[[dict[str, Any]], None]) -> float:
    """Emit each amount with the user's previous one; large ones twice."""
    emit({"key": row["user"], "value": row["amount"], "before": last})
    if row["amount"] > 2:
        emit({"key": row["user"], "value": row["amount"], "before": None})
    return float(row["amount"])


def build(out: Path, source: dict[str, list[str]] | None = None, log: Log | None = None) -> ps.App:
    """Build an app with all operators over two streams."""
    read, silent = log or ListLog(source or lines()), "5s" if log is None else None
    events = ps.stream("events", read, decoder(), time="time", lateness=LATENESS, idle_after=silent)
    other = ps.stream(
        "other", ListLog(lines(seed=8, count=60, partitions=1)), decoder(), time="time", lateness=60
    )
    paths = (
        events.filter(col("page") != "/e")
        .key_by("user")
        .last(3, "page")
        .map(pattern=col("page").list.join(">"))
    )
    both = events.filter(col("amount") > 0).union(other)
    return ps.app(
        "golden",
        ps.output("patterns", paths.select("user", "pattern"), ps.jsonl(out / "patterns")),
        ps.output(
            "top_patterns",
            paths.key_by("pattern").running("10s").count().top(3),
            ps.jsonl(out / "top_patterns"),
        ),
        ps.output(
            "sums",
            events.key_by("user")
            .window("30s")
            .aggregate(ps.sum_("amount", "sum"), ps.count(), ps.avg("amount")),
            ps.jsonl(out / "sums"),
        ),
        ps.output(
            "best_users",
            events.key_by("user").running("20s").sum("amount", "sum").top(2, by="sum"),
            ps.jsonl(out / "best_users"),
        ),
        ps.output(
            "pages",
            both.key_by("page").window("1m").count().top(2, changes_only=True),
            ps.jsonl(out / "pages"),
        ),
        ps.output(
            "loud",
            events.filter(col("amount") == 1000.0)
            .map_batches(shouted, {"user": pl.String(), "shout": pl.String()})
            .select("user", "shout"),
            ps.jsonl(out / "loud"),
        ),
        *(
            ps.output(name, rows, ps.jsonl(out / name))
            for name, rows in by_description(events, other).items()
        ),
    )


def by_description(events: ps.Stream, other: ps.Stream) -> dict[str, ps.Stream]:
    """Return the outputs whose expected rows are computed from `DESCRIBED`."""
    users, great = events.key_by("user"), events.filter(col("amount") == 1000.0)
    slid = users.window("30s", every="10s").emit(every="5s")
    rates = events.filter(col("page") == "/a").map(gone=col("amount") <= 0)
    parts = events.demux(credit=col("amount") <= 0, great=col("amount") > 100)
    return {
        "sliding": slid.aggregate(ps.count("n"), ps.max_("amount", "most"), ps.last("page", "page")),
        "changes": users.window("1m").emit("change").aggregate(ps.count_distinct("page", "pages")),
        "sessions": users.session("2s").aggregate(
            ps.count("n"), ps.first("page", "one"), ps.last("page", "two")
        ),
        "counted": users.count_window(5, 2).aggregate(
            ps.collect("page", "pages"), ps.min_("amount", "least")
        ),
        "landmarks": users.landmark(col("page") == "/a", col("page") == "/d", longest="20s").aggregate(
            ps.count("n"), ps.median("amount", "middle")
        ),
        "joined": great.key_by("user").join(other.key_by("user"), within="5s"),
        "left_joined": great.key_by("page").join(
            other.key_by("page"), after="1s", where=col("user") == col("user_right"), how="left"
        ),
        "looked_up": other.key_by("user").lookup(rates.key_by("user"), deleted="gone"),
        "absent": users.pattern(
            ps.step("asked", col("page") == "/a"),
            ps.step("told", col("page") == "/b", absent=True),
            within="3s",
            columns=["amount"],
        ),
        "distinct": events.distinct("user", "page", within="10s"),
        "rest": parts["rest"].key_by("page").window("20s").count("n"),
        "exploded": users.last(2, "page").explode("page").key_by("page").last(2, "user"),
        "before": users.apply_rows(before, {"key": pl.String, "value": pl.Float64, "before": pl.Float64}),
        "product": great.product(other, col("page") == col("page_right"), within="1s"),
        "tops": events.key_by("user", "page").window("30s").count("n").top(1, per="user", changes_only=True),
        "late": events.late(),
    }


_SECOND = 1_000_000
_EVENTS, _OTHER, _USER = d.Source("events"), d.Source("other"), ("user",)
_GREAT = d.Filter(_EVENTS, d.Compare("amount", "==", 1000.0))
_RATES = d.Map(
    d.Filter(_EVENTS, d.Compare("page", "==", "/a")),
    (("gone", d.Formula("holds", by=d.Compare("amount", "<=", 0))),),
)


def _windows(
    window: Any, *functions: tuple[str, str | None, str], rows: Any = _EVENTS, keys: Any = _USER
) -> Any:
    return d.Windows(rows, keys, window, tuple(d.Aggregate(*function) for function in functions))


#: the same as `by_description` and two more outputs, for the oracle
DESCRIBED: dict[str, Any] = {
    "sliding": _windows(
        d.TimeWindow(30 * _SECOND, 10 * _SECOND, 0, 5 * _SECOND),
        ("count", None, "n"),
        ("max", "amount", "most"),
        ("last", "page", "page"),
    ),
    "changes": _windows(d.TimeWindow(60 * _SECOND, emit="change"), ("count_distinct", "page", "pages")),
    "sessions": _windows(
        d.SessionWindow(2 * _SECOND), ("count", None, "n"), ("first", "page", "one"), ("last", "page", "two")
    ),
    "counted": _windows(d.CountWindow(5, 2), ("collect", "page", "pages"), ("min", "amount", "least")),
    "landmarks": _windows(
        d.LandmarkWindow(d.Compare("page", "==", "/a"), d.Compare("page", "==", "/d"), 20 * _SECOND),
        ("count", None, "n"),
        ("median", "amount", "middle"),
    ),
    "joined": d.Join(_GREAT, _USER, _OTHER, _USER, 5 * _SECOND, 5 * _SECOND),
    "left_joined": d.Join(
        _GREAT,
        ("page",),
        _OTHER,
        ("page",),
        0,
        _SECOND,
        d.Compare("user", "==", d.Other("user_right")),
        "left",
    ),
    "looked_up": d.Lookup(_OTHER, _USER, _RATES, _USER, "left", "gone"),
    "absent": d.Pattern(
        _EVENTS,
        _USER,
        (
            d.Step("asked", d.Compare("page", "==", "/a")),
            d.Step("told", d.Compare("page", "==", "/b"), absent=True),
        ),
        3 * _SECOND,
        contiguous=False,
        skip=False,
        timeouts=False,
        columns=("amount",),
    ),
    "distinct": d.Distinct(_EVENTS, ("user", "page"), 10 * _SECOND),
    "rest": _windows(
        d.TimeWindow(20 * _SECOND),
        ("count", None, "n"),
        rows=d.Demux(
            _EVENTS, (d.Compare("amount", "<=", 0), d.Compare("amount", ">", 100)), 2, every_match=False
        ),
        keys=("page",),
    ),
    "exploded": d.Last(
        d.Explode(d.Last(_EVENTS, _USER, 2, ("page",), False), "page"), ("page",), 2, _USER, False
    ),
    "before": d.Fold(_EVENTS, "user", "amount", ("str", "float")),
    "product": d.Product(
        _GREAT, _OTHER, _SECOND, _SECOND, where=d.Compare("page", "==", d.Other("page_right"))
    ),
    "tops": d.Top(
        _windows(d.TimeWindow(30 * _SECOND), ("count", None, "n"), keys=("user", "page")),
        1,
        "n",
        least=False,
        changes_only=True,
        per=_USER,
    ),
    "late": d.Late("events"),
    "pages": d.Top(
        _windows(
            d.TimeWindow(60 * _SECOND),
            ("count", None, "count"),
            rows=d.Union((d.Filter(_EVENTS, d.Compare("amount", ">", 0)), _OTHER)),
            keys=("page",),
        ),
        2,
        "count",
        least=False,
        changes_only=True,
    ),
    "loud": d.Map(
        _GREAT, (("user", d.Formula("copy", "user")), ("shout", d.Formula("upper", "page"))), only=True
    ),
}


def expected(name: str) -> tuple[list[dict[str, Any]], bool]:
    """Return the expected rows of an output by the oracle, and whether they are certain."""
    return oracle.compute_rows(DESCRIBED[name], logs())


def logs() -> dict[str, oracle.Log]:
    """Return both streams, for the oracle."""
    return {
        "events": _log(lines(), LATENESS),
        "other": _log(lines(seed=8, count=60, partitions=1), 60),
    }


def _log(source: dict[str, list[str]], lateness: int) -> oracle.Log:
    columns = ("time", "user", "page", "amount")
    partitions = []
    for part in source.values():
        fields = [line.split(",") for line in part if line != "broken line"]
        partitions.append(
            [
                dict(zip(columns, (_micros(at), user, page, float(amount)), strict=True))
                for at, user, page, amount in fields
            ]
        )
    return oracle.Log(columns, partitions, "time", lateness * _SECOND)


def _micros(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * _SECOND)


def parse_events(source: dict[str, list[str]], first_partition: int = 0) -> tuple[list[Event], int, int]:
    """Return the events that count, and how many were late and how many bad."""
    events, late, bad = [], 0, 0
    for number, part in enumerate(source.values()):
        newest: datetime | None = None
        for offset, line in enumerate(part):
            if line == "broken line":
                bad += 1
                continue
            text, user, page, amount = line.split(",")
            at = datetime.fromisoformat(text)
            if newest is not None and at < newest - timedelta(seconds=LATENESS):
                late += 1
            else:
                events.append(Event(first_partition + number, offset, at, user, page, float(amount)))
            newest = at if newest is None else max(newest, at)
    return events, late, bad


def _floor(at: datetime, seconds: int) -> datetime:
    return datetime.fromtimestamp(int(at.timestamp()) // seconds * seconds, tz=UTC)


def _text(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def expected_patterns(events: list[Event]) -> list[tuple[Event, str]]:
    recent: dict[str, deque[str]] = defaultdict(lambda: deque(maxlen=3))
    found = []
    for event in sorted(events, key=lambda e: (e.time, e.partition, e.offset)):
        if event.page != "/e":
            recent[event.user].append(event.page)
            if len(recent[event.user]) == 3:
                found.append((event, ">".join(recent[event.user])))
    return found


def expected_running_top(
    keyed: list[tuple[datetime, str, float]], every: int, k: int
) -> list[tuple[str, int, str, float]]:
    """(as_of, rank, key, total) at each end of `every` at which the result changed."""
    totals: Counter[str] = Counter()
    steps: dict[datetime, list[tuple[str, float]]] = defaultdict(list)
    for at, key, value in keyed:
        steps[_floor(at, every) + timedelta(seconds=every)].append((key, value))
    last_emitted: list[tuple[str, float]] = []
    found = []
    for instant in sorted(steps):
        for key, value in steps[instant]:
            totals[key] += value  # type: ignore[assignment]
        answer = sorted(totals.items(), key=lambda item: (-item[1], item[0]))[:k]
        if answer != last_emitted:
            last_emitted = list(answer)
            found += [(_text(instant), rank, key, total) for rank, (key, total) in enumerate(answer, 1)]
    return found


def row(**columns: Any) -> dict[str, Any]:
    return columns
