"""The processes of a local cluster and its drivers authenticate each other, with a secret that only their user sees."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cluster import LocalCluster
from penstock.cluster.processes import find_marked
from penstock.spark.cluster_secret import FILE, find_secret
from tests.ha.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.kill, pytest.mark.timeout(400)]
ROOT = Path(__file__).parents[2]
#: a driver of Penstock; it prints its settings as Spark's page of the environment shows them, and waits
DRIVER = """
import sys
from penstock.settings import Settings
from penstock.spark.session import session
spark = session(Settings(master=sys.argv[1], spark={"spark.ui.enabled": "true", "spark.ui.port": "0"}))
print(spark.sparkContext.parallelize(range(100), 4).map(lambda n: n + 1).sum(), flush=True)
import urllib.request
print(urllib.request.urlopen(spark.sparkContext.uiWebUrl + "/environment/", timeout=60).read().hex(), flush=True)
sys.stdin.read()
"""
#: a driver that has no secret
STRANGER = """
import sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master(sys.argv[1]).config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
print("entered", builder.getOrCreate().sparkContext.parallelize([1], 1).count())
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    before = os.umask(0)
    cluster = LocalCluster(tmp_path / "cluster")
    try:
        cluster.up(workers=1)
        yield cluster
        if (tmp_path / "cluster" / "cluster.json").exists():
            cluster.down()
    finally:
        os.umask(before)


def _start(program: str, url: str, log: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, url],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log.open("w"),
        text=True,
    )


def _arguments_of_all_processes() -> bytes:
    found = b""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found += (entry / "cmdline").read_bytes()
            except OSError:
                continue
    return found


def test_a_secret_that_nobody_else_sees_is_needed_to_enter_a_cluster(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    url = cluster.facts().url or ""
    file = cluster.directory / FILE
    assert find_secret(url) == file
    secret = dict(line.split() for line in file.read_text().splitlines())["spark.authenticate.secret"]
    assert len(secret) == 64
    stranger = _start(STRANGER, url, tmp_path / "stranger.log")
    driver = _start(DRIVER, url, tmp_path / "driver.log")
    try:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "5050\n", (tmp_path / "driver.log").read_text()[-3000:]
        page = bytes.fromhex(driver.stdout.readline()).decode()
        wait_until(
            "the stranger is refused",
            lambda: "Failed to connect to master" in (tmp_path / "stranger.log").read_text(),
        )
        assert "spark.authenticate.secret" in page
        assert secret not in page
        arguments = _arguments_of_all_processes()
        assert b"org.apache.spark.executor" in arguments
        assert secret.encode() not in arguments
        for path in (tmp_path / "driver.log", *cluster.directory.rglob("*")):
            if path.is_file() and path != file:
                assert secret.encode() not in path.read_bytes(), path
        for path in (cluster.directory, *cluster.directory.rglob("*")):
            assert not path.is_symlink()
            assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path
    finally:
        driver.communicate("", timeout=120)
        mark = cluster.facts().id
        stranger.kill()
        printed = stranger.communicate()[0]
    assert "entered" not in printed
    cluster.down()
    assert find_marked(mark) == []
    assert find_secret(url) is None
    assert not file.exists()


def test_settings_of_a_master_that_penstock_has_not_started_are_the_users_own(tmp_path: Path) -> None:
    assert find_secret("spark://elsewhere.example:7077") is None
    assert find_secret("local[*]") is None
    assert find_secret("spark://127.0.0.1:1") is None
