"""With many slices the results are those of one, and few messages reach the driver: a tree of tasks merges them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock import col
from penstock.engine.engine import Engine
from penstock.epoch.gather import FAN_IN, merge_task_count
from penstock.epoch.message import Envelope, Times
from penstock.epoch.stages import LocalStages, Shares, run_in_process
from penstock.epoch.task import EpochTask
from penstock.settings import Settings
from penstock.testing.inline import run_inline
from penstock.testing.list_log import ListLog
from tests import golden_query as golden


def app(out: Path) -> ps.App:
    events = ps.stream(
        "events", ListLog(golden.lines(count=120)), golden.decoder(), time="time", lateness=golden.LATENESS
    )
    return ps.app(
        "tree",
        ps.output(
            "running", events.key_by("user").running("5s").sum("amount", "s").top(3), ps.jsonl(out / "a")
        ),
        ps.output(
            "least", events.key_by("user").running("5s").count().top(2, least=True), ps.jsonl(out / "b")
        ),
        ps.output("windows", events.key_by("page").window("10s").count().top(2), ps.jsonl(out / "c")),
        ps.output("all", events.key_by("user").last(2, "page"), ps.jsonl(out / "d")),
        ps.output(
            "union",
            events.select("user").union(events.key_by("user").window("1m").count().select("user")),
            ps.jsonl(out / "e"),
        ),
    )


def rows(out: Path) -> dict[str, list[str]]:
    return {
        name: sorted(line for file in (out / name).glob("*.jsonl") for line in file.read_text().splitlines())
        for name in "abcde"
    }


@pytest.mark.slow
@pytest.mark.parametrize("slices", [17, 40, 300])
def test_many_slices_give_the_results_of_one(
    slices: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_inline(app(tmp_path / "one"), tmp_path / "s1", slices=1, epoch_units=50, buckets=512)
    times: list[int] = []

    def count_times(self: LocalStages, task: EpochTask, shares: Shares) -> list[bytes]:
        messages = run_in_process(task, shares)
        times.append(sum(Envelope(data).kind == Times.kind for data in messages))
        return messages

    monkeypatch.setattr(LocalStages, "run", count_times)
    run_inline(app(tmp_path / "many"), tmp_path / "s2", slices=slices, epoch_units=50, buckets=512)
    assert rows(tmp_path / "many") == rows(tmp_path / "one")
    assert all(rows(tmp_path / "one").values())
    merging = merge_task_count(slices)
    assert set(times) == {merging if merging <= FAN_IN else merge_task_count(merging)}


def test_many_slices_on_spark_give_the_results_of_one(tmp_path: Path, spark: SparkSession) -> None:
    run_inline(app(tmp_path / "one"), tmp_path / "s1", slices=1, epoch_units=50)
    settings = Settings(
        state=tmp_path / "s2", master="local[2]", slices=20, drain=True, warm_up=False, most_epoch_units=150
    )
    events = app(tmp_path / "spark")
    assert Engine(events, settings, spark).run().events > 0
    assert rows(tmp_path / "spark") == rows(tmp_path / "one")


def test_a_stateless_query_is_gathered_by_the_tree_too(tmp_path: Path) -> None:
    lines = {f"p{number:02}": golden.lines(count=4)["p0"] for number in range(40)}
    events = ps.stream("events", ListLog(lines), golden.decoder(), time="time")
    plain = ps.app("plain", ps.output("out", events.filter(col("amount") > -5), ps.jsonl(tmp_path / "a")))
    assert sum(report.events for report in run_inline(plain, tmp_path / "state")) == 160 - _count_late(lines)


def _count_late(lines: dict[str, list[str]]) -> int:
    found = 0
    for part in lines.values():
        newest = ""
        for line in part:
            found += line.split(",")[0] < newest
            newest = max(newest, line.split(",")[0])
    return found
