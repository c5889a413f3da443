"""The logs an engine reads: started once each, with what they want remembered kept in the state directory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.errors import InternalError
from penstock.logs.contract import Log
from penstock.query.physical import Plan, ScanPlan
from penstock.state.directory import StateDirectory


class Logs:
    """Starts the logs of streams, each once, and keeps what they want remembered in the state directory."""

    def __init__(
        self, state: StateDirectory, facts: dict[str, Any], buckets: int, *, leads: bool = True
    ) -> None:
        if facts.setdefault("buckets", buckets) != buckets:
            raise InternalError(
                "BUCKETS_CHANGED",
                f"this state was made with {facts['buckets']} buckets, not {buckets}",
                hint=f"Start with buckets={facts['buckets']}: the number is fixed for the life of a state.",
            )
        self._state, self._facts, self._leads = state, facts, leads
        self._known, self._reached = dict(facts["logs"]), state.records.last_offsets()
        self._started: dict[str, Log] = {}

    def start(self, plan: Plan, *, again: bool = False) -> None:
        """Start the logs of a plan's streams; `again`: also those that are started."""
        if again:
            self._started.clear()
        for name, scan in plan.scans.items():
            self.start_one(name, scan)

    def start_one(self, name: str, scan: ScanPlan) -> None:
        """Start the log of a stream unless it is. One of its name may have been started for a command that was
        refused in the end. Who follows starts none: it reads them as the leader does."""
        if self._leads and self._started.get(name) is not scan.stream.log:
            self._facts["logs"][name] = scan.start_log(self._known.get(name), self._reached.get(name, {}))
            self._started[name] = scan.stream.log
            self._state.write_facts(self._facts)

    def follow(self, plan: Plan, memory: Mapping[str, Any]) -> None:
        """Read the logs as the leader does, who remembers this of them."""
        for name, scan in plan.scans.items():
            if name in memory:
                scan.stream.log.resumed(memory[name])
                self._started[name] = scan.stream.log
        self._facts["logs"] = {**self._facts["logs"], **memory}
        self._state.write_facts(self._facts)

    def lacks(self, plan: Plan) -> bool:
        """Whether a plan has streams whose logs are neither started nor followed."""
        return any(self._started.get(name) is not scan.stream.log for name, scan in plan.scans.items())

    def lead(self, plan: Plan, memory: Mapping[str, Any]) -> None:
        """Begin a life of their own where the followed one's records end; `memory`: what that one remembers, also of
        logs in epochs that are not carried out here yet."""
        self._leads = True
        self._facts["logs"] = {**memory, **self._facts["logs"]}
        self._known, self._reached = dict(self._facts["logs"]), self._state.records.last_offsets()
        self.start(plan, again=True)
