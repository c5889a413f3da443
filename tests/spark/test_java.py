"""Which Java Spark runs on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.errors import ExternalError, UserError
from penstock.spark.java import java_home, probe

pytestmark = pytest.mark.process

STREAM_ON_BUNDLED_JAVA = """
import os, sys, tempfile
from penstock.spark.java import java_home
os.environ["JAVA_HOME"] = java_home()
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
spark = (SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
         .config("spark.sql.shuffle.partitions", "1").getOrCreate())
doubled = []
double = udf(lambda value: value * 2, "long")
def collect(rows, epoch):
    doubled.extend(row.doubled for row in rows.select(double("value").alias("doubled")).collect())
with tempfile.TemporaryDirectory() as folder:
    query = (spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load().writeStream
             .foreachBatch(collect).option("checkpointLocation", folder).start())
    while len(doubled) < 6 and query.isActive:
        query.awaitTermination(0.1)
    query.stop()
print("java", spark._jvm.System.getProperty("java.specification.version"), sorted(doubled)[:6])
spark.stop()
"""


def create_fake_java(home: Path, version: str) -> Path:
    """Create a program that reports itself as a Java of that version."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    settings = f"    java.home = {home}\n    java.specification.version = {version}"
    program.write_text(f"#!/bin/sh\ncat >&2 <<'TEXT'\nProperty settings:\n{settings}\nTEXT\n")
    program.chmod(0o755)
    return program


def path_with(program: Path) -> str:
    return f"{program.parent}{os.pathsep}{os.defpath}"


def test_the_users_java_home_wins_over_the_path(tmp_path: Path) -> None:
    mine, other = create_fake_java(tmp_path / "mine", "21"), create_fake_java(tmp_path / "other", "17")
    environment = {"JAVA_HOME": str(mine.parent.parent), "PATH": path_with(other)}
    assert java_home(environment) == str(tmp_path / "mine")


def test_a_java_that_is_too_old_is_skipped(tmp_path: Path) -> None:
    old, new = create_fake_java(tmp_path / "old", "1.8"), create_fake_java(tmp_path / "new", "17")
    environment = {"JAVA_HOME": str(old.parent.parent), "PATH": path_with(new)}
    assert java_home(environment) == str(tmp_path / "new")


def test_without_a_usable_java_the_bundled_one_is_wrapped(tmp_path: Path) -> None:
    environment = {"JAVA_HOME": str(tmp_path / "gone"), "PATH": "", "XDG_CACHE_HOME": str(tmp_path)}
    home = Path(java_home(environment))
    assert home.is_relative_to(tmp_path)
    java = subprocess.run(
        [home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-Dname=two words", "-version"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert java.returncode == 0, java.stderr
    assert java_home(environment) == str(home)
    assert [path.name for path in (home / "bin").iterdir()] == ["java"], "no temporary file is left"


def test_without_a_usable_java_those_that_were_found_are_reported(tmp_path: Path) -> None:
    old = create_fake_java(tmp_path / "old", "11")
    with pytest.raises(UserError) as caught:
        java_home({"JAVA_HOME": str(old.parent.parent), "PATH": ""}, bundled=tmp_path / "none")
    assert caught.value.condition == "JAVA_NOT_FOUND"
    assert "is Java 11" in str(caught.value)


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ExternalError) as caught:
        java_home({"PATH": "", "XDG_CACHE_HOME": str(tmp_path / "file")})
    assert caught.value.condition == "CACHE_UNWRITABLE"


def test_a_misspelt_setting_is_refused() -> None:
    with pytest.raises(UserError) as caught:
        java_home({"PENSTOCK_JAVA": "bundeld", "PATH": ""})
    assert caught.value.condition == "BAD_SETTING"


def test_a_program_that_is_not_java_is_not_used() -> None:
    assert probe(Path("/bin/echo")) is None
    assert probe(Path("/nowhere/java")) is None


@pytest.mark.spark
def test_spark_streams_on_the_bundled_java(tmp_path: Path) -> None:
    environment = {**os.environ, "PENSTOCK_JAVA": "bundled", "XDG_CACHE_HOME": str(tmp_path)}
    child = subprocess.run(
        [sys.executable, "-c", STREAM_ON_BUNDLED_JAVA],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert "java 21 [0, 2, 4, 6, 8, 10]" in child.stdout, child.stderr[-2000:]
