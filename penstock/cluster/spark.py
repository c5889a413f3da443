"""Commands and environments of Spark's standalone daemons, from the installed pyspark, and their JSON pages.

Everything listens on loopback only.
"""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import urllib.request
from pathlib import Path
from typing import Any

from penstock.cluster.facts import HOST
from penstock.errors import ExternalError
from penstock.spark.java import java_home

#: a quick start matters more than peak speed; without retries a daemon does not move to another port than the recorded
#: one; the REST server would use the same port for every master
_DAEMON_OPTIONS = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dspark.port.maxRetries=0 -Dspark.master.rest.enabled=false"
)
_DAEMON_MEMORY = "256m"
_FETCH_SECONDS = 5.0


def spark_home() -> Path:
    """The directory of the installed pyspark, with its programs and jars."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ExternalError("SPARK_NOT_FOUND", "pyspark is not installed")
    return Path(spec.origin).parent


def environment(scratch: Path, host: str = HOST) -> dict[str, str]:
    """The environment of a daemon: that of this process without settings of another Spark."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    return own | {
        "SPARK_HOME": str(spark_home()),
        "JAVA_HOME": java_home(),
        "SPARK_LOCAL_IP": host,
        "SPARK_LOCAL_DIRS": str(scratch),
        "SPARK_DAEMON_MEMORY": _DAEMON_MEMORY,
        "SPARK_DAEMON_JAVA_OPTS": _DAEMON_OPTIONS,
        "SPARK_LAUNCHER_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }


def master_command(port: int, web_port: int, settings: Path) -> list[str]:
    """The command of a master."""
    place = ["--host", HOST, "--port", str(port), "--webui-port", str(web_port)]
    return [*_daemon("master.Master"), *place, "--properties-file", str(settings)]


def worker_command(
    url: str, port: int, cores: int, memory_mb: int, directory: Path, settings: Path, host: str = HOST
) -> list[str]:
    """The command of a worker that offers so many cores and so much memory to a master."""
    place = ["--host", host, "--port", str(port), "--webui-port", "0", "--work-dir", str(directory)]
    place += ["--properties-file", str(settings)]
    return [*_daemon("worker.Worker"), *place, "--cores", str(cores), "--memory", f"{memory_mb}m", url]


def _daemon(name: str) -> list[str]:
    return [str(spark_home() / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]


def free_ports(count: int) -> list[int]:
    """Free ports of loopback."""
    sockets = [socket.create_server((HOST, 0)) for _ in range(count)]
    try:
        return [s.getsockname()[1] for s in sockets]
    finally:
        for s in sockets:
            s.close()


def fetch_page(address: str) -> dict[str, Any] | None:
    """The JSON page of a daemon; None if it does not answer."""
    try:
        with urllib.request.urlopen(f"{address}/json/", timeout=_FETCH_SECONDS) as answer:
            page: dict[str, Any] = json.load(answer)
            return page
    except (OSError, ValueError):
        return None
