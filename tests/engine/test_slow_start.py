"""A machine so busy that Spark's Python processes come too late: the engine begins again, and says what it was."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from penstock.engine.failures import explained
from penstock.engine.spark_query import _TIMES, SparkQuery
from penstock.words.errors import ExternalError, InternalError

LATE = """Python worker failed to connect back.
=== Streaming Query ===
Identifier: service-9fe904 [id = e5fa5212, runId = ae9c7c08]
Current Committed Offsets: {}

Current State: INITIALIZING
Thread State: RUNNABLE"""
RAISED = """An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "app.py", line 3, in halve
    return 1 // 0
           ~~^^~~
ZeroDivisionError: integer division or modulo by zero

=== Streaming Query ===
Thread State: RUNNABLE"""


class Ended:
    """A query that Spark gave up."""

    def __init__(self, failure: BaseException | None) -> None:
        self._failure, self.isActive = failure, False

    def exception(self) -> BaseException | None:
        return self._failure


def ended(*failures: BaseException | None) -> tuple[Callable[[], Any], list[Ended]]:
    """Starts queries that end one after the other as told, the last way for ever; those that were started."""
    begun: list[Ended] = []

    def begin() -> Any:
        begun.append(Ended(failures[min(len(begun), len(failures) - 1)]))
        return begun[-1]

    return begin, begun


def test_what_came_too_late_is_begun_again_a_few_times() -> None:
    begin, begun = ended(PySparkException(LATE))
    query = SparkQuery(begin, lambda: False)
    while query.again():
        pass
    assert len(begun) == _TIMES


@pytest.mark.parametrize(
    ("failure", "planned"),
    [(PySparkException(LATE), True), (PySparkException(RAISED), False), (None, False)],
)
def test_nothing_else_is_begun_again(failure: BaseException | None, planned: bool) -> None:
    begin, begun = ended(failure)
    assert not SparkQuery(begin, lambda: planned).again()
    assert len(begun) == 1


def test_a_query_whose_source_was_not_asked_in_time_is_begun_again() -> None:
    tried: list[int] = []

    def begin() -> Any:
        tried.append(1)
        if len(tried) < 3:
            raise PySparkException(LATE)
        return Ended(None)

    SparkQuery(begin, lambda: False)
    assert len(tried) == 3


def test_the_cause_is_told_and_not_the_end_of_a_dump() -> None:
    late = explained(PySparkException(LATE))
    assert isinstance(late, ExternalError)
    assert late.condition == "WORKER_TOO_LATE"
    assert "overloaded" in str(late.hint)
    raised = explained(PySparkException(RAISED))
    assert isinstance(raised, InternalError)
    assert (
        raised.primary == "A task of the epoch failed: ZeroDivisionError: integer division or modulo by zero"
    )
    assert "Thread State" not in str(raised)
    assert explained(KeyError("x\ny")).primary == "KeyError: 'x\\ny'"
    assert explained(ValueError("first\nsecond")).primary == "ValueError: first"
    assert explained(ValueError()).primary == "ValueError: ValueError"


APP = """
import penstock as ps
clicks = ps.stream("clicks", ps.generated(total=500, live=False), ps.combined_log(extra=["cookie"]), time="time")
app = ps.app("slow", ps.output("all", clicks.select("path"), ps.jsonl("out")))
"""
#: a Python whose first process for a source of Spark's is not up within ten seconds
PYTHON = """#!/bin/sh
case "$*" in
*python_streaming_source_runner*) mkdir "{folder}/late" 2>/dev/null && sleep 12 ;;
esac
exec "{python}" "$@"
"""


@pytest.mark.spark
@pytest.mark.timeout(400)
def test_an_engine_starts_though_a_process_was_late(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    slow = tmp_path / "slow_python"
    slow.write_text(PYTHON.format(folder=tmp_path, python=sys.executable))
    slow.chmod(0o755)
    ran = subprocess.run(
        [sys.executable, "-c", "from penstock.service.cli import main; main()", "run", "app.py", "--drain"],
        cwd=tmp_path,
        env=os.environ | {"PYSPARK_PYTHON": str(slow)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "late").is_dir()
    told = [line for file in (tmp_path / "out").rglob("*.jsonl") for line in file.read_text().splitlines()]
    assert len(told) == 500
