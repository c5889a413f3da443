"""The jobs of the jobs benchmark: drawn from a seed, written in SQL, and computed correctly by plain batch code."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from bench import jobs_reference as reference
from bench.dataset import Dataset, Parameters, make_dataset
from bench.job_queries import Aggregate, Condition, Job, Words, answer, jobs_of
from bench.pyspark_jobs import outcome
from bench.worker import Task, run_task
from penstock.errors import InternalError

WORDS = Words(
    path=("/", "/search", "/it's"),
    method=("GET", "POST"),
    status=(200, 404),
    agent=("Mozilla/5.0", "curl"),
    referer=("http://shop.example/",),
    session=("u0000001", "u0000020"),
)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_dataset(Parameters(3_000, rate=30), tmp_path_factory.mktemp("clicks"))


def test_the_template_has_a_constant_for_each_job() -> None:
    first, second, third, again = jobs_of("template", 4, WORDS)
    assert first.sql() == (
        "SELECT window_start, path, COUNT(*) AS n, SUM(bytes) AS b FROM clicks WHERE path == '/' "
        "GROUP BY path WINDOWING 10 SECONDS"
    )
    assert second.where_sql() == "path == '/search'"
    assert third.where_sql() == "path == '/it''s'"
    assert again.where == first.where


def test_arbitrary_jobs_depend_on_the_seed_alone_and_fewer_are_the_first_of_more() -> None:
    many = jobs_of("arbitrary", 200, WORDS, seed=3)
    assert many == jobs_of("arbitrary", 200, WORDS, seed=3)
    assert many[:20] == jobs_of("arbitrary", 20, WORDS, seed=3)
    assert many != jobs_of("arbitrary", 200, WORDS, seed=4)
    assert [job.number for job in many if job.every < job.seconds] == list(range(7, 200, 8))
    assert [job.number for job in many if job.top] == list(range(9, 200, 10))
    assert {len(job.where) for job in many} == {len(job.aggregates) for job in many} == {1, 2, 3}
    assert {len(job.keys) for job in many} == {1, 2}
    assert {c.comparison for job in many for c in job.where} == {"=", "<>", "<", ">", "BETWEEN", "IN", "LIKE"}
    assert {a.function for job in many for a in job.aggregates} == {"COUNT", "SUM", "AVG", "MIN", "MAX"}
    assert all(job.aggregates[0].function == "COUNT" for job in many if job.top)


def test_a_job_in_sql() -> None:
    where = (
        Condition("bytes", "BETWEEN", (1, 5)),
        Condition("agent", "LIKE", ("Moz",)),
        Condition("status", "IN", (200, 404)),
    )
    aggregates = (Aggregate("COUNT", "*", "a0"), Aggregate("AVG", "bytes", "a1"))
    job = Job(0, where, ("path", "status"), aggregates, 60, 10, top=10)
    assert job.sql() == (
        "SELECT window_start, path, status, COUNT(*) AS a0, AVG(bytes) AS a1 FROM clicks "
        "WHERE bytes BETWEEN 1 AND 5 AND agent LIKE 'Moz%' AND status IN (200, 404) GROUP BY path, status "
        "ORDER BY a0 DESC, path, status LIMIT 10 WINDOWING 60 SECONDS EVERY 10 SECONDS"
    )
    assert job.columns == ("path", "status", "bytes", "agent")


def test_answers_are_the_same_for_the_same_rows_in_any_order_and_differ_otherwise() -> None:
    (job,) = jobs_of("template", 1, WORDS)
    rows = pl.DataFrame({"window_start": [0, 10], "path": ["/", None], "n": [3, 2], "b": [7, None]})
    same = rows.reverse().with_columns(
        pl.col("b").fill_null(0), pl.col("window_start").cast(pl.Datetime("us", "UTC"))
    )
    assert answer(job, rows) == answer(job, same)
    assert answer(job, rows)[:2] == [0, 2]
    assert answer(job, rows) != answer(job, rows.with_columns(pl.lit(3).alias("n")))


def plainly(job: Job, events: pl.DataFrame) -> dict[tuple[Any, ...], list[Any]]:
    """The answer, an event at a time."""
    tests = {
        "==": lambda x, v: x == v[0],
        "=": lambda x, v: x == v[0],
        "<>": lambda x, v: x != v[0],
        "<": lambda x, v: x < v[0],
        ">": lambda x, v: x > v[0],
        "BETWEEN": lambda x, v: v[0] <= x <= v[1],
        "IN": lambda x, v: x in v,
        "LIKE": lambda x, v: x.startswith(v[0]),
    }
    groups = defaultdict(list)
    for event in events.iter_rows(named=True):
        met = (
            event[c.column] is not None and tests[c.comparison](event[c.column], c.values) for c in job.where
        )
        if all(met):
            second = event["time"] // 1_000_000
            first = (second - job.seconds) // job.every + 1
            for window in range(first, second // job.every + 1):
                groups[window * job.every, *(event[key] for key in job.keys)].append(event)
    return {key: [_plain(a, group) for a in job.aggregates] for key, group in groups.items()}


def _plain(aggregate: Aggregate, events: list[dict[str, Any]]) -> float | None:
    if aggregate.function == "COUNT":
        return len(events)
    values = [event[aggregate.column] for event in events if event[aggregate.column] is not None]
    if not values:
        return 0 if aggregate.function == "SUM" else None
    made = {"SUM": sum, "MIN": min, "MAX": max, "AVG": lambda v: sum(v) / len(v)}[aggregate.function]
    return made(values)


def test_the_reference_is_right(small: Dataset) -> None:
    events = reference.clicks(small)
    for job in [
        *jobs_of("template", 2, reference.words_of(small)),
        *jobs_of("arbitrary", 40, reference.words_of(small)),
    ]:
        right, rows_by_window = plainly(job, events), defaultdict(list)
        for start, *rest in reference.rows(job, events).iter_rows():
            keys, values = rest[: len(job.keys)], rest[len(job.keys) :]
            rows_by_window[start // 1_000_000].append((tuple(keys), pytest.approx(values)))
        expected = defaultdict(list)
        for (start, *keys), values in right.items():
            expected[start].append((tuple(keys), values))
        assert rows_by_window.keys() == expected.keys(), job.sql()
        for start, rows in expected.items():
            if job.top is not None:
                rows = sorted(rows, key=lambda row: (-row[1][0], row[0]))[: job.top]
            assert dict(rows) == dict(rows_by_window[start]), job.sql()


@pytest.mark.spark
@pytest.mark.timeout(240)
@pytest.mark.soak
def test_plain_pyspark_answers_jobs_rightly(small: Dataset) -> None:
    (made,) = run_task(Task("pyspark", "jobs", (small,), family="arbitrary", jobs=4, limit_seconds=200))
    jobs = jobs_of("arbitrary", 4, reference.words_of(small))
    assert made.answer == reference.answers(jobs, small)
    assert (made.events, made.stages["jobs done"], made.stages["share read"]) == (small.events, 4, 1)


def report(at: int, milliseconds: int, rows: int) -> dict[str, Any]:
    return {
        "timestamp": f"2026-01-01T00:00:{at:02d}.000Z",
        "durationMs": {"addBatch": 1, "triggerExecution": milliseconds},
        "numInputRows": rows,
    }


def test_jobs_that_are_cut_short_say_how_far_they_came(tmp_path: Path) -> None:
    dataset = Dataset(99, 1, tmp_path, tmp_path)
    jobs = jobs_of("template", 2, WORDS)
    progress = [[report(0, 500, 60), report(2, 500, 40)], [report(1, 3_000, 50)]]
    made = outcome(jobs, dataset, progress, {}, cut_short=True)
    assert (made.events, made.seconds, made.epochs, made.answer) == (50, 4.0, 3, [])
    assert made.stages == {"jobs": 2, "jobs done": 1, "share read": 0.75}
    with pytest.raises(InternalError, match="took 50 of 100"):
        outcome(jobs, dataset, progress, {}, cut_short=False)
    with pytest.raises(InternalError, match="no trigger"):
        outcome(jobs, dataset, [[], []], {}, cut_short=True)
