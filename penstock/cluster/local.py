"""A cluster of Spark's own processes on this machine: started, looked at, disturbed, and ended.

Receives a directory and sizes; hands the master's URL, which engines take as `--master`.

Guarantees: what `up` has started is ended by `down`, whatever happened in between (also when `up` was killed
half-way); nothing else is. Two clusters in two directories do not know of each other.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penstock.cluster import facts as known
from penstock.cluster import processes, spark, topology
from penstock.cluster.facts import HOST, Facts, Master, Worker
from penstock.cluster.topology import Pin
from penstock.errors import ExternalError, UserError

_LOG_LINES = 8


@dataclass(frozen=True)
class WorkerStatus:
    """A worker: whether it lives, and the executors on it as (application, executor)."""

    name: str
    alive: bool
    pid: int
    cores: int
    cores_used: int
    cpus: tuple[int, ...] | None
    executors: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class ClusterStatus:
    """A cluster as it is now: `apps` are those that hold cores, as (name, cores)."""

    url: str
    web_url: str
    alive: bool
    workers: tuple[WorkerStatus, ...]
    apps: tuple[tuple[str, int], ...]


class LocalCluster:
    """The cluster of one directory. `deadline_seconds` bounds every wait for Spark's processes."""

    def __init__(self, directory: Path, deadline_seconds: float = 90.0) -> None:
        self.directory = directory.resolve()
        self._deadline_seconds = deadline_seconds

    # -- starting --------------------------------------------------------------------------------

    def up(
        self,
        workers: int,
        cores_per_worker: int = 1,
        memory_mb: int = 1024,
        pin: Pin = "cores",
        *,
        apart: bool = False,
    ) -> str:
        """Start a master and workers; returns the master's URL once all of them are ready.

        `apart`: each worker has a loopback address of its own. Spark copies a slow task only to another machine, and
        tells machines by their addresses."""
        processes.check_system()
        if workers < 1 or cores_per_worker < 1 or memory_mb < 512:
            raise UserError(
                "BAD_OPTION",
                "a cluster needs a worker, a core for each and 512 MB of memory for each",
                hint="Such as --workers 2 --cores-per-worker 1 --memory 1g.",
            )
        topology.pins((), pin, cores_per_worker)  # a wrong word is told before anything starts
        with known.changing(self.directory):
            self._refuse_second()
            facts = Facts(uuid.uuid4().hex, pin, cores_per_worker, memory_mb, apart=apart)
            known.written(self.directory, facts)  # from here on `down` finds whatever has been started
            try:
                facts = self._with_master(facts)
                facts = self._with_workers(facts, workers)
            except BaseException:
                self._end_all(facts.id)
                known.written(self.directory, None)
                raise
        assert facts.url is not None
        return facts.url

    def add(self, workers: int = 1) -> list[str]:
        """Start further workers, sized as the first ones; returns their names."""
        with self._changing() as before:
            after = self._with_workers(before, workers)
        return [worker.name for worker in after.workers if worker not in before.workers]

    def _refuse_second(self) -> None:
        before = known.read(self.directory)
        if before is None:
            return
        if processes.marked(before.id):
            raise UserError(
                "CLUSTER_IS_UP",
                f"a cluster runs in {self.directory} already" + (f", at {before.url}" if before.url else ""),
                hint="Use it, end it with `penstock cluster down`, or name another --dir.",
            )

    def _with_master(self, facts: Facts) -> Facts:
        for place in ("logs", "work", "scratch"):
            shutil.rmtree(self.directory / place, ignore_errors=True)
            (self.directory / place).mkdir()
        port, web_port = spark.free_ports(2)
        process = self._started(facts, "master", spark.master_command(port, web_port), None)
        facts = replace(facts, master=Master(process, port, web_port))
        known.written(self.directory, facts)
        self._wait("master", process, lambda: spark.told(_web(facts)) is not None)
        return facts

    def _with_workers(self, facts: Facts, count: int) -> Facts:
        url = facts.url
        if url is None or facts.master is None or not processes.alive(facts.master.process):
            raise ExternalError("MASTER_GONE", "the cluster's master does not run", hint=_ANEW)
        processors = topology.read(allowed=os.sched_getaffinity(0)) if facts.pin != "none" else ()
        ports, new = spark.free_ports(count), []
        for port in ports:
            name = f"worker-{facts.named + 1}"
            taken = [frozenset(w.cpus) for w in facts.workers if w.cpus and processes.alive(w.process)]
            cpus = topology.pins(processors, facts.pin, facts.cores_per_worker, taken)
            command = spark.worker_command(
                url,
                port,
                facts.cores_per_worker,
                facts.memory_mb,
                self.directory / "work" / name,
                facts.host(),
            )
            process = self._started(facts, name, command, cpus, facts.host())
            worker = Worker(name, process, port, None if cpus is None else tuple(sorted(cpus)))
            new.append(worker)
            facts = replace(facts, workers=(*facts.workers, worker), named=facts.named + 1)
            known.written(self.directory, facts)
        for worker in new:
            self._wait(worker.name, worker.process, functools.partial(_listed, facts, worker))
        return facts

    def _started(
        self, facts: Facts, name: str, command: list[str], cpus: frozenset[int] | None, host: str = HOST
    ) -> processes.Process:
        (self.directory / "scratch" / name).mkdir(parents=True, exist_ok=True)
        surroundings = spark.environment(self.directory / "scratch" / name, host)
        return processes.start(command, surroundings, f"{facts.id}/{name}", self._log(name), cpus)

    def _wait(self, name: str, process: processes.Process, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + self._deadline_seconds
        while not ready():
            gone = not processes.alive(process)
            if gone or time.monotonic() > deadline:
                ended = "ended" if gone else f"was not ready within {self._deadline_seconds:.0f} s"
                raise ExternalError(
                    "CLUSTER_DID_NOT_START",
                    f"the {name} {ended}",
                    detail="Its last words:\n" + self._last_words(name),
                    hint=f"All of it is in {self._log(name)}.",
                )
            time.sleep(0.1)

    def _log(self, name: str) -> Path:
        return self.directory / "logs" / f"{name}.log"

    def _last_words(self, name: str) -> str:
        lines = self._log(name).read_text(errors="replace").splitlines()
        return "\n".join(lines[-_LOG_LINES:])

    # -- looking ---------------------------------------------------------------------------------

    def facts(self) -> Facts:
        """What is written down about the cluster."""
        facts = known.read(self.directory)
        if facts is None:
            raise UserError(
                "NO_CLUSTER",
                f"there is no cluster in {self.directory}",
                hint="Start one: penstock cluster up.",
            )
        return facts

    def status(self) -> ClusterStatus:
        """The cluster as it is now, by its processes and by what Spark tells of them."""
        facts = self.facts()
        said = (facts.master and spark.told(_web(facts))) or {}
        by_port = {worker["port"]: worker for worker in said.get("workers", ()) if worker["state"] == "ALIVE"}
        apps = tuple((app["name"], int(app["cores"])) for app in said.get("activeapps", ()))
        return ClusterStatus(
            facts.url or "",
            _web(facts) if facts.master else "",
            bool(facts.master and processes.alive(facts.master.process)) and said.get("status") == "ALIVE",
            tuple(_worker_status(worker, facts, by_port.get(worker.port)) for worker in facts.workers),
            apps,
        )

    # -- disturbing and ending -------------------------------------------------------------------

    def kill(self, name: str) -> int:
        """Kill a worker with the executors on it, as a power loss would; returns how many processes that were."""
        with self._changing() as facts:
            facts.worker(name)
            struck = processes.marked(f"{facts.id}/{name}")
            processes.kill(struck)
            return len(struck)

    def remove(self, name: str) -> None:
        """End a worker and the executors on it, and forget it."""
        with self._changing() as facts:
            facts.worker(name)
            self._end_part(f"{facts.id}/{name}", [facts.worker(name).process])
            known.written(self.directory, facts.without(name))

    def down(self) -> int:
        """End all processes of the cluster; returns how many there were. Logs stay where they are."""
        with self._changing() as facts:
            ended = self._end_all(facts.id)
            shutil.rmtree(self.directory / "scratch", ignore_errors=True)
            known.written(self.directory, None)
            return ended

    @contextlib.contextmanager
    def _changing(self) -> Iterator[Facts]:
        """The facts of a cluster that there is, while nobody else changes them."""
        self.facts()
        with known.changing(self.directory):
            yield self.facts()

    def _end_all(self, mark: str) -> int:
        """Workers are told first and end their executors; whatever is left then is ended too."""
        facts = known.read(self.directory)
        daemons = [worker.process for worker in facts.workers] if facts else []
        return self._end_part(mark, daemons)

    def _end_part(self, mark: str, first: list[processes.Process]) -> int:
        all_ = processes.marked(mark)
        processes.end([process for process in all_ if process in first])
        processes.end(processes.marked(mark))
        processes.kill(processes.marked(mark))  # an executor that was just being started
        return len(all_)


_ANEW = "End what is left with `penstock cluster down` and start it anew."


def _web(facts: Facts) -> str:
    assert facts.master is not None
    return f"http://{HOST}:{facts.master.web_port}"


def _listed(facts: Facts, worker: Worker) -> bool:
    """Whether the master knows the worker and takes it for alive."""
    said = (spark.told(_web(facts)) or {}).get("workers", ())
    return any(other["port"] == worker.port and other["state"] == "ALIVE" for other in said)


def _worker_status(worker: Worker, facts: Facts, said: dict[str, Any] | None) -> WorkerStatus:
    executors: tuple[tuple[str, str], ...] = ()
    if said is not None:
        page = spark.told(said["webuiaddress"]) or {}
        executors = tuple((e["appdesc"]["name"], str(e["id"])) for e in page.get("executors", ()))
    return WorkerStatus(
        worker.name,
        processes.alive(worker.process) and said is not None,
        worker.process.pid,
        facts.cores_per_worker,
        int(said["coresused"]) if said else 0,
        worker.cpus,
        executors,
    )
