"""What all tests share: one Spark session a process, and an order of files that balances two processes."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.epoch.stages import SEED
from penstock.settings import Settings
from penstock.spark.session import session
from tests.crash import Crash
from tests.skips import pytest_make_collect_report, pytest_runtest_makereport

__all__ = ["pytest_make_collect_report", "pytest_runtest_makereport"]  # hooks


def pytest_report_header() -> str:
    return f"without Spark, messages arrive in the order that {SEED}={os.environ.get(SEED, '0')} draws"


def pytest_configure(config: pytest.Config) -> None:
    """Distribute files in the order below: by itself xdist starts with those of many tests, however short, and at
    the end one process has two or three of the longest while the other has none."""
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


#: tests with one of these are not in the fast lane
_SLOW = ("spark", "kill", "process", "slow", "soak")
#: audit events of a process that starts another
_STARTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn"}
#: the test under way, if it is in the fast lane
_fast_test: str | None = None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Note which test is under way, so that none of the fast lane starts a process."""
    global _fast_test
    _fast_test = None if any(map(item.get_closest_marker, _SLOW)) else item.nodeid
    try:
        return (yield)
    finally:
        _fast_test = None


def _refuse_processes(event: str, arguments: tuple[Any, ...]) -> None:
    if event in _STARTS and _fast_test is not None:
        if "penstock.query.trial_child" in str(arguments):  # started once, it serves all tests
            return
        raise AssertionError(
            f"{_fast_test} starts a process: mark it with `process` ({event} {arguments[:2]})"
        )


sys.addaudithook(_refuse_processes)

#: a test of the kit for users, which knows no markers of ours
_STARTING_TEST = "test_a_copy_in_another_process_reads_the_same"
#: fixtures that start servers, or processes of our own
_STARTING = {"processes", "zookeeper", "redis_address", "postgres_address", "kafka", "child"}


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Give tests the markers that their fixtures imply."""
    fixtures = getattr(item, "fixturenames", ())
    if not _STARTING.isdisjoint(fixtures) or item.name == _STARTING_TEST:
        item.add_marker("process")
    if "spark" in fixtures:
        item.add_marker("spark")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where several processes share the files, those with the most slow tests come first."""
    if not hasattr(config, "workerinput"):
        return
    slow = Counter(
        item.path for item in items if any(map(item.get_closest_marker, ("spark", "kill", "process")))
    )
    items.sort(key=lambda item: -slow[item.path])


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Real Spark on two cores."""
    spark_session = session(Settings(master="local[2]", state=tmp_path_factory.mktemp("spark")))
    yield spark_session
    spark_session.stop()


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state directory that does not exist yet."""
    return tmp_path / "state"


@pytest.fixture
def crash(monkeypatch: pytest.MonkeyPatch) -> Crash:
    """The step and epoch at which the engine crashes."""
    return Crash(monkeypatch)
