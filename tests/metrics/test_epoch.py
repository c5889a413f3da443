"""An epoch is folded into the registry once: what it did is counted by engine, stage, executor and job."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import polars as pl
import pytest

from penstock.epoch.report import EpochReport
from penstock.epoch.task_work import StageWork, TaskWork
from penstock.metrics import Registry, expose, fold_epoch
from penstock.metrics.epoch import EpochMetrics
from tests.metrics.text import parse

NOW = 1_800_000_000.0


def micros(seconds_ago: float) -> int:
    return round((NOW - seconds_ago) * 1e6)


def instant(seconds_ago: float) -> datetime:
    return datetime.fromtimestamp(NOW - seconds_ago, UTC)


def report() -> EpochReport:
    windows = pl.DataFrame({"window_end": [instant(5.0), instant(3.0)], "n": [1, 2]})
    plain = pl.DataFrame({"n": [1, 2, 3]})
    return EpochReport(
        7, 1_000, 9_000, 2, 3, 0.4, {"scan": 0.1, "gather": 0.05}, {"clicks": 1_010}, micros(6), 5_000,
        {"windows": windows, "plain": plain, "silent": plain.clear()},
        oldest=micros(2.0), newest=micros(1.0), committed_at=NOW, skipped_partitions=1, durable_epoch=7,
        run_bytes=70, checkpoint_bytes=60, manifest_cpu_seconds=0.01, watermarks={"clicks": micros(6), "new": None},
        tasks=(
            TaskWork("scan", 0, "1", 0.1, 0.08, 600), TaskWork("scan", 1, "2", 0.2, 0.1, 400),
            TaskWork("slice 1", 0, "1", 0.5, 0.4, 100),
        ),
        work={"q1": StageWork(0.7, 500, 4_000, {0: 0.5, 1: 0.2}, {0: 300, 1: 200}, (500,), (0,))},
        repeated_rows={"plain": 2}, withheld_rows={"windows": 4},
    )  # fmt: skip


def folded(*figures: EpochMetrics) -> dict[str, float]:
    registry = Registry()
    for one in figures:
        fold_epoch(registry, one)
    found = parse(expose(registry))
    return {
        name.removeprefix("penstock_")
        + ("/" + ",".join(value for _, value in labels) if labels else ""): value
        for (name, labels), value in found.items()
    }


def test_everything_an_epoch_did_is_counted() -> None:
    found = folded(report().metrics)
    assert (
        found
        | {
            "epoch": 7,
            "durable_epoch": 7,
            "epochs_total": 1,
            "epochs_replayed_total": 0,
            "events_total": 1_000,
            "input_bytes_total": 9_000,
            "late_events_total": 2,
            "dead_letters_total": 3,
            "skipped_partitions_total": 1,
            "leaped_total": 1,
            "stream_read_total/clicks": 1_010,
            "watermark_timestamp_seconds/clicks": NOW - 6,
            "state_bytes": 5_000,
            "run_bytes_total": 70,
            "checkpoint_bytes_total": 60,
            "manifest_cpu_seconds": 0.01,
            "last_epoch_seconds": 0.4,
            "epoch_duration_seconds_sum": 0.4,
            "epoch_phase_seconds_total/gather": 0.05,
        }
        == found
    )
    assert "watermark_timestamp_seconds/new" not in found


@pytest.mark.parametrize("mark", [-(1 << 62), 1 << 62, None])
def test_a_stream_without_a_watermark_yet_or_any_more_has_none(mark: int | None) -> None:
    found = folded(report().metrics, replace(report(), watermarks={"clicks": mark}).metrics)
    assert "watermark_timestamp_seconds/clicks" not in found


def test_a_stage_has_its_own_rows_time_and_slowest_task() -> None:
    found = folded(report().metrics, replace(report().metrics, epoch=8))
    assert (found["stage_rows_total/q1"], found["stage_exchange_bytes_total/q1"]) == (1_000, 8_000)
    assert found["stage_busy_seconds_total/q1"] == pytest.approx(1.4)
    assert found["stage_latency_seconds_sum/q1"] == pytest.approx(1.0), "that of its slowest slice"
    assert found["stage_rows_total/scan"] == 2_000
    assert found["stage_latency_seconds_sum/scan"] == pytest.approx(0.4)


def test_an_executor_has_the_time_of_its_tasks() -> None:
    found = folded(report().metrics)
    assert found["executor_busy_seconds_total/1"] == pytest.approx(0.6)
    assert found["executor_cpu_seconds_total/2"] == pytest.approx(0.1)


def test_a_job_has_its_rows_and_the_latency_of_its_newest_window_or_event() -> None:
    found = folded(report().metrics)
    assert (found["job_rows_total/windows"], found["job_rows_total/plain"]) == (2, 3)
    assert found["job_latency_seconds_sum/windows"] == pytest.approx(3.0)
    assert found["job_latency_seconds_sum/plain"] == pytest.approx(1.0)
    assert (found["job_repeated_rows_total/plain"], found["job_withheld_rows_total/windows"]) == (2, 4)
    assert "job_rows_total/silent" not in found


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_whatever_the_unit_of_a_columns_instants_is(unit: str) -> None:
    rows = pl.DataFrame({"as_of": [instant(3.0)]}).with_columns(pl.col("as_of").dt.cast_time_unit(unit))  # type: ignore[arg-type]
    assert replace(report(), rows={"j": rows}).metrics.until == {"j": pytest.approx(NOW - 3.0)}


def test_a_window_that_is_still_open_is_as_late_as_the_newest_event() -> None:
    open_ = pl.DataFrame({"window_end": [instant(-50.0)], "n": [1]})
    found = folded(replace(report(), rows={"open": open_}).metrics)
    assert found["job_latency_seconds_sum/open"] == pytest.approx(1.0)


def test_latency_is_spread_over_the_events_of_an_epoch() -> None:
    found = folded(report().metrics)
    assert found["event_latency_seconds_count"] == pytest.approx(1_000)
    assert found["event_latency_seconds_sum"] == pytest.approx(1_500)
    assert found["event_latency_seconds_bucket/1"] == 0
    assert found["event_latency_seconds_bucket/2.5"] == pytest.approx(1_000)


def test_a_replay_of_old_events_has_no_latency() -> None:
    old = replace(
        report(), newest=micros(9_000), oldest=micros(9_999), rows={"plain": pl.DataFrame({"n": [1]})}
    )
    found = folded(old.metrics)
    assert not [name for name in found if "latency" in name and not name.startswith("stage")]
    assert found["job_rows_total/plain"] == 1


def test_figures_survive_json_whatever_the_other_version_knows() -> None:
    figures = report().metrics
    plain = json.loads(json.dumps(figures.to_plain()))
    assert EpochMetrics.from_plain(plain) == figures
    assert folded(EpochMetrics.from_plain(plain)) == folded(figures)
    assert EpochMetrics.from_plain({**plain, "unheard_of": 1}) == figures
    assert EpochMetrics.from_plain({"epoch": 3}) == EpochMetrics(3)
