"""The status of a running engine and how it is shown, and the sizes that a sample suggests."""

from __future__ import annotations

import io
import json
import os
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from pyspark.sql import SparkSession
from rich.console import Console
from typer.testing import CliRunner

from penstock.cli.commands import app as cli
from penstock.cli.scaling_options import executor_settings, load_manager
from penstock.cli.status import draw_status
from penstock.engine.engine import Engine
from penstock.engine.job_server import socket_of
from penstock.engine.line_server import LineServer
from penstock.engine.status import (
    DecisionStatus,
    ElasticStatus,
    EngineStatus,
    ExecutorStatus,
    PeriodStatus,
    StageStatus,
)
from penstock.engine.status_server import KEPT_EPOCHS, RecentEpochs, StatusServer
from penstock.epoch.runner import EpochReport
from penstock.errors import ExternalError, UserError
from penstock.scaling.decisions import Provision
from penstock.scaling.record import Entry, Outcome
from penstock.server.status_client import request_epochs, request_metrics, request_status
from tests.cluster import driven, query


@pytest.mark.spark
def test_an_engine_reports_the_work_of_its_stages(spark: SparkSession, tmp_path: Path) -> None:
    engine = Engine(query.build(tmp_path / "out"), driven.settings(tmp_path), spark)
    result: list[EngineStatus] = []
    metrics: list[str] = []

    def watch(report: EpochReport) -> None:
        if report.epoch == 4:
            engine.meter.measure(
                engine.workers(), ["driver"]
            )  # a measurement period starts where the one before ended
        if report.epoch == 8:
            engine.meter._since -= 1.0
            result.append(request_status(tmp_path / "state"))
            metrics.append(request_metrics(tmp_path / "state"))

    with StatusServer(engine):
        engine.run(watch)
        (found,) = result
    assert found.name == "driven"
    assert found.epoch == 7, "the last one that has ended"
    period = found.measured
    assert period is not None
    assert set(period.stages) == {"scan", *engine.plan.stages}
    for name in engine.plan.stages:
        one = period.stages[name]
        assert one.rows_per_second > 0
        assert f'penstock_stage_rows_total{{stage="{name}"}} ' in metrics[0]
        assert f'penstock_stage_utilisation_ratio{{stage="{name}"}} ' in metrics[0]
        assert f'penstock_stage_latency_seconds_count{{stage="{name}"}} ' in metrics[0]
        assert len(one.bucket_seconds) == len(one.bucket_map) == 64
        assert sum(one.bucket_bytes) == pytest.approx(one.state_bytes)
    assert period.processing_rate > 0
    assert "penstock_events_total " in metrics[0]
    assert 'penstock_executor_busy_seconds_total{executor="' in metrics[0]
    screen = at_width(140, found)
    assert "driven" in screen
    assert all(name in screen for name in engine.plan.stages)
    with pytest.raises(ExternalError) as gone:
        request_status(tmp_path / "state")
    assert gone.value.condition == "ENGINE_NOT_RUNNING"


def test_the_latest_epochs_are_served_to_a_follower(tmp_path: Path) -> None:
    recent = RecentEpochs()
    for epoch in range(KEPT_EPOCHS + 5):
        rows = {"a": pl.DataFrame({"n": [1, 2]}), "b": pl.DataFrame({"n": []})}
        times = {"oldest": 1, "newest": 2, "committed_at": 3.5, "skipped_partitions": 1}
        recent.add(EpochReport(epoch, 9, 8, 1, 2, 0.25, {"s": 1.0}, {"clicks": 7}, 5, 6, rows, **times))
    assert len(recent.since(0)) == KEPT_EPOCHS
    engine = Engine(query.build(tmp_path / "out"), driven.settings(tmp_path))
    with StatusServer(engine, recent):
        (result,) = request_epochs(tmp_path / "state", KEPT_EPOCHS + 4)
        assert request_epochs(tmp_path / "state", 1_000_000) == []
    of_report = EpochReport(KEPT_EPOCHS + 4, 9, 8, 1, 2, 0.25, {"s": 1.0}, {"clicks": 7}, 5, 6, rows, **times)
    assert result == of_report.metrics
    assert of_report.metrics.rows == {"a": 2}


def test_an_engine_that_ends_late_leaves_the_socket_of_its_successor(tmp_path: Path) -> None:
    path = socket_of(tmp_path, "status")
    with LineServer.at(path, "old", lambda line: b'"old"'):
        new = LineServer.at(path, "new", lambda line: b'"new"')
        new.__enter__()
    assert request_metrics(tmp_path) == "new"
    new.__exit__(None, None, None)
    assert not os.path.exists(path)


def test_decisions_are_shown_with_their_reasons() -> None:
    decision = Provision(2, "work waits")
    elastic = replace(
        IDLE,
        orders=["2 more executors: waits for executor 2 of 2, requested 12 s ago"],
        deaths=["executor 3 failed 4 s ago; its buckets moved to others"],
        decisions=[DecisionStatus(Entry(0, 5.0, decision, Outcome.helped, 9.0, "backlog 0 s"), 75.2)],
    )
    screen = at_width(120, replace(STARTED, measured=None, elastic=elastic))
    assert "under way: 2 more executors: waits for executor 2 of 2, requested 12 s ago" in screen
    assert "executor 3 failed 4 s ago" in screen
    assert "1:15  2 more executors  work waits  helped (backlog 0 s)" in screen


def at_width(width: int, status: EngineStatus) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(draw_status(status, width))
    return console.export_text()


STAGE = StageStatus(
    utilisation=0.55,
    rows_per_second=1_234_567.0,
    backlog_seconds=3.0,
    imbalance=0.12,
    exchange_bytes=123.4e6,
    state_bytes=123.4e6,
    bucket_seconds=[1.0] * 64,
    bucket_bytes=[0.0] * 64,
    bucket_map=[0] * 64,
)
MEASURED = PeriodStatus(
    period_seconds=2.0,
    epoch_seconds=0.4,
    epoch_target_seconds=1.0,
    input_rate=7_000.0,
    processing_rate=6_000.0,
    backlog_seconds=3.0,
    stages={"scan": replace(STAGE, bucket_map=[]), "clicks by path and country": STAGE},
    executors={"0": ExecutorStatus(1, 0.5, 9e8)},
    spare=[],
    measured_seconds_ago=1.0,
)
STARTED = EngineStatus(
    name="top_pages",
    master="spark://127.0.0.1:7077",
    pid=1234567,
    state="state",
    epoch=-1,
    backlog={"clicks": 1_200},
    maps_version=None,
    measured=MEASURED,
)
IDLE = ElasticStatus("", [], [], [], [], [], {})


def test_eighty_columns_show_everything() -> None:
    screen = at_width(80, STARTED)
    assert "…" not in screen
    assert max(len(line) for line in screen.splitlines()) <= 80
    assert all(word in screen for word in ("clicks", "path", "country"))
    assert screen.count("1,234,567") == 2
    assert "7,000 events/s arrive, 6,000 are executed" in screen
    assert all(title in screen for title in ("used", "rows/s", "imbalance", "sent/s", "state", "buckets"))


def test_unknown_measurements_are_not_shown_as_numbers() -> None:
    executors = {**MEASURED.executors, "3": ExecutorStatus(1, None, 0.0)}
    measured = replace(MEASURED, backlog_seconds=None, executors=executors)
    elastic = replace(IDLE, rehearsing=["3"], leaving=["0"])
    screen = at_width(80, replace(STARTED, measured=measured, elastic=elastic))
    assert "no epoch yet" in screen
    assert "epoch -1" not in screen
    assert "not known yet" in screen
    (row,) = [line.split() for line in screen.splitlines() if line.startswith("3 ")]
    assert row == ["3", "1", "–", "–", "rehearses"]
    assert "leaves" in screen
    assert "no decisions so far" in screen


def test_old_measurements_are_shown_with_their_age() -> None:
    assert "ago" not in at_width(80, STARTED)
    assert "measured 25.0 s ago" in at_width(
        120, replace(STARTED, measured=replace(MEASURED, measured_seconds_ago=25.0))
    )


def test_status_without_an_engine_is_an_error(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["status", "--state", str(tmp_path)])
    assert isinstance(result.exception, ExternalError)
    assert result.exception.condition == "ENGINE_NOT_RUNNING"


def test_a_local_master_cannot_scale(tmp_path: Path) -> None:
    with pytest.raises(UserError) as refused:
        executor_settings("local[*]", None, ["on"], None)
    assert refused.value.condition == "NOT_A_CLUSTER"
    assert executor_settings("local[*]", None, None, None) == {}
    for executors in (1, 5):
        with pytest.raises(UserError, match="is not between least_executors=2 and most_executors=4"):
            executor_settings("spark://h:1", executors, ["least_executors=2,most_executors=4"], None)
    settings = executor_settings("spark://h:1", None, ["least_executors=2, most_executors=4"], None)
    assert settings["executors"] == 2
    assert settings["elastic"].most_executors == 4


MANAGER = """
from penstock.scaling.decisions import Provision

class Mine:
    def decide(self, now):
        return [Provision(1, "because")]
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has 0 managers"),
        (MANAGER + MANAGER.replace("Mine", "Other"), "has 2"),
        ("1/0", "ZeroDivision"),
    ],
)
def test_a_file_without_one_manager_is_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(text)
    with pytest.raises(UserError, match=message) as refused:
        load_manager(tmp_path / "m.py")
    assert refused.value.condition == "NO_MANAGER"


def test_a_manager_of_ones_own_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(MANAGER)
    (decision,) = load_manager(tmp_path / "m.py").decide(None)  # type: ignore[arg-type]
    assert decision.reason == "because"


def test_the_plan_command_refuses_jobs(tmp_path: Path) -> None:
    (tmp_path / "jobs.sql").write_text("CREATE STREAM s FROM files('x') FORMAT combined_log EVENT TIME time")
    result = CliRunner().invoke(cli, ["plan", str(tmp_path / "jobs.sql")])
    assert isinstance(result.exception, UserError)
    assert result.exception.condition == "JOBS_NOT_APP"


APP = """
import penstock as ps

log = ps.generated(total=20_000, live=False)
decoder = ps.combined_log(extra=[ps.Cookie("session")])
clicks = ps.stream("clicks", log, decoder, time="time", lateness="1s")
app = ps.app("a", ps.output("n", clicks.key_by("path").window("10s").count(), ps.jsonl("NEVER")))
"""


@pytest.mark.slow
def test_a_sample_measures_the_cost_of_an_epoch_and_of_an_event(tmp_path: Path) -> None:
    live = APP.replace("total=20_000, live=False", "rate=2_000").replace("NEVER", str(tmp_path / "never"))
    (tmp_path / "app.py").write_text(live)
    result = CliRunner().invoke(
        cli, ["plan", str(tmp_path / "app.py"), "--sample", "8s", "--master", "inline"]
    )
    assert result.exit_code == 0, result.output
    title, *rows = [line.split() for line in result.output.splitlines()]
    assert " ".join(title).startswith("stage ms per epoch µs per event cores at")
    assert rows[0][0] == "scan"
    assert "start with 1 executor" in result.output


@pytest.mark.spark
def test_a_sample_suggests_sizes(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP.replace("NEVER", str(tmp_path / "never")))
    result = CliRunner().invoke(
        cli,
        [
            "plan",
            str(tmp_path / "app.py"),
            "--sample",
            "8s",
            "--rate",
            "500000",
            "--json",
            "--master",
            "local[2]",
        ],
    )
    assert result.exit_code == 0, result.output
    facts = json.loads(result.output.splitlines()[-1])
    assert facts["sample_events"] > 0
    assert facts["executors"] == facts["slices"] >= 1
    assert facts["parts"][0]["name"] == "scan"
    assert not (tmp_path / "never").exists(), "a sample writes nothing"
