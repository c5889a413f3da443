"""Options that several commands share."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest

import penstock as ps
from penstock.catalogue.jobs_app import JobsApp
from penstock.cli.options import LIMITS, as_engine_settings, as_reduced
from penstock.cli.unit_launch import UnitOptions
from penstock.errors import UserError
from penstock.ha.schemes import Semantics
from penstock.query.logical import App
from penstock.settings import Settings

SQL = """CREATE STREAM clicks FROM segments('x/clicks') FORMAT combined_log EVENT TIME time;
CREATE JOB hits AS SELECT path, COUNT(*) AS n FROM clicks GROUP BY path WINDOWING 1 MINUTE"""


def test_spark_settings_are_passed_on_unchanged() -> None:
    assert as_engine_settings(None) == {"spark": {}}
    options = ["spark.executor.memory=2g", "spark.a.b=x=y", "spark.executor.memory=3g", "spark.empty="]
    expected = {"spark.executor.memory": "3g", "spark.a.b": "x=y", "spark.empty": ""}
    assert as_engine_settings(options) == {"spark": expected}


def test_limits_are_settings_of_the_engine() -> None:
    options = ["penstock.result_log_bytes=8GB", "penstock.job_seconds=2.5", "penstock.manifests_kept=5"]
    options += ["penstock.job_memory_bytes=0"]
    found = as_engine_settings(options)
    assert found == {
        "spark": {},
        "result_log_bytes": 8_000_000_000,
        "job_seconds": 2.5,
        "manifests_kept": 5,
        "job_memory_bytes": 0,
    }
    assert Settings(**found).job_seconds == 2.5
    assert set(LIMITS) <= {one.name for one in fields(Settings)}


@pytest.mark.parametrize(
    "wrong",
    [
        *("executor.memory=2g", "spark.ui.enabled", "spark.=1", "=1", "spark.master=local"),
        *("penstock.state=x", "penstock.=1", "penstock.job_seconds=-1", "penstock.job_seconds=nan"),
        *("penstock.job_share=much", "penstock.manifests_kept=0", "penstock.manifests_kept=1.5"),
        *("penstock.result_log_bytes=-5", "penstock.result_log_bytes=1e99", "penstock.result_log_bytes=lots"),
    ],
)
def test_a_setting_that_is_none_is_refused(wrong: str) -> None:
    with pytest.raises(UserError, match="BAD_"):
        as_engine_settings([wrong])


def test_jobs_of_sql_can_read_a_reduced_stream() -> None:
    app = JobsApp("shop", SQL)
    assert as_reduced(app, None) is app
    reduced = as_reduced(app, "clicks")
    assert isinstance(reduced, App)
    assert [output.name for output in reduced.outputs] == ["hits"]
    with pytest.raises(UserError, match="UNKNOWN_STREAM"):
        as_reduced(app, "sales")
    with pytest.raises(UserError, match="NOT_REDUCIBLE"):
        as_reduced(ps.jobs_app("shop", SQL, functions={"f": lambda x: x}), "clicks")


def test_the_engines_of_a_unit_get_the_same_limits(tmp_path: Path) -> None:
    options = UnitOptions(None, None, "2s", "5s", None, None, Semantics.precise, "1")
    settings = Settings(state=tmp_path, **as_engine_settings(["penstock.job_seconds=3", "spark.a=b"]))
    launch = options.launch(JobsApp("shop", SQL), None, settings)
    assert replace(Settings(), **launch.settings).job_seconds == 3
    assert launch.settings["spark"] == {"spark.a": "b"}
    assert "result_log_bytes" not in launch.settings, "what was not set may change with the version"
