"""Reads and writes the record of a local cluster: a small JSON file in its directory, replaced atomically.

A command that changes a cluster holds its lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from penstock.cluster.processes import Process
from penstock.cluster.topology import Pin
from penstock.errors import ExternalError, UserError
from penstock.state.durable import make_private, open_private

FILE = "cluster.json"
_LOCK = "cluster.lock"
HOST = "127.0.0.1"


@dataclass(frozen=True)
class Master:
    """Spark's master: its process, and the ports it listens on."""

    process: Process
    port: int
    web_port: int


@dataclass(frozen=True)
class Worker:
    """A Spark worker: `cpus` are the processors it is pinned to, None for any."""

    name: str
    process: Process
    port: int
    cpus: tuple[int, ...] | None


@dataclass(frozen=True)
class Facts:
    """A cluster: `id` marks its processes. Without a master it is being started."""

    id: str
    pin: Pin
    cores_per_worker: int
    memory_mb: int
    master: Master | None = None
    workers: tuple[Worker, ...] = ()
    #: workers started so far: no name is used twice
    named: int = 0
    #: whether each worker has its own loopback address, so that Spark treats it as another machine
    apart: bool = False

    def host(self) -> str:
        """The address of the next worker."""
        return f"127.0.0.{2 + self.named % 250}" if self.apart else HOST

    @property
    def url(self) -> str | None:
        """The `--master` of engines."""
        return None if self.master is None else f"spark://{HOST}:{self.master.port}"

    def worker(self, name: str) -> Worker:
        for worker in self.workers:
            if worker.name == name:
                return worker
        raise UserError(
            "NO_SUCH_WORKER",
            f"the cluster has no worker {name!r}",
            hint=f"Its workers: {', '.join(w.name for w in self.workers) or 'none'}.",
        )

    def without(self, name: str) -> Facts:
        return replace(self, workers=tuple(w for w in self.workers if w.name != name))


def write_facts(directory: Path, facts: Facts | None) -> None:
    """Write the facts; None removes them: there is no cluster any more."""
    if facts is None:
        (directory / FILE).unlink(missing_ok=True)
        return
    temporary = directory / f".{FILE}.{os.getpid()}"
    with open(temporary, "w", opener=open_private) as file:
        file.write(json.dumps(asdict(facts), indent=2) + "\n")
    os.replace(temporary, directory / FILE)


def read_facts(directory: Path) -> Facts | None:
    """The facts of the cluster in a directory; None if there is none."""
    try:
        return _parse_facts(json.loads((directory / FILE).read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as failure:
        raise ExternalError(
            "CLUSTER_FILE_DAMAGED",
            f"{directory / FILE} does not describe a cluster",
            detail=str(failure) or type(failure).__name__,
            hint="If no cluster runs there any more, remove the file.",
        ) from failure


def _parse_facts(plain: dict[str, Any]) -> Facts:
    master = plain.pop("master")
    workers = [_parse_worker(worker) for worker in plain.pop("workers")]
    if master is not None:
        master = Master(**master | {"process": Process(**master["process"])})
    return Facts(**plain, master=master, workers=tuple(workers))


def _parse_worker(plain: dict[str, Any]) -> Worker:
    cpus = plain["cpus"]
    return Worker(
        **plain | {"process": Process(**plain["process"]), "cpus": None if cpus is None else tuple(cpus)}
    )


@contextlib.contextmanager
def lock_cluster(directory: Path) -> Iterator[None]:
    """Hold the cluster's lock, so that one command at a time changes it."""
    try:
        make_private(directory)
        lock = open(directory / _LOCK, "a", opener=open_private)  # noqa: SIM115
    except OSError as failure:
        raise ExternalError(
            "CLUSTER_UNWRITABLE", f"{directory} cannot be written", detail=failure.strerror or str(failure)
        ) from failure
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as failure:
            raise UserError(
                "CLUSTER_BUSY",
                f"another command is changing the cluster in {directory}",
                hint="Try again when it has ended.",
            ) from failure
        yield
