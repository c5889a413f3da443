"""Lists, requests and retires the executors of a running engine.

It uses Spark's own scheduler interface (`ExecutorAllocationClient`), which standalone, Kubernetes and YARN implement. A
local master has no executors: it lists none and takes no requests.

How Spark 4.3 behaves (found by experiment on standalone, docs/decisions/0012):
- `requestTotalExecutors` sets a ceiling that stays. What is missing is started, in seconds; an executor that is
  lost is replaced while the ceiling is higher than what is there; a number beyond what the cluster has is
  accepted and met as far as there is room, also later when a worker joins. Lowering it ends nobody.
- Decommissioning and killing lower the ceiling by as many, so nobody takes the place. To grow again, request
  again. A decommissioned executor gets no further task, ends those it has, and goes when it is idle; a killed
  one goes at once, and its tasks are done again elsewhere, not counted as failures. Either way shuffle files on
  it are gone: Spark repeats the tasks that made them if they are still wanted.
- A standalone application gets an executor of every worker when it registers, whatever
  `spark.executor.instances` says, and `spark.cores.max` can never be raised again. The one thing that lets it
  start with fewer and grow is dynamic allocation's initial number; so that is set, and its thread, which would
  decide against us, is stopped as soon as the context is up (`stop_dynamic_allocation`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from py4j.java_gateway import is_instance_of
from pyspark import SparkContext

from penstock.errors import ExternalError, UserError
from penstock.settings import Settings

_POLL_SECONDS = 0.05
#: executors of a cluster that gives all it has come one after the other: so long without another means all are there
_QUIET_SECONDS = 2.0


@dataclass(frozen=True)
class Executor:
    """An executor: `host` as Spark knows it, `since` in seconds of the epoch."""

    id: str
    host: str
    cores: int
    since: float
    done_tasks: int
    #: it is going: it gets no further tasks
    leaving: bool = False

    @property
    def location(self) -> str:
        """The name under which a task can prefer it."""
        return f"executor_{self.host}_{self.id}"


def initial_settings(settings: Settings) -> dict[str, str]:
    """Spark settings with which an application on a cluster starts with the requested executors."""
    cores = settings.executor_cores
    chosen = {"spark.decommission.enabled": "true"}
    if settings.executors is None:
        return chosen | ({} if cores is None else {"spark.executor.cores": str(cores)})
    if settings.executors < 1:
        raise UserError("BAD_SETTING", "an engine on a cluster starts with one executor at least")
    chosen |= {"spark.executor.cores": str(cores or 1)}
    if not settings.master.startswith("spark://"):
        return chosen | {"spark.executor.instances": str(settings.executors)}
    return chosen | {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.minExecutors": "0",
        "spark.dynamicAllocation.initialExecutors": str(settings.executors),
    }


def stop_dynamic_allocation(context: SparkContext) -> None:
    """Stop Spark's own decisions about executors: from here on they come and go by our requests."""
    manager = context._jsc.sc().executorAllocationManager()
    if manager.isDefined():
        manager.get().stop()


class Executors:
    """The executors of one Spark application."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._spark: Any = context._jsc.sc()
        self._jvm: Any = context._jvm
        self._backend = self._spark.schedulerBackend()
        self.can_change: bool = is_instance_of(
            context._gateway, self._backend, "org.apache.spark.ExecutorAllocationClient"
        )

    def list(self) -> tuple[Executor, ...]:
        """The executors that are there now, oldest first; also those about to leave."""
        if not self.can_change:
            return ()
        found = self._spark.statusStore().executorList(True)
        summaries = [found.apply(at) for at in range(found.size())]
        executors = [self._executor(summary) for summary in summaries if summary.id() != "driver"]
        return tuple(sorted(executors, key=lambda executor: (executor.since, executor.id)))

    def staying(self) -> tuple[Executor, ...]:
        """Those of `list` that take tasks."""
        return tuple(executor for executor in self.list() if not executor.leaving)

    def request(self, total: int) -> bool:
        """Request so many executors in all; True when the cluster has accepted that. They come later, if ever."""
        nowhere = getattr(getattr(self._jvm.scala.collection.immutable, "Map$"), "MODULE$").empty()
        return self.can_change and bool(self._spark.requestTotalExecutors(total, 0, nowhere))

    def retire(self, ids: Collection[str], *, at_once: bool = False) -> tuple[str, ...]:
        """Retire executors without replacement; returns those that will go. `at_once` takes their tasks away.

        What was requested and has not come is no longer requested.
        """
        if not self.can_change or not ids:
            return ()
        self.request(
            len(self.staying())
        )  # the ceiling is lowered from here: from higher up, others would come
        if at_once or self._context.getConf().get("spark.decommission.enabled", "false") != "true":
            going = self._backend.killExecutors(self._jvm.PythonUtils.toSeq([*ids]), True, False, True)
            return tuple(going.apply(at) for at in range(going.size()))
        reason = self._jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo(
            "retired by Penstock", self._jvm.scala.Option.empty()
        )
        retired = self._context._gateway.new_array(self._jvm.scala.Tuple2, len(ids))
        for at, id_ in enumerate(ids):
            retired[at] = self._jvm.scala.Tuple2(id_, reason)
        going = self._backend.decommissionExecutors(retired, True, False)
        return tuple(going.apply(at) for at in range(going.size()))

    def wait_for(self, total: int, deadline_seconds: float) -> bool:
        """Wait until so many take tasks; False: they did not come within the deadline."""
        return _within(deadline_seconds, lambda: len(self.staying()) >= total)

    def wait_gone(self, ids: Collection[str], deadline_seconds: float) -> bool:
        """Wait until these are there no more; False: some still are after the deadline."""
        gone = set(ids)
        return _within(deadline_seconds, lambda: not gone & {executor.id for executor in self.list()})

    def wait_for_first(self, total: int | None, deadline_seconds: float) -> None:
        """Wait for the first executors: so many or, without a number, all that the cluster gives.

        If fewer come than requested, the run starts with those; if none comes, that is an error. Those that are too
        many (of a session that was given, of a cluster that gives all) are retired.
        """
        if not self.can_change:
            return
        if total is not None and len(self.staying()) < total:
            self.request(total)  # of a session that was given, nobody else has requested them
        came = self.wait_for(total or 1, deadline_seconds)
        if not came and not self.staying():
            raise ExternalError(
                "NO_EXECUTORS",
                f"no executor came within {deadline_seconds:.0f} s from {self._context.master}",
                hint="Check that the cluster runs and has cores and memory to spare for one executor.",
            )
        if total is None:
            self._wait_quiet(deadline_seconds)
        elif extra := [executor.id for executor in self.staying()[total:]]:
            self.retire(extra)

    @property
    def cores(self) -> int:
        """Tasks that can run at once."""
        return sum(executor.cores for executor in self.staying())

    def _wait_quiet(self, deadline_seconds: float) -> None:
        deadline, seen, since = time.monotonic() + deadline_seconds, 0, time.monotonic()
        while time.monotonic() < min(deadline, since + _QUIET_SECONDS):
            if (now := len(self.staying())) != seen:
                seen, since = now, time.monotonic()
            time.sleep(_POLL_SECONDS)

    def _executor(self, summary: Any) -> Executor:
        id_ = summary.id()
        return Executor(
            id_,
            summary.hostPort().rpartition(":")[0],
            summary.totalCores(),
            summary.addTime().getTime() / 1000,
            summary.completedTasks(),
            not self._backend.isExecutorActive(id_),
        )


def _within(deadline_seconds: float, reached: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + deadline_seconds
    while not reached():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True
