"""Options that several commands share."""

from __future__ import annotations

import pytest

import penstock as ps
from penstock.catalogue.jobs_app import JobsApp
from penstock.cli.options import as_reduced, as_spark_settings
from penstock.errors import UserError
from penstock.query.logical import App

SQL = """CREATE STREAM clicks FROM segments('x/clicks') FORMAT combined_log EVENT TIME time;
CREATE JOB hits AS SELECT path, COUNT(*) AS n FROM clicks GROUP BY path WINDOWING 1 MINUTE"""


def test_spark_settings_are_passed_on_unchanged() -> None:
    assert as_spark_settings(None) == {}
    options = ["spark.executor.memory=2g", "spark.a.b=x=y", "spark.executor.memory=3g", "spark.empty="]
    assert as_spark_settings(options) == {
        "spark.executor.memory": "3g",
        "spark.a.b": "x=y",
        "spark.empty": "",
    }


@pytest.mark.parametrize(
    "wrong", ["executor.memory=2g", "spark.ui.enabled", "spark.=1", "=1", "spark.master=local"]
)
def test_a_setting_that_is_not_sparks_is_refused(wrong: str) -> None:
    with pytest.raises(UserError, match="BAD_OPTION"):
        as_spark_settings([wrong])


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
