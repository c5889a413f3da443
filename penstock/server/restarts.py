"""Records which starts of this service followed a crash, and how long there were no results.

    DIR/service.json   when it was started, how often, whether it ended by itself, and its restarts

The file is written at a start, at the first epoch after it and at the end: never for every epoch.

Does not guarantee: anything about results; those are a matter of the manifests and the sinks. A file that cannot be
read or written is ignored.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from penstock.metrics.epoch import EpochMetrics
from penstock.state.durable import write_whole

#: restarts in the file
MAX_RESTARTS = 50


class Restarts:
    """The starts of the service on one state directory."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self.started_at = time.time()
        self.starts = 1
        #: oldest first, as `response_bodies.Restart`
        self.restarts: list[dict[str, Any]] = []
        #: whether the first result after a restart is still to come
        self._is_restarting = False
        self._is_open = False

    def open(self, committed: int) -> None:
        """Find out how the last start ended; called once this process owns the state."""
        before = self._read()
        self.starts = int(before.get("starts", 0)) + 1
        self.restarts = list(before.get("restarts", []))[-MAX_RESTARTS:]
        if before and not before.get("ended", True):
            self._is_restarting = True
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
        self._is_open = True
        self._write(ended=False)

    def add_epoch(self, epoch: EpochMetrics) -> None:
        """Record the first result after a restart."""
        if not self._is_restarting:
            return
        self._is_restarting, last = False, self.restarts[-1]
        before, now = last["last_result_at"], epoch.committed_at
        gap = None if before is None else max(now - before, 0.0)
        self.restarts[-1] = {**last, "first_epoch": epoch.epoch, "first_result_at": now, "gap_seconds": gap}
        self._write(ended=False)

    def end(self) -> None:
        """Record that the service ends by itself."""
        if self._is_open:
            self._write(ended=True)

    def _committed_at(self, epoch: int) -> float | None:
        """When an epoch was committed, by the time of its manifest."""
        manifests = list((self._state / "manifests").glob(f"{epoch:012d}*"))
        try:
            return max(path.stat().st_mtime for path in manifests) if manifests else None
        except OSError:
            return None

    def _read(self) -> dict[str, Any]:
        try:
            content = json.loads((self._state / "service.json").read_bytes())
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}

    def _write(self, *, ended: bool) -> None:
        content = {
            "starts": self.starts,
            "started_at": self.started_at,
            "ended": ended,
            "restarts": self.restarts,
        }
        try:
            write_whole(self._state / "service.json", json.dumps(content).encode())
        except OSError:
            return
