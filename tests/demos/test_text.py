"""Word counts, moods and HiBench's four workloads against plain Python."""

from __future__ import annotations

import gzip
import random
import re
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.demos import hibench, sentiment, wordcount
from penstock.testing import ListLog
from tests.demos.kit import assert_same_rows, data, run_three_ways

pytestmark = pytest.mark.slow

BEGIN = datetime(2026, 3, 1, 9, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def add_times(texts: list[str], step: float) -> list[tuple[datetime, str]]:
    """Give each text a time a little later than the one before."""
    return [(BEGIN + timedelta(seconds=step * number), text) for number, text in enumerate(texts)]


def log(texts_at: list[tuple[datetime, str]]) -> ListLog:
    return ListLog([f"{at:%Y-%m-%dT%H:%M:%S.%fZ}\t{text}" for at, text in texts_at])


def floor(at: datetime, seconds: int) -> datetime:
    return EPOCH + (at - EPOCH) // timedelta(seconds=seconds) * timedelta(seconds=seconds)


def expected_counts(
    texts_at: list[tuple[datetime, str]], best: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the expected counts and the expected best words, every ten seconds."""
    by_tick: dict[datetime, list[str]] = defaultdict(list)
    for at, text in texts_at:
        words = "".join(letter if letter.isalpha() else " " for letter in text.lower()).split()
        by_tick[floor(at, 10) + timedelta(seconds=10)] += words
    total: Counter[str] = Counter()
    counts, top, before = [], [], None
    for tick, words in sorted(by_tick.items()):
        total.update(words)
        counts += [{"as_of": tick, "word": word, "count": total[word]} for word in set(words)]
        ranked = sorted(total.items(), key=lambda one: (-one[1], one[0]))[:best]
        if ranked != before:
            before = ranked
            top += [
                {"as_of": tick, "rank": rank, "word": word, "count": count}
                for rank, (word, count) in enumerate(ranked, 1)
            ]
    return counts, top


@pytest.mark.slow
def test_word_counts_match_plain_python_three_ways(tmp_path: Path) -> None:
    draw = random.Random(2)
    texts = [
        " ".join(draw.choices(["Sea", "the", "Ñandú", "whale's", "a-b", "—", "42"], k=5)) for _ in range(120)
    ]
    texts_at = add_times(["", *texts], 0.7)
    rows = run_three_ways(lambda results: wordcount.build(log(texts_at), results, best=3), tmp_path, units=17)
    counts, top = expected_counts(texts_at, 3)
    assert_same_rows(rows["counts"], counts)
    assert_same_rows(rows["top"], top)


@pytest.mark.slow
@pytest.mark.may_skip("the real data")
def test_the_words_of_a_book(tmp_path: Path) -> None:
    text = gzip.decompress(data("moby_dick.txt.gz").read_bytes()).decode()
    texts_at = add_times(text.splitlines()[:1500], 0.5)
    rows = run_three_ways(lambda results: wordcount.build(log(texts_at), results), tmp_path, units=300)
    counts, top = expected_counts(texts_at, 20)
    assert_same_rows(rows["counts"], counts)
    assert_same_rows(rows["top"], top)


def test_moods_match_plain_python_three_ways(tmp_path: Path) -> None:
    draw = random.Random(3)
    words = ["good", "Great", "sad", "badly", "lost", "sea", "#whale", "#Ship", "#harbour", "#sea,"]
    texts_at = add_times([" ".join(draw.choices(words, k=6)) for _ in range(150)], 0.3)
    rows = run_three_ways(lambda results: sentiment.build(log(texts_at), results), tmp_path, units=20)
    scores: dict[tuple[datetime, str], list[int]] = defaultdict(list)
    for at, text in texts_at:
        spoken = re.split(r"\W+", text.lower())
        score = sum(word in ("good", "great") for word in spoken) - sum(
            word in ("sad", "lost") for word in spoken
        )
        for topic in {"#" + tag for tag in re.findall(r"#(\w+)", text.lower())} & {"#whale", "#ship", "#sea"}:
            for ahead in range(10):
                scores[floor(at, 1) - timedelta(seconds=ahead), topic].append(score)
    expected = [
        {
            "window_start": start,
            "window_end": start + timedelta(seconds=10),
            "topic": topic,
            "messages": len(found),
            "glad": sum(score > 0 for score in found),
            "sad": sum(score < 0 for score in found),
            "avg_score": sum(found) / len(found),
        }
        for (start, topic), found in scores.items()
    ]
    assert_same_rows(rows["mood"], expected)
    assert len(expected) > 100


def test_hibench_workloads_match_plain_python_three_ways(tmp_path: Path) -> None:
    draw, lines, visits = random.Random(4), [], []
    for number in range(200):
        at = BEGIN + timedelta(seconds=number // 2)
        host, path = f"10.0.0.{draw.randrange(6)}", f"/p{draw.randrange(5)}"
        visits.append({"time": at, "host": host, "path": path, "status": 200})
        lines.append(f'{host} - - [{at:%d/%b/%Y:%H:%M:%S} +0000] "GET {path} HTTP/1.1" 200 5 "-" "a"')
    rows = run_three_ways(
        lambda results: hibench.build(ListLog(lines), results, cookie=None), tmp_path, units=30
    )
    assert_same_rows(rows["identity"], visits)
    assert_same_rows(rows["repartition"], visits)

    seen: Counter[str] = Counter()
    windows: dict[tuple[datetime, str], list[datetime]] = defaultdict(list)
    counts = []
    for visit in visits:
        seen[visit["path"]] += 1
        counts.append({"as_of": visit["time"], "path": visit["path"], "count": seen[visit["path"]]})
        windows[floor(visit["time"], 30), visit["host"]].append(visit["time"])
    assert_same_rows(rows["wordcount"], counts)
    expected = [
        {
            "window_start": start,
            "window_end": start + timedelta(seconds=30),
            "host": host,
            "visits": len(times),
            "first": min(times),
            "last": max(times),
        }
        for (start, host), times in windows.items()
    ]
    assert_same_rows(rows["fixed_window"], expected)
