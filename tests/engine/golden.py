"""A query with everything in it, its input, and the answers worked out one event at a time in plain Python."""

from __future__ import annotations

import random
from collections import Counter, defaultdict, deque
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl

import penstock as ps
from penstock import col
from penstock.testing.list_log import ListLog

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
    """Comma-separated events: out of order, some too late, some not readable, with gaps of silence."""
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


def build(out: Path, source: dict[str, list[str]] | None = None) -> ps.App:
    """All operators there are, in one app with six outputs over one stream and a union of two."""
    source = source or lines()
    events = ps.stream("events", ListLog(source), decoder(), time="time", lateness=LATENESS)
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
            both.key_by("page").window("1m").count().top(2),
            ps.jsonl(out / "pages"),
        ),
        ps.output(
            "loud",
            events.filter(col("amount") == 1000.0)
            .map_batches(shouted, {"user": pl.String(), "shout": pl.String()})
            .select("user", "shout"),
            ps.jsonl(out / "loud"),
        ),
    )


def parsed(source: dict[str, list[str]], first_partition: int = 0) -> tuple[list[Event], int, int]:
    """Events that count, how many were late, how many were bad."""
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
    """(as_of, rank, key, total) at each end of `every` at which the answer changed."""
    totals: Counter[str] = Counter()
    steps: dict[datetime, list[tuple[str, float]]] = defaultdict(list)
    for at, key, value in keyed:
        steps[_floor(at, every) + timedelta(seconds=every)].append((key, value))
    told: list[tuple[str, float]] = []
    found = []
    for instant in sorted(steps):
        for key, value in steps[instant]:
            totals[key] += value  # type: ignore[assignment]
        answer = sorted(totals.items(), key=lambda item: (-item[1], item[0]))[:k]
        if answer != told:
            told = list(answer)
            found += [(_text(instant), rank, key, total) for rank, (key, total) in enumerate(answer, 1)]
    return found


def row(**columns: Any) -> dict[str, Any]:
    return columns
