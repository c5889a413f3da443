"""Starts the logs that an engine reads, each once, and keeps what they remember in the state directory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.errors import InternalError
from penstock.logs.contract import Log
from penstock.query.physical import Plan, ScanPlan
from penstock.state.directory import StateDirectory


class OpenLogs:
    """The logs of an engine's streams."""

    def __init__(self, state: StateDirectory, buckets: int, *, leads: bool = True) -> None:
        known = state.facts.buckets
        if known is None:
            state.update_facts(buckets=buckets)
        elif known != buckets:
            raise InternalError(
                "BUCKETS_CHANGED",
                f"this state was made with {known} buckets, not {buckets}",
                hint=f"Start with buckets={known}: the number is fixed for the life of a state.",
            )
        self._state, self._leads = state, leads
        self._remembered, self._reached = state.facts.logs, state.records.last_offsets()
        self._started: dict[str, Log] = {}

    def start(self, plan: Plan, *, again: bool = False) -> None:
        """Start the logs of a plan's streams; `again`: also those that were started."""
        if again:
            self._started.clear()
        for name, scan in plan.scans.items():
            self.start_one(name, scan)

    def start_one(self, name: str, scan: ScanPlan) -> None:
        """Start the log of a stream, unless it is started. A log of its name may have been started for a command that
        was refused in the end. A follower starts none: it reads them as the leader does."""
        if self._leads and self._started.get(name) is not scan.stream.log:
            memory = scan.start_log(self._remembered.get(name), self._reached.get(name, {}))
            self._started[name] = scan.stream.log
            self._state.update_facts(logs={**self._state.facts.logs, name: memory})

    def follow(self, plan: Plan, memory: Mapping[str, Any]) -> None:
        """Read the logs as the leader does, whose logs remember this."""
        for name, scan in plan.scans.items():
            if name in memory:
                scan.stream.log.resumed(memory[name])
                self._started[name] = scan.stream.log
        self._state.update_facts(logs={**self._state.facts.logs, **memory})

    def lacks(self, plan: Plan) -> bool:
        """Whether a plan has streams whose logs are neither started nor followed."""
        return any(self._started.get(name) is not scan.stream.log for name, scan in plan.scans.items())

    def lead(self, plan: Plan, memory: Mapping[str, Any]) -> None:
        """Start the logs where the records of the former leader end; `memory`: what its logs remember, also in epochs
        that this engine has not executed yet."""
        self._leads = True
        self._state.update_facts(logs={**memory, **self._state.facts.logs})
        self._remembered, self._reached = self._state.facts.logs, self._state.records.last_offsets()
        self.start(plan, again=True)
