"""Spark's standalone daemons: how they are started from the installed pyspark, and what they tell over HTTP.

Receives ports, directories and sizes; hands commands, environments, and the JSON pages of master and workers.
Everything is bound to loopback.
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

#: the daemons only talk to each other: a quick start matters more than peak speed, and Spark's own defaults
#: would move on to another port where the one we have written down is taken; nobody submits over REST, whose port
#: is the same for every master
_DAEMON_OPTIONS = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dspark.port.maxRetries=0 -Dspark.master.rest.enabled=false"
)
_DAEMON_MEMORY = "256m"
_ASK_SECONDS = 5.0


def spark_home() -> Path:
    """Where the installed pyspark lies, with its programs and jars."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise ExternalError("SPARK_NOT_FOUND", "pyspark is not installed")
    return Path(found.origin).parent


def environment(scratch: Path, host: str = HOST) -> dict[str, str]:
    """The environment of a daemon: ours, without what would steer Spark elsewhere."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    return ours | {
        "SPARK_HOME": str(spark_home()),
        "JAVA_HOME": java_home(),
        "SPARK_LOCAL_IP": host,
        "SPARK_LOCAL_DIRS": str(scratch),
        "SPARK_DAEMON_MEMORY": _DAEMON_MEMORY,
        "SPARK_DAEMON_JAVA_OPTS": _DAEMON_OPTIONS,
        "SPARK_LAUNCHER_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }


def master_command(port: int, web_port: int) -> list[str]:
    """What starts a master."""
    return [*_daemon("master.Master"), "--host", HOST, "--port", str(port), "--webui-port", str(web_port)]


def worker_command(
    url: str, port: int, cores: int, memory_mb: int, directory: Path, host: str = HOST
) -> list[str]:
    """What starts a worker that offers so many cores and so much memory to a master."""
    place = ["--host", host, "--port", str(port), "--webui-port", "0", "--work-dir", str(directory)]
    return [*_daemon("worker.Worker"), *place, "--cores", str(cores), "--memory", f"{memory_mb}m", url]


def _daemon(name: str) -> list[str]:
    return [str(spark_home() / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on now."""
    sockets = [socket.create_server((HOST, 0)) for _ in range(count)]
    try:
        return [s.getsockname()[1] for s in sockets]
    finally:
        for s in sockets:
            s.close()


def told(address: str) -> dict[str, Any] | None:
    """What a daemon's web page says of it, or None when it does not answer."""
    try:
        with urllib.request.urlopen(f"{address}/json/", timeout=_ASK_SECONDS) as answer:
            said: dict[str, Any] = json.load(answer)
            return said
    except (OSError, ValueError):
        return None
