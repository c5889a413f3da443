"""The work that an epoch reports by task, stage, slice and bucket; and that one hot key is not one hot slice."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

import penstock as ps
from penstock import col
from penstock.epoch.migration import MapChange
from penstock.epoch.task_work import StageWork, bucket_bytes
from penstock.state.bucket_map import even_maps
from penstock.state.buckets import buckets_of, key_hash
from penstock.state.run import RunEntry
from penstock.testing.inline import run_inline
from penstock.testing.list_log import ListLog

EVENTS, BUCKETS, HOT = 4_000, 16, "hot"
#: nine of ten events are of one user
USERS = [HOT if at % 10 else f"user{at // 10 % 50}" for at in range(EVENTS)]


def stream() -> ps.Stream:
    lines: dict[str, list[str]] = {"a": [], "b": []}
    for at, user in enumerate(USERS):
        fields = {"time": at * 1_000, "user": user, "n": at % 7}
        lines["ab"[at % 2]].append(json.dumps(fields))
    decoder = ps.json_lines(
        {"time": pl.Datetime("us", "UTC"), "user": pl.String(), "n": pl.Int64()}, times={"time": "us"}
    )
    return ps.stream("events", ListLog(lines), decoder, time="time", lateness="1s")


def run(
    rows: ps.Stream, state: Path, slices: int = 4, **options: object
) -> tuple[list[StageWork], list[dict[str, object]]]:
    app = ps.app("work", ps.output("out", rows))
    reports = run_inline(app, state, slices=slices, buckets=BUCKETS, **options)  # type: ignore[arg-type]
    emitted = [row for report in reports for out in report.rows.values() for row in out.to_dicts()]
    return [next(iter(report.work.values())) for report in reports], emitted


def hot_bucket() -> int:
    return int(buckets_of(key_hash(pl.DataFrame({"user": [HOT]}), ["user"]), BUCKETS)[0])


def test_rows_are_counted_where_they_arrive(state: Path) -> None:
    (work,), _ = run(stream().key_by("user").last(2, "n"), state)
    assert work.rows == sum(work.rows_by_bucket) == sum(work.rows_by_slice.values()) == EVENTS
    hashes = key_hash(pl.DataFrame({"user": USERS}), ["user"])
    counts = [0] * BUCKETS
    for bucket in buckets_of(hashes, BUCKETS).tolist():
        counts[bucket] += 1
    assert list(work.rows_by_bucket) == counts
    assert work.bytes > EVENTS
    assert work.bucket_map == even_maps(BUCKETS, 4).default


def test_the_seconds_of_a_slice_are_divided_among_its_buckets_by_rows() -> None:
    work = StageWork(3.0, 40, 0, {0: 1.0, 1: 2.0}, {0: 0, 1: 40}, (0, 0, 30, 10), (0, 0, 1, 1))
    assert work.seconds_by_bucket == (0.5, 0.5, 1.5, 0.5)
    empty = StageWork(1.0, 0, 0, {7: 1.0}, {7: 0}, (0, 0), (0, 0))
    assert empty.seconds_by_bucket == (0.0, 0.0), "a slice without a bucket"


def test_state_is_reported_by_bucket(state: Path) -> None:
    runs = [RunEntry("a", 0, 10, 1000, {0: (0, 9), 3: (9, 1)}), RunEntry("b", 0, 4, 40, {3: (0, 2)})]
    assert bucket_bytes(iter(runs), 4) == (900, 0, 0, 120)
    works, _ = run(stream().key_by("user").last(2, "n"), state, epoch_units=1_000)
    state_bytes = works[-2].state_by_bucket
    assert sum(state_bytes) > 0
    assert {bucket for bucket, size in enumerate(state_bytes) if size} <= set(range(BUCKETS))


def test_tasks_report_their_executor_and_duration(state: Path) -> None:
    app = ps.app("work", ps.output("out", stream().key_by("user").window("1s").count()))
    (report,) = run_inline(app, state, slices=3, buckets=BUCKETS)
    assert [(task.stage, task.number) for task in report.tasks] == [
        ("scan", 0),
        ("scan", 1),
        ("slice 1", 0),
        ("slice 1", 1),
        ("slice 1", 2),
    ]
    assert {task.executor for task in report.tasks} == {"driver"}
    assert all(0 <= task.cpu_seconds <= task.seconds + 0.05 for task in report.tasks)
    assert sum(task.rows for task in report.tasks if task.stage == "scan") == EVENTS


REDUCED = {
    "tumbling": lambda users: users.window("1s").aggregate(
        ps.count("c"), ps.sum_("n", "s"), ps.avg("n", "a")
    ),
    "hopping": lambda users: users.window("2s", every="1s").aggregate(ps.count("c"), ps.max_("n", "m")),
    "running": lambda users: users.running("1s").sum("n", "total"),
    "emitted": lambda users: users.window("2s").emit(every="1s").aggregate(ps.count("c"), ps.last("n", "l")),
    "changes": lambda users: users.window("2s").emit("change").aggregate(ps.sum_("n", "s")),
}


@pytest.mark.parametrize("name", REDUCED)
def test_a_hot_key_of_a_mergeable_aggregate_arrives_as_a_row_a_task_and_pane(state: Path, name: str) -> None:
    (work,), emitted = run(REDUCED[name](stream().key_by("user")), state / "four")
    tasks, panes, keys = 2, 5, 51
    if name != "changes":  # those are emitted after every event: the exchanged rows are the results
        assert work.rows <= tasks * panes * keys
        hot, others = work.rows_by_bucket[hot_bucket()], sorted(work.rows_by_bucket)
        assert hot <= others[-1]
        assert hot < EVENTS * 0.02, "nine tenths of the events, a fiftieth of the work"
    _, alone = run(REDUCED[name](stream().key_by("user")), state / "one", slices=1)
    key = lambda row: json.dumps(row, sort_keys=True, default=str)  # noqa: E731
    assert sorted(emitted, key=key) == sorted(alone, key=key)


def test_a_hot_key_of_an_operator_that_needs_order_stays_in_one_slice(state: Path) -> None:
    (work,), _ = run(stream().key_by("user").session("1s").count("c"), state)
    assert work.rows_by_bucket[hot_bucket()] >= 0.9 * EVENTS, (
        "what one slice must see in order cannot be split"
    )


def test_a_hot_key_after_another_operator_is_reduced_by_its_slices(state: Path) -> None:
    lasts = stream().key_by("user").last(1, "n").map(parity=col("user") == HOT)
    app = ps.app("two", ps.output("out", lasts.key_by("parity").window("1s").count("c")))
    (report,) = run_inline(app, state, slices=4, buckets=BUCKETS)
    first, second = report.work.values()
    assert first.rows == EVENTS
    assert second.rows <= 4 * 2 * 5


def test_the_reported_work_follows_the_maps(state: Path) -> None:
    def remap(epoch: int, maps: object) -> MapChange | None:
        return MapChange(even_maps(BUCKETS, 2).with_owners(None, {hot_bucket(): 5})) if epoch == 2 else None

    app = ps.app("work", ps.output("out", stream().key_by("user").last(2, "n")))
    reports = run_inline(app, state, slices=2, buckets=BUCKETS, epoch_units=1_000, remap=remap)
    before, after = (next(iter(reports[at].work.values())) for at in (1, 2))
    assert 5 not in before.rows_by_slice
    assert after.rows_by_slice[5] == after.rows_by_bucket[hot_bucket()]
    assert reports[2].maps is not None
    assert reports[2].maps.version == 1
    assert reports[2].migration is not None
