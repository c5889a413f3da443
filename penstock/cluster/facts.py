"""What a local cluster writes down about itself: one small JSON file in its directory.

Receives and hands frozen facts. The file is replaced by one atomic step; whoever changes a cluster holds its lock.
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
    """One of Spark's workers: `cpus` are the processors it is pinned to, None for any."""

    name: str
    process: Process
    port: int
    cpus: tuple[int, ...] | None


@dataclass(frozen=True)
class Facts:
    """A cluster: `id` marks its processes. No master: it is only just being started."""

    id: str
    pin: Pin
    cores_per_worker: int
    memory_mb: int
    master: Master | None = None
    workers: tuple[Worker, ...] = ()
    #: workers there have ever been: no name is given twice
    named: int = 0
    #: each worker has a loopback address of its own, so that Spark takes it for a machine of its own
    apart: bool = False

    def host(self) -> str:
        """Where the next worker listens."""
        return f"127.0.0.{2 + self.named % 250}" if self.apart else HOST

    @property
    def url(self) -> str | None:
        """What engines take as `--master`."""
        return None if self.master is None else f"spark://{HOST}:{self.master.port}"

    def worker(self, name: str) -> Worker:
        for worker in self.workers:
            if worker.name == name:
                return worker
        raise UserError(
            "NO_SUCH_WORKER",
            f"the cluster has no worker {name!r}",
            hint=f"It has {', '.join(w.name for w in self.workers) or 'none'}.",
        )

    def without(self, name: str) -> Facts:
        return replace(self, workers=tuple(w for w in self.workers if w.name != name))


def written(directory: Path, facts: Facts | None) -> None:
    """Put the facts in place; None: there is no cluster any more."""
    if facts is None:
        (directory / FILE).unlink(missing_ok=True)
        return
    draft = directory / f".{FILE}.{os.getpid()}"
    draft.write_text(json.dumps(asdict(facts), indent=2) + "\n")
    os.replace(draft, directory / FILE)


def read(directory: Path) -> Facts | None:
    """The facts of the cluster in a directory, or None if there is none."""
    try:
        return _facts(json.loads((directory / FILE).read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as failure:
        raise ExternalError(
            "CLUSTER_FILE_DAMAGED",
            f"{directory / FILE} does not tell of a cluster",
            detail=str(failure) or type(failure).__name__,
            hint="If no cluster runs there any more, remove the file.",
        ) from failure


def _facts(found: dict[str, Any]) -> Facts:
    master = found.pop("master")
    workers = [_worker(worker) for worker in found.pop("workers")]
    if master is not None:
        master = Master(**master | {"process": Process(**master["process"])})
    return Facts(**found, master=master, workers=tuple(workers))


def _worker(found: dict[str, Any]) -> Worker:
    cpus = found["cpus"]
    return Worker(
        **found | {"process": Process(**found["process"]), "cpus": None if cpus is None else tuple(cpus)}
    )


@contextlib.contextmanager
def changing(directory: Path) -> Iterator[None]:
    """Hold the cluster's lock: one command at a time changes it."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = open(directory / _LOCK, "a")  # noqa: SIM115
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
