"""Walks and hot pages against plain Python."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from penstock.demos.clickstream import build
from penstock.testing import ListLog
from tests.demos.kit import Row, assert_same_rows, run_three_ways

pytestmark = pytest.mark.slow

BEGIN = datetime(2026, 3, 1, 9, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
AGENTS = {
    "Mozilla/5.0 (X11; Linux)": "computer",
    "Mozilla/5.0 (iPhone; CPU)": "phone",
    "Mozilla/5.0 (compatible; Googlebot/2.1)": "robot",
    "curl/8": "other",
}
SITES = {
    "-": "none",
    "https://news.example/a?b": "news.example",
    "http://shop.example:8080/x": "shop.example",
}


def floor(at: datetime, seconds: int) -> datetime:
    return EPOCH + (at - EPOCH) // timedelta(seconds=seconds) * timedelta(seconds=seconds)


def rank(counts: Counter[str], name: str) -> list[Row]:
    best = sorted(counts.items(), key=lambda one: (-one[1], one[0]))[:3]
    return [{"rank": rank, name: key, "count": count} for rank, (key, count) in enumerate(best, 1)]


def test_walks_and_hot_pages_match_plain_python_three_ways(tmp_path: Path) -> None:
    draw, lines, clicks = random.Random(8), [], []
    for number in range(300):
        at = BEGIN + timedelta(seconds=number // 3)
        path, agent, referer = (
            draw.choice(["/a", "/b?q=1", "/b", "/c", "/x.css"]),
            draw.choice([*AGENTS]),
            draw.choice([*SITES]),
        )
        user = f"u{draw.randrange(9)}"
        lines.append(
            f'10.0.0.1 - - [{at:%d/%b/%Y:%H:%M:%S} +0000] "GET {path} HTTP/1.1" 200 5 '
            f'"{referer}" "{agent}" "session={user}"'
        )
        if path != "/x.css":
            clicks.append((at, user, path.split("?")[0], SITES[referer], AGENTS[agent]))
    rows = run_three_ways(lambda results: build(ListLog(lines), results, best=3), tmp_path, units=40)

    windows: dict[str, dict[tuple[datetime, str], Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    walks: dict[datetime, list[str]] = defaultdict(list)
    seen: dict[str, list[str]] = defaultdict(list)
    for at, user, page, site, segment in clicks:
        seen[user].append(page)
        if len(seen[user]) >= 3:
            walks[floor(at, 5) + timedelta(seconds=5)].append(" > ".join(seen[user][-3:]))
        for name, group in (("pages", ""), ("sites", site), ("segments", segment)):
            windows[name][floor(at, 30), group][page] += 1
    for name, counts_by_window in windows.items():
        expected = []
        for (start, group), counts in counts_by_window.items():
            window = {"window_start": start, "window_end": start + timedelta(seconds=30)}
            of = {} if name == "pages" else {name.removesuffix("s"): group}
            expected += [{**window, **of, **row} for row in rank(counts, "page")]
        assert_same_rows(rows[name], expected)

    total: Counter[str] = Counter()
    patterns: list[Row] = []
    before: list[Row] = []
    for tick, found in sorted(walks.items()):
        total.update(found)
        if (best := rank(total, "pattern")) != before:
            before = best
            patterns += [{"as_of": tick, **row} for row in best]
    assert_same_rows(rows["patterns"], patterns)
    assert len(patterns) > 30
