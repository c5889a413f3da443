"""Which starts of this service followed a death: kept beside the state, so that people can see that it came back.

    DIR/service.json   when it was started, the last epoch, whether it ended by itself, and its restarts

Receives that the state is open, that epochs are committed, that it ends; hands the restarts so far. The file is written
at a start, at the first epoch after it and at an end: never for every epoch.

Does not guarantee: anything about results; those are the manifests' and the sinks'. A file that cannot be read or
written is done without.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from penstock.metrics.epoch import EpochMetrics
from penstock.state.durable import write_whole

#: restarts that are remembered
KEPT = 50


class Restarts:
    """The starts of the service on one state directory."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self.started_at = time.time()
        self.starts = 1
        #: oldest first, as `schemas.Restart`
        self.restarts: list[dict[str, Any]] = []
        self._waiting = False
        self._open = False

    def opened(self, committed: int) -> None:
        """The state is ours: find out how the last start ended."""
        before = self._read()
        self.starts = int(before.get("starts", 0)) + 1
        self.restarts = list(before.get("restarts", []))[-KEPT:]
        if before and not before.get("ended", True):
            self._waiting = True
            self.restarts.append(
                {
                    "last_epoch": committed,
                    "last_result_at": self._committed_at(committed),
                    "started_at": self.started_at,
                    "first_epoch": None,
                    "first_result_at": None,
                    "gap_seconds": None,
                }
            )
        self._open = True
        self._write(ended=False)

    def epoch(self, epoch: EpochMetrics) -> None:
        """An epoch is committed."""
        if not self._waiting:
            return
        self._waiting, last = False, self.restarts[-1]
        before, now = last["last_result_at"], epoch.committed_at
        gap = None if before is None else max(now - before, 0.0)
        self.restarts[-1] = {**last, "first_epoch": epoch.epoch, "first_result_at": now, "gap_seconds": gap}
        self._write(ended=False)

    def ended(self) -> None:
        """It ends by itself."""
        if self._open:
            self._write(ended=True)

    def _committed_at(self, epoch: int) -> float | None:
        """When an epoch was committed, going by its manifest."""
        found = list((self._state / "manifests").glob(f"{epoch:012d}*"))
        try:
            return max(path.stat().st_mtime for path in found) if found else None
        except OSError:
            return None

    def _read(self) -> dict[str, Any]:
        try:
            found = json.loads((self._state / "service.json").read_bytes())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _write(self, *, ended: bool) -> None:
        told = {
            "starts": self.starts,
            "started_at": self.started_at,
            "ended": ended,
            "restarts": self.restarts,
        }
        try:
            write_whole(self._state / "service.json", json.dumps(told).encode())
        except OSError:
            return
