"""Epochs on Spark leave nothing: hundreds of them do not grow the heap, objects, broadcasts, threads or files."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from py4j.finalizer import ThreadSafeFinalizer
from pyspark.sql import SparkSession

import penstock as ps
from penstock.engine.engine import Engine
from penstock.settings import Settings

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
#: epochs before the first measurement, and between it and the second
WARM, MORE = 40, 120
#: by how much each figure may differ after the cleaner has run; none grows with the number of epochs
ALLOWED = {
    "accumulators": 100,
    "gateway objects": 40,
    "JVM heap MB": 12,
    "JVM threads": 8,
    "JVM descriptors": 12,
    "broadcast files": 2,
    "persistent RDDs": 0,
    "descriptors": 8,
    "threads": 4,
    "MB of this process": 24,
}


def figures(spark: SparkSession) -> dict[str, int]:
    """What Spark and this process hold, after both have collected their garbage."""
    context: Any = spark.sparkContext
    jvm = context._jvm
    gc.collect()
    jvm.System.gc()
    runtime = jvm.java.lang.Runtime.getRuntime()
    jvm_pid = int(jvm.java.lang.ProcessHandle.current().pid())
    return {
        "accumulators": jvm.org.apache.spark.util.AccumulatorContext.numAccums(),
        "gateway objects": len(ThreadSafeFinalizer.finalizers),
        "JVM heap MB": (runtime.totalMemory() - runtime.freeMemory()) >> 20,
        "JVM threads": jvm.java.lang.Thread.activeCount(),
        "JVM descriptors": len(os.listdir(f"/proc/{jvm_pid}/fd")),
        "broadcast files": len(os.listdir(str(context._temp_dir))),
        "persistent RDDs": context._jsc.getPersistentRDDs().size(),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "MB of this process": resident_bytes() >> 20,
    }


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def figures_within(spark: SparkSession, first: dict[str, int], seconds: float = 60.0) -> dict[str, int]:
    """The figures once they differ from the first ones by no more than is allowed, or those at the deadline: Spark's
    cleaner works in the background."""
    deadline = time.monotonic() + seconds
    while True:
        now = figures(spark)
        if not growth(first, now) or time.monotonic() > deadline:
            return now
        time.sleep(0.5)


def growth(first: dict[str, int], now: dict[str, int]) -> dict[str, tuple[int, int]]:
    return {name: (first[name], now[name]) for name in first if now[name] - first[name] > ALLOWED[name]}


@contextmanager
def running(engine: Engine) -> Iterator[Callable[[int], None]]:
    """Run an engine in a thread; gives a function that waits until so many epochs have ended."""
    thread = threading.Thread(target=engine.run)
    thread.start()

    def wait_for(epochs: int) -> None:
        deadline = time.monotonic() + 400
        while engine.last_epoch < epochs - 1:
            assert thread.is_alive()
            assert time.monotonic() < deadline, engine.last_epoch
            time.sleep(0.01)

    try:
        yield wait_for
    finally:
        engine.stop()
        thread.join(60)


@pytest.mark.parametrize("small_epoch_bytes", [1 << 20, 0], ids=["one task", "with exchanges"])
def test_hundreds_of_epochs_leave_nothing_behind(
    spark: SparkSession, tmp_path: Path, small_epoch_bytes: int
) -> None:
    lines = tmp_path / "in.jsonl"
    lines.touch()
    decoder = ps.json_lines({"at": pl.Datetime("us", "UTC"), "user": pl.Int64()})
    events = ps.stream("events", ps.files(str(lines)), decoder, time="at", lateness=0)
    counts = events.key_by("user").window("10s").count()
    app = ps.app("tiny", ps.output("counts", counts, ps.jsonl(str(tmp_path / "out"), compact_bytes=1 << 20)))
    settings = Settings(
        state=tmp_path / "state",
        master="local[2]",
        warm_up=False,
        drain=False,
        small_epoch_bytes=small_epoch_bytes,
        epoch_interval_seconds=0.0,
    )
    engine = Engine(app, settings, spark)
    given = 0

    def run_epochs(wait_for: Callable[[int], None], count: int) -> None:
        nonlocal given
        for _ in range(count):
            at = f"2026-03-01T{given // 3600:02}:{given // 60 % 60:02}:{given % 60:02}Z"
            with lines.open("a") as file:
                file.write("".join(f'{{"at": "{at}", "user": {user}}}\n' for user in range(5)))
            given += 1
            wait_for(given)

    with running(engine) as wait_for:
        run_epochs(wait_for, WARM)
        first = figures(spark)
        run_epochs(wait_for, MORE)
        after = figures_within(spark, first)
    print("\n".join(f"{name}: {first[name]} -> {after[name]}" for name in first))
    assert growth(first, after) == {}, f"after {MORE} more epochs"
