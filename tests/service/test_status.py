"""What a running engine says of itself, and how it is shown; and the sizes a sample suggests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from rich.console import Console
from typer.testing import CliRunner

from penstock.elastic.measurements import MEASUREMENTS
from penstock.elastic.prometheus import exported_name
from penstock.engine.engine import Engine
from penstock.engine.epoch import EpochReport
from penstock.engine.status import StatusServer
from penstock.service.cli import app as cli
from penstock.service.following import following, load_manager
from penstock.service.status import asked, drawn
from penstock.words.errors import ExternalError, UserError
from tests.cluster import driven, query


@pytest.mark.spark
def test_an_engine_tells_what_its_sub_queries_do(spark: SparkSession, tmp_path: Path) -> None:
    engine = Engine(query.build(tmp_path / "out"), driven.settings(tmp_path), spark)
    told: list[dict[str, Any]] = []
    metrics: list[str] = []

    def watch(report: EpochReport) -> None:
        if report.epoch == 4:
            engine.meter.measured(engine.workers(), ["driver"])  # a period begins with the one before
        if report.epoch == 8:
            engine.meter._since -= 1.0
            told.append(asked(tmp_path / "state"))
            metrics.append(asked(tmp_path / "state", "metrics"))

    with StatusServer(engine):
        engine.run(watch)
        (said,) = told
    assert said["name"] == "driven"
    assert said["epoch"] == 7, "the last one that has ended"
    assert set(said["sub_queries"]) == {"scan", *engine.plan.subqueries}
    for name in engine.plan.subqueries:
        one = said["sub_queries"][name]
        assert one["processing_rate"] > 0
        assert len(one["bucket_seconds"]) == len(one["bucket_map"]) == 64
        assert sum(one["bucket_bytes"]) == pytest.approx(one["state_bytes"])
    for measurement in MEASUREMENTS:
        assert f"# HELP {exported_name(measurement)} " in metrics[0]
    console = Console(width=140, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(drawn(said))
    shown = console.export_text()
    assert "driven" in shown
    assert all(name in shown for name in engine.plan.subqueries)
    with pytest.raises(ExternalError) as gone:
        asked(tmp_path / "state")
    assert gone.value.condition == "ENGINE_NOT_RUNNING"


def test_decisions_are_shown_with_their_reasons() -> None:
    said: dict[str, Any] = {
        "name": "clicks",
        "epoch": 12,
        "master": "spark://127.0.0.1:7077",
        "pid": 1,
        "backlog": {"clicks": 1_200},
        "elastic": {
            "orders": ["moving: 2 more executors: work waits"],
            "resting": "",
            "decisions": [
                {"decision": "provision", "reason": "work waits", "outcome": "helped", "why": "backlog 0 s"}
            ],
        },
    }
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(drawn(said))
    shown = console.export_text()
    assert "moving: 2 more executors: work waits" in shown
    assert "helped (backlog 0 s)" in shown


def test_where_no_engine_runs_that_is_told(tmp_path: Path) -> None:
    told = CliRunner().invoke(cli, ["status", "--state", str(tmp_path)])
    assert isinstance(told.exception, ExternalError)
    assert told.exception.condition == "ENGINE_NOT_RUNNING"


def test_a_local_master_has_nobody_to_follow_the_load(tmp_path: Path) -> None:
    with pytest.raises(UserError) as refused:
        following("local[*]", None, ["on"], None)
    assert refused.value.condition == "NOT_A_CLUSTER"
    assert following("local[*]", None, None, None) == {}
    given = following("spark://h:1", None, ["least_executors=2", "most_executors=4"], None)
    assert given["executors"] == 2
    assert given["elastic"].most_executors == 4


MANAGER = """
from penstock.elastic.decisions import Provision

class Mine:
    def decide(self, now):
        return [Provision(1, "because")]
"""


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "holds 0 managers"),
        (MANAGER + MANAGER.replace("Mine", "Other"), "holds 2"),
        ("1/0", "ZeroDivision"),
    ],
)
def test_a_file_without_one_manager_is_refused(text: str, what: str, tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(text)
    with pytest.raises(UserError, match=what) as refused:
        load_manager(tmp_path / "m.py")
    assert refused.value.condition == "NO_MANAGER"


def test_a_manager_of_ones_own_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(MANAGER)
    (decision,) = load_manager(tmp_path / "m.py").decide(None)  # type: ignore[arg-type]
    assert decision.reason == "because"


def test_jobs_have_no_plan_for_a_load(tmp_path: Path) -> None:
    (tmp_path / "jobs.sql").write_text("CREATE STREAM s FROM files('x') FORMAT combined_log EVENT TIME time")
    told = CliRunner().invoke(cli, ["plan", str(tmp_path / "jobs.sql")])
    assert isinstance(told.exception, UserError)
    assert told.exception.condition == "JOBS_NOT_APP"


APP = """
import penstock as ps

log = ps.generated(total=20_000, live=False)
decoder = ps.combined_log(extra=[ps.Cookie("session")])
clicks = ps.stream("clicks", log, decoder, time="time", lateness="1s")
app = ps.app("a", ps.output("n", clicks.key_by("path").window("10s").count(), ps.jsonl("NEVER")))
"""


@pytest.mark.spark
def test_a_sample_suggests_sizes(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP.replace("NEVER", str(tmp_path / "never")))
    told = CliRunner().invoke(
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
    assert told.exit_code == 0, told.output
    said = json.loads(told.output.splitlines()[-1])
    assert said["sample_events"] > 0
    assert said["executors"] == said["slices"] >= 1
    assert said["parts"][0]["name"] == "scan"
    assert not (tmp_path / "never").exists(), "a sample writes nothing"
