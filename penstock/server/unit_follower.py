"""Follows an HA unit for a service: its committed epochs, its leader, and the figures of the leader's epochs.

It reads the state directory, the epoch records and the coordination store of the unit, and reports to the host.

Guarantees: an epoch is reported once its rows are retained and it is certain to stay: it has a manifest, its successor
is recorded, or the leader reports it as committed. Epochs never go back, whoever leads.
Does not guarantee: figures. Those of a leader on another host are missing, and so are the last ones of a leader that
was killed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

from penstock.engine.status import EngineStatus
from penstock.errors import PenstockError
from penstock.ha.unit import Unit
from penstock.server.host import Host
from penstock.server.status_client import request_epochs, request_status
from penstock.server.structured_log import log
from penstock.state.directory import StateDirectory

#: how often to read the committed epochs, the leader, and the figures of the leader, in seconds
_COMMITTED_SECONDS, _LEADER_SECONDS, _FIGURES_SECONDS = 0.05, 0.2, 0.5
#: how long a leader may take to respond, in seconds: one that is paused never does
_RESPONSE_SECONDS = 2.0
#: how often the same failure is logged, in seconds
_LOG_SECONDS = 10.0

#: documented phases of a service while no engine leads: before the first leader, and after one
STARTING, NO_LEADER = "starting engines", "no primary"


class UnitFollower:
    """Follows a unit while it is entered, on threads of its own, and closes the unit at the end. `ours`: the service
    belongs to the unit, and does not only watch it."""

    def __init__(self, unit: Unit, host: Host, *, ours: bool = True) -> None:
        self._unit, self._host, self._ours = unit, host, ours
        self._directory = unit.root
        #: the last epoch that the leader reports as committed, and the leader's status; None without a leader
        self._reported = -1
        self._status: EngineStatus | None = None
        self._has_leader = False
        #: when the leader was last read from the store
        self._leader_read_at = time.monotonic()
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(
                target=self._repeat, args=(action, seconds), name=f"penstock-{name}", daemon=True
            )
            for name, action, seconds in (
                ("follow", self._report_committed, _COMMITTED_SECONDS),
                ("leader", self._read_leader, _LEADER_SECONDS),
                ("figures", self._read_figures, _FIGURES_SECONDS),
            )
        ]
        #: the epoch and the number of commands last reported to the host, and the last epoch with figures
        self._last_report = (-2, -1)
        self._last_figures = -1

    def __enter__(self) -> UnitFollower:
        host = self._host
        with contextlib.suppress(PenstockError):
            self._read_leader()
        self._last_figures = self.committed = max(self._last_committed(), self._last_retained())
        host.engine_status = lambda: self._status
        host.backlog = self._backlog
        host.open(self.committed, ours=self._ours)
        host.enter_phase(STARTING)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=2 * _RESPONSE_SECONDS)
        with contextlib.suppress(PenstockError, OSError):
            self._report_committed()  # what was committed since
        self._unit.close()

    def _repeat(self, action: Callable[[], None], seconds: float) -> None:
        logged_at = -_LOG_SECONDS
        while not self._stop.wait(seconds):
            try:
                action()
            except Exception as error:  # whatever it is, the next attempt may succeed
                if time.monotonic() - logged_at > _LOG_SECONDS:
                    text = error.text() if isinstance(error, PenstockError) else repr(error)
                    log("cannot follow", logging.WARNING, error=text)
                    logged_at = time.monotonic()

    # -- committed epochs ------------------------------------------------------------------------

    def _report_committed(self) -> None:
        """Report new committed epochs and new commands to the host."""
        if self._has_leader and time.monotonic() - self._leader_read_at > self._unit.launch.lease_seconds:
            # reading the leader takes as long as the store takes to fail
            self._lose_leader("the leader cannot be read")
        self.committed = max(self.committed, self._last_committed())
        program = self._host.program
        report = self.committed, program.commands
        if report != self._last_report:
            self._host.follow(self.committed, program.questions.follow_results(self.committed))
            self._last_report = report

    def _last_committed(self) -> int:
        """The last epoch that is known to be committed."""
        manifests = StateDirectory(self._directory).manifests.epochs()
        recorded = self._unit.shared_records.epochs()
        # an engine that records an epoch has committed the one before
        return max(*manifests[-1:], *(epoch - 1 for epoch in recorded[-1:]), self._reported, -1)

    def _last_retained(self) -> int:
        """The last epoch with retained rows: a service before this one may have shown them."""
        folder = self._unit.root / "results"
        names = os.listdir(folder) if folder.is_dir() else []
        return max(
            (int(name[:-6]) for name in names if name.endswith(".arrow") and name[0] != "."), default=-1
        )

    def _backlog(self) -> Mapping[str, int]:
        status = self._status
        return {} if status is None else status.backlog

    # -- the leader and its figures --------------------------------------------------------------

    def _read_leader(self) -> None:
        """Read from the store which engine leads."""
        record, engines = self._unit.record(), self._unit.engines()
        self._leader_read_at = time.monotonic()
        leader = engines.get(record.leader or "")
        leads = leader is not None and leader.phase == "primary" and leader.seems_up
        self._directory = Path(record.directory)
        self._reported = leader.epoch if leader is not None and leads else -1
        if not leads:
            self._status = None
        if leads == self._has_leader or self._host.phase in ("starting", "ending"):
            return
        self._has_leader = leads
        phase = "running" if leads else NO_LEADER
        self._host.enter_phase(phase)
        log(phase, engine=record.leader, generation=record.generation)

    def _lose_leader(self, reason: str) -> None:
        self._has_leader, self._reported, self._status = False, -1, None
        if self._host.phase not in ("starting", "ending"):
            self._host.enter_phase(NO_LEADER)
            log(NO_LEADER, logging.WARNING, reason=reason)

    def _read_figures(self) -> None:
        """Request the figures of the leader's epochs, and its status."""
        if not self._has_leader:
            return
        directory = self._directory
        with contextlib.suppress(PenstockError):  # it is busy, on another host, or gone
            for epoch in request_epochs(directory, self._last_figures + 1, _RESPONSE_SECONDS):
                if epoch.epoch > self._last_figures:
                    self._host.count_epoch(epoch)
                    self._last_figures = epoch.epoch
            if directory == self._directory:
                self._status = request_status(directory, _RESPONSE_SECONDS)
