"""Follows an HA unit for a service: what its primary commits, who leads, and the figures of the primary's epochs.

Receives a unit, and what its engines leave in the state directory, the book and the coordination store; hands the host
of a service committed epochs and figures.

Guarantees: an epoch is told to the host when its rows are kept and it is certain to stay: it has a manifest, or its
successor is recorded, or the primary says that it is committed. Epochs never go back, whoever leads.
Does not guarantee figures: those of epochs that a primary had no time to tell, or of one on another host, are missing.
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
from typing import Any

from penstock.errors import PenstockError
from penstock.ha.unit import Unit
from penstock.metrics.epoch import EpochFigures
from penstock.server.engine_question import asked
from penstock.server.host import Host
from penstock.server.structured_log import log
from penstock.state.directory import StateDirectory

#: how often it looks what was committed, who leads, and what the primary measured, in seconds
_LOOK_SECONDS, _LEADER_SECONDS, _FIGURES_SECONDS = 0.05, 0.2, 0.5
#: how long a primary may take to answer, in seconds: one that is paused never does
_PATIENCE_SECONDS = 2.0
#: how often it is told that something cannot be read, in seconds
_TELL_SECONDS = 10.0

#: what the host is in while nobody leads: before the first primary, and after
BEFORE, BETWEEN = "starting engines", "no primary"


class Follower:
    """Follows a unit while it is entered, on threads of its own. The unit is its own to read, and to close. `ours`: the
    service is the unit's, and not one beside it."""

    def __init__(self, unit: Unit, hosted: Host, *, ours: bool = True) -> None:
        self._unit, self._hosted, self._ours = unit, hosted, ours
        self._directory = unit.root
        #: the last epoch that the primary says is committed, and what it says of itself; nothing while nobody leads
        self._said = -1
        self._status: Mapping[str, Any] = {}
        self._leads = False
        #: when it was last seen who leads
        self._looked_at = time.monotonic()
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._again, args=(what, seconds), name=f"penstock-{name}", daemon=True)
            for name, what, seconds in (
                ("follow", self._follow, _LOOK_SECONDS),
                ("leader", self._look, _LEADER_SECONDS),
                ("figures", self._measure, _FIGURES_SECONDS),
            )
        ]
        self._seen = (-2, -1)
        self._counted = -1

    def __enter__(self) -> Follower:
        hosted = self._hosted
        with contextlib.suppress(PenstockError):
            self._look()
        self._counted = self.committed = max(self._found(), self._kept())
        hosted.look = lambda: self._status
        hosted.backlog = lambda: self._status.get("backlog", {})
        hosted.opened(self.committed, ours=self._ours)
        hosted.entered(BEFORE)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=2 * _PATIENCE_SECONDS)
        with contextlib.suppress(PenstockError, OSError):
            self._follow()  # the last of it
        self._unit.close()

    def _again(self, what: Callable[[], None], seconds: float) -> None:
        told_at = -_TELL_SECONDS
        while not self._stop.wait(seconds):
            try:
                what()
            except Exception as error:  # whatever it is, the next look may go well
                if time.monotonic() - told_at > _TELL_SECONDS:
                    text = error.text() if isinstance(error, PenstockError) else repr(error)
                    log("cannot follow", logging.WARNING, error=text)
                    told_at = time.monotonic()

    # -- what is committed -----------------------------------------------------------------------

    def _follow(self) -> None:
        """Tell the host what was committed or said since."""
        if self._leads and time.monotonic() - self._looked_at > self._unit.launch.lease_seconds:
            self._between("who leads cannot be seen")  # a look takes as long as the store takes to fail
        self.committed = max(self.committed, self._found())
        program = self._hosted.program
        found = self.committed, program.commands
        if found != self._seen:
            self._hosted.followed(self.committed, program.followed(self.committed))
            self._seen = found

    def _found(self) -> int:
        """The last epoch that is known to be committed."""
        manifests, recorded = (
            StateDirectory(self._directory).manifests.epochs(),
            self._unit.shared_records.epochs(),
        )
        # whoever records an epoch has committed the one before
        return max(*manifests[-1:], *(epoch - 1 for epoch in recorded[-1:]), self._said, -1)

    def _kept(self) -> int:
        """The last epoch whose rows are kept: a service before this one may have told them."""
        folder = self._unit.root / "results"
        names = os.listdir(folder) if folder.is_dir() else []
        return max(
            (int(name[:-6]) for name in names if name.endswith(".arrow") and name[0] != "."), default=-1
        )

    # -- who leads, and its figures --------------------------------------------------------------

    def _look(self) -> None:
        """Look who leads."""
        record, members = self._unit.record(), self._unit.members()
        self._looked_at = time.monotonic()
        primary = members.get(record.leader or "")
        leads = primary is not None and primary.phase == "primary" and primary.seems_up
        self._directory = Path(record.directory)
        self._said = primary.epoch if primary is not None and leads else -1
        if not leads:
            self._status = {}
        if leads == self._leads or self._hosted.phase in ("starting", "ending"):
            return
        self._leads = leads
        self._hosted.entered("running" if leads else BETWEEN)
        log("running" if leads else BETWEEN, engine=record.leader, generation=record.generation)

    def _between(self, why: str) -> None:
        self._leads, self._said, self._status = False, -1, {}
        if self._hosted.phase not in ("starting", "ending"):
            self._hosted.entered(BETWEEN)
            log(BETWEEN, logging.WARNING, reason=why)

    def _measure(self) -> None:
        """Ask the primary for its figures."""
        if not self._leads:
            return
        directory = self._directory
        with contextlib.suppress(PenstockError):  # it has no time, is elsewhere, or is gone
            for figures in asked(directory, f"epochs {self._counted + 1}", _PATIENCE_SECONDS):
                epoch = EpochFigures.from_plain(figures)
                if epoch.epoch > self._counted:
                    self._hosted.counted(epoch)
                    self._counted = epoch.epoch
            if directory == self._directory:
                self._status = asked(directory, patience=_PATIENCE_SECONDS)
