"""What all tests share: one Spark session a process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.engine.session import session
from penstock.engine.settings import Settings


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Real Spark on two cores."""
    started = session(Settings(master="local[2]", state=tmp_path_factory.mktemp("spark")))
    yield started
    started.stop()


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state directory that does not exist yet."""
    return tmp_path / "state"
