"""Starts the Spark session of an engine: on the right Java, quiet, and with cheap checkpoint files.

Only the side query of a Spark source (`spark_source`) has a checkpoint:
Spark's own defaults fork a `chmod` or `readlink` process for every file of it; see docs/decisions/0003.

What the JVM and the Python workers print goes to a file when one is named: pyspark lets the JVM inherit our
standard error, so that descriptor points to the file while the JVM is started.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark import SparkContext, java_gateway
from pyspark.sql import SparkSession as SparkSession

from penstock.errors import ExternalError
from penstock.settings import Settings, cores_of, on_one_host
from penstock.spark.cluster_secret import find_secret
from penstock.spark.exchange import exchange
from penstock.spark.executors import initial_settings, stop_dynamic_allocation
from penstock.spark.java import java_home
from penstock.state.durable import open_private

_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
#: Spark gives each task a core, so a worker's Polars gets one thread. Workers use the same megabytes for chunk
#: after chunk: giving pages back to the system between them costs page faults. This is for
#: the C library, and for the allocator inside Polars.
WORKER_MEMORY = {
    "POLARS_MAX_THREADS": "1",
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    "_RJEM_MALLOC_CONF": "background_thread:true,dirty_decay_ms:10000,muzzy_decay_ms:10000",
}
#: the JVM only moves bytes here: the quick compiler and a small collector start faster and do as well
_QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dlog4j2.level=error -Dlog4j.rootLogger=ERROR"

#: the variable from which pyspark takes further arguments of the JVM that it starts
_SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
#: the directory that has the package
_INSTALLED_IN = Path(__file__).parents[2]


def session(settings: Settings, log: Path | None = None) -> SparkSession:
    """Start Spark, or take the session this process already has. `log` gets what Spark's processes print."""
    os.environ["JAVA_HOME"] = java_home()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if on_one_host(settings.master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    for name, value in WORKER_MEMORY.items():
        os.environ.setdefault(name, value)
    secret = None if "spark.authenticate" in settings.spark else find_secret(settings.master)
    builder = SparkSession.builder.master(settings.master).appName("penstock")
    for key, value in (_defaults(settings) | settings.spark).items():
        builder = builder.config(key, value)
    try:
        with _standard_error_to(log), _own_jvm(), _settings_from(secret):
            spark = builder.getOrCreate()
    except Exception as failure:
        raise ExternalError(
            "SPARK_DID_NOT_START",
            f"Spark did not start with master {settings.master}",
            detail=str(failure).splitlines()[0] if str(failure) else type(failure).__name__,
            hint="Check the master's address, that Java runs, and that the machine has memory to spare."
            + (f" What Spark printed is in {log}." if log else ""),
        ) from failure
    spark.sparkContext.setLogLevel("OFF")
    if settings.executors is not None:
        stop_dynamic_allocation(spark.sparkContext)
    return spark


@contextlib.contextmanager
def _own_jvm() -> Iterator[None]:
    """Have a JVM that is started meanwhile ignore SIGTERM, as pyspark already does with SIGINT: whoever ends a group of
    processes (`timeout`, a supervisor) ends us, and we need the JVM for the epoch under way. It ends with its standard
    input, which is ours. Its files, and those of its workers, are private."""
    start = java_gateway.Popen

    def started(command: Sequence[str], *, preexec_fn: Callable[[], None], **rest: Any) -> Any:
        def before() -> None:
            preexec_fn()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.umask(0o077)  # shuffle files and what workers write have rows in them

        return start(command, preexec_fn=before, **rest)

    java_gateway.Popen = started
    try:
        yield
    finally:
        java_gateway.Popen = start


@contextlib.contextmanager
def _settings_from(file: Path | None) -> Iterator[None]:
    """Let a JVM that is started meanwhile read settings from a file. Those of the builder become arguments of its
    process, which every user of the machine can read."""
    if file is None:
        yield
        return
    before = os.environ.get(_SUBMIT_ARGUMENTS)
    more = ["--load-spark-defaults", "--properties-file", shlex.quote(str(file)), before or "pyspark-shell"]
    os.environ[_SUBMIT_ARGUMENTS] = " ".join(more)
    try:
        yield
    finally:
        os.environ.pop(_SUBMIT_ARGUMENTS)
        if before is not None:
            os.environ[_SUBMIT_ARGUMENTS] = before


@contextlib.contextmanager
def _standard_error_to(log: Path | None) -> Iterator[None]:
    """Let the standard error, for us and for the processes started meanwhile, be a file."""
    if log is None:
        yield
        return
    sys.stderr.flush()
    ours = os.dup(2)
    with open(log, "ab", opener=open_private) as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)


def _defaults(settings: Settings) -> dict[str, str]:
    chosen = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
        "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.worker.reuse": "true",
        # payloads are Arrow that is dense already; compressing them again costs more than it saves on one host
        "spark.shuffle.compress": "false",
        "spark.broadcast.compress": "false",
        # of all that tasks send to the driver in an epoch; on one host large frames are files, and do not count
        "spark.driver.maxResultSize": "1g",
        # a larger closure would become a broadcast of its own in every epoch, with a file that stays until Spark ends
        "spark.broadcast.UDFCompressionThreshold": "1g",
    }
    if on_one_host(settings.master):
        chosen |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "2g",
            "spark.driver.extraJavaOptions": _QUICK_JAVA,
        }
    if settings.master.startswith("local[") or settings.master == "local":
        chosen["spark.authenticate"] = "true"  # with a secret that Spark makes and keeps to itself
    if not settings.master.startswith("local"):
        chosen |= _on_executors(settings) | initial_settings(settings)
    return chosen


def _on_executors(settings: Settings) -> dict[str, str]:
    """What executors need that are processes of their own: local masters have none."""
    chosen = {f"spark.executorEnv.{name}": value for name, value in WORKER_MEMORY.items()}
    if on_one_host(settings.master):
        # what this process can import, its executors can: they run on the same disk
        paths = [str(_INSTALLED_IN), *filter(None, [os.environ.get("PYTHONPATH")])]
        chosen |= {
            "spark.executorEnv.PYTHONPATH": os.pathsep.join(paths),
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": _QUICK_JAVA,
        }
    return chosen


def warm_up(context: SparkContext, master: str) -> None:
    """Start the Python workers and load what they need, so that the first epoch finds them ready."""
    tasks = cores_of(master) if master.startswith("local") else int(context.defaultParallelism)

    def load(index: int, _: Any) -> Any:
        importlib.import_module("penstock.epoch.stages")  # in the worker
        yield index % tasks, b"warm"

    first = context.parallelize(range(tasks), tasks).mapPartitionsWithIndex(load)
    exchange(context, first, tasks).mapPartitions(lambda items: [len(list(items))]).collect()
