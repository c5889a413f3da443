"""What all tests share: one Spark session a process, and an order of files that balances two processes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.epoch.stages import SEED
from penstock.settings import Settings
from penstock.spark.session import session
from tests.dying import Death
from tests.skips import pytest_make_collect_report, pytest_runtest_makereport

__all__ = ["pytest_make_collect_report", "pytest_runtest_makereport"]  # hooks


def pytest_report_header() -> str:
    return f"without Spark, messages arrive in the order that {SEED}={os.environ.get(SEED, '0')} draws"


def pytest_configure(config: pytest.Config) -> None:
    """Distribute files in the order below: by itself xdist starts with those of many tests, however short, and at
    the end one process has two or three of the longest while the other has none."""
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


#: fixtures that start servers, or processes of our own
_STARTING = {"processes", "zookeeper", "redis_address", "postgres_address", "kafka", "child"}


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Give tests the markers that their fixtures imply."""
    if not _STARTING.isdisjoint(getattr(item, "fixturenames", ())):
        item.add_marker("process")
    if "spark" in getattr(item, "fixturenames", ()):
        item.add_marker("spark")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where several processes share the files, those that start Spark or processes of their own come first."""
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
def death(monkeypatch: pytest.MonkeyPatch) -> Death:
    """The step and epoch at which the engine dies."""
    return Death(monkeypatch)
