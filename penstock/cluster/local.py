"""Starts, shows, disturbs and stops a cluster of Spark's own processes on this machine.

Guarantees: `down` stops everything that `up` has started, even if `up` was killed, and nothing else. Clusters in two
directories are independent.
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

from penstock.cluster import facts as facts_file
from penstock.cluster import processes, spark, topology
from penstock.cluster.facts import HOST, Facts, Master, Worker
from penstock.cluster.topology import Pin
from penstock.errors import ExternalError, UserError
from penstock.spark.cluster_secret import FILE as SECRET_FILE
from penstock.spark.cluster_secret import publish_secret, remove_secret, write_secret
from penstock.state.durable import make_private

_LOG_LINES = 8


@dataclass(frozen=True)
class WorkerStatus:
    """A worker: whether it is alive, and its executors as (application, executor)."""

    name: str
    alive: bool
    pid: int
    cores: int
    cores_used: int
    cpus: tuple[int, ...] | None
    executors: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class ClusterStatus:
    """The state of a cluster: `apps` are the applications with cores, as (name, cores)."""

    url: str
    web_url: str
    alive: bool
    workers: tuple[WorkerStatus, ...]
    apps: tuple[tuple[str, int], ...]


class LocalCluster:
    """The cluster of one directory. `deadline_seconds` limits every wait for Spark's processes."""

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
        """Start a master and workers; returns the master's URL once all are ready.

        `apart`: each worker has its own loopback address. Spark copies a slow task only to another machine, and
        distinguishes machines by address.
        """
        processes.check_system()
        if workers < 1 or cores_per_worker < 1 or memory_mb < 512:
            raise UserError(
                "BAD_OPTION",
                "a cluster needs at least one worker, and for each a core and 512 MB of memory",
                hint="Write for example --workers 2 --cores-per-worker 1 --memory 1g.",
            )
        topology.choose_processors((), pin, cores_per_worker)  # refuse a wrong --pin before anything starts
        with facts_file.lock_cluster(self.directory):
            self._refuse_second()
            facts = Facts(uuid.uuid4().hex, pin, cores_per_worker, memory_mb, apart=apart)
            facts_file.write_facts(
                self.directory, facts
            )  # from here on `down` finds everything that was started
            try:
                facts = self._start_master(facts)
                facts = self._start_workers(facts, workers)
            except BaseException:
                self._end_all(facts.id)
                remove_secret(self.directory, facts.master.port if facts.master else None)
                facts_file.write_facts(self.directory, None)
                raise
        assert facts.url is not None
        return facts.url

    def add(self, workers: int = 1) -> list[str]:
        """Start more workers of the same size; returns their names."""
        with self._locked_facts() as before:
            after = self._start_workers(before, workers)
        return [worker.name for worker in after.workers if worker not in before.workers]

    def _refuse_second(self) -> None:
        before = facts_file.read_facts(self.directory)
        if before is None:
            return
        if processes.find_marked(before.id):
            raise UserError(
                "CLUSTER_IS_UP",
                f"a cluster is already running in {self.directory}"
                + (f", at {before.url}" if before.url else ""),
                hint="Use it, stop it with `penstock cluster down`, or use another --dir.",
            )

    def _start_master(self, facts: Facts) -> Facts:
        for place in ("logs", "work", "scratch"):
            shutil.rmtree(self.directory / place, ignore_errors=True)
            make_private(self.directory / place)
        port, web_port = spark.free_ports(2)
        settings = write_secret(self.directory)
        publish_secret(self.directory, port)
        process = self._start(facts, "master", spark.master_command(port, web_port, settings), None)
        facts = replace(facts, master=Master(process, port, web_port))
        facts_file.write_facts(self.directory, facts)
        self._wait("master", process, lambda: spark.fetch_page(_web(facts)) is not None)
        return facts

    def _start_workers(self, facts: Facts, count: int) -> Facts:
        url = facts.url
        if url is None or facts.master is None or not processes.is_alive(facts.master.process):
            raise ExternalError("MASTER_GONE", "the master of the cluster is not running", hint=_RESTART)
        processors = topology.read_processors(allowed=os.sched_getaffinity(0)) if facts.pin != "none" else ()
        ports, new = spark.free_ports(count), []
        for port in ports:
            name = f"worker-{facts.named + 1}"
            taken = [frozenset(w.cpus) for w in facts.workers if w.cpus and processes.is_alive(w.process)]
            cpus = topology.choose_processors(processors, facts.pin, facts.cores_per_worker, taken)
            command = spark.worker_command(
                url,
                port,
                facts.cores_per_worker,
                facts.memory_mb,
                self.directory / "work" / name,
                self.directory / SECRET_FILE,
                facts.host(),
            )
            process = self._start(facts, name, command, cpus, facts.host())
            worker = Worker(name, process, port, None if cpus is None else tuple(sorted(cpus)))
            new.append(worker)
            facts = replace(facts, workers=(*facts.workers, worker), named=facts.named + 1)
            facts_file.write_facts(self.directory, facts)
        for worker in new:
            self._wait(worker.name, worker.process, functools.partial(_is_registered, facts, worker))
        return facts

    def _start(
        self, facts: Facts, name: str, command: list[str], cpus: frozenset[int] | None, host: str = HOST
    ) -> processes.Process:
        make_private(self.directory / "scratch" / name)
        environment = spark.environment(self.directory / "scratch" / name, host)
        return processes.start(command, environment, f"{facts.id}/{name}", self._log(name), cpus)

    def _wait(self, name: str, process: processes.Process, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + self._deadline_seconds
        while not ready():
            gone = not processes.is_alive(process)
            if gone or time.monotonic() > deadline:
                ended = "ended" if gone else f"was not ready within {self._deadline_seconds:.0f} s"
                raise ExternalError(
                    "CLUSTER_DID_NOT_START",
                    f"the {name} {ended}",
                    detail="The end of its log:\n" + self._log_end(name),
                    hint=f"Its log is {self._log(name)}.",
                )
            time.sleep(0.1)

    def _log(self, name: str) -> Path:
        return self.directory / "logs" / f"{name}.log"

    def _log_end(self, name: str) -> str:
        lines = self._log(name).read_text(errors="replace").splitlines()
        return "\n".join(lines[-_LOG_LINES:])

    # -- status ---------------------------------------------------------------------------------

    def facts(self) -> Facts:
        """The record of the cluster."""
        facts = facts_file.read_facts(self.directory)
        if facts is None:
            raise UserError(
                "NO_CLUSTER",
                f"there is no cluster in {self.directory}",
                hint="Start one: penstock cluster up.",
            )
        return facts

    def status(self) -> ClusterStatus:
        """The state of the cluster, from its processes and Spark's web pages."""
        facts = self.facts()
        page = (facts.master and spark.fetch_page(_web(facts))) or {}
        by_port = {worker["port"]: worker for worker in page.get("workers", ()) if worker["state"] == "ALIVE"}
        apps = tuple((app["name"], int(app["cores"])) for app in page.get("activeapps", ()))
        return ClusterStatus(
            facts.url or "",
            _web(facts) if facts.master else "",
            bool(facts.master and processes.is_alive(facts.master.process)) and page.get("status") == "ALIVE",
            tuple(_worker_status(worker, facts, by_port.get(worker.port)) for worker in facts.workers),
            apps,
        )

    # -- killing and stopping -------------------------------------------------------------------

    def kill(self, name: str) -> int:
        """Kill a worker and its executors, as a power loss would; returns the number of processes."""
        with self._locked_facts() as facts:
            facts.worker(name)
            killed = processes.find_marked(f"{facts.id}/{name}")
            processes.kill(killed)
            return len(killed)

    def remove(self, name: str) -> None:
        """Stop a worker and its executors, and remove it from the cluster."""
        with self._locked_facts() as facts:
            facts.worker(name)
            self._end_part(f"{facts.id}/{name}", [facts.worker(name).process])
            facts_file.write_facts(self.directory, facts.without(name))

    def down(self) -> int:
        """Stop all processes of the cluster; returns their number. Logs remain."""
        with self._locked_facts() as facts:
            ended = self._end_all(facts.id)
            shutil.rmtree(self.directory / "scratch", ignore_errors=True)
            remove_secret(self.directory, facts.master.port if facts.master else None)
            facts_file.write_facts(self.directory, None)
            return ended

    @contextlib.contextmanager
    def _locked_facts(self) -> Iterator[Facts]:
        """The facts of the cluster, which no other command can change meanwhile."""
        self.facts()
        with facts_file.lock_cluster(self.directory):
            yield self.facts()

    def _end_all(self, mark: str) -> int:
        """Stop workers first, which stop their executors; then everything that is left."""
        facts = facts_file.read_facts(self.directory)
        daemons = [worker.process for worker in facts.workers] if facts else []
        return self._end_part(mark, daemons)

    def _end_part(self, mark: str, first: list[processes.Process]) -> int:
        all_ = processes.find_marked(mark)
        processes.end([process for process in all_ if process in first])
        processes.end(processes.find_marked(mark))
        processes.kill(processes.find_marked(mark))  # an executor that was just being started
        return len(all_)


_RESTART = "Stop the rest with `penstock cluster down`, then start the cluster again."


def _web(facts: Facts) -> str:
    assert facts.master is not None
    return f"http://{HOST}:{facts.master.web_port}"


def _is_registered(facts: Facts, worker: Worker) -> bool:
    """Whether the worker is registered at the master and alive."""
    workers = (spark.fetch_page(_web(facts)) or {}).get("workers", ())
    return any(other["port"] == worker.port and other["state"] == "ALIVE" for other in workers)


def _worker_status(worker: Worker, facts: Facts, listed: dict[str, Any] | None) -> WorkerStatus:
    executors: tuple[tuple[str, str], ...] = ()
    if listed is not None:
        page = spark.fetch_page(listed["webuiaddress"]) or {}
        executors = tuple((e["appdesc"]["name"], str(e["id"])) for e in page.get("executors", ()))
    return WorkerStatus(
        worker.name,
        processes.is_alive(worker.process) and listed is not None,
        worker.process.pid,
        facts.cores_per_worker,
        int(listed["coresused"]) if listed else 0,
        worker.cpus,
        executors,
    )
