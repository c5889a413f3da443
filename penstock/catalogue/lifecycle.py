"""The master of a job: a pure state machine from the first command to the last.

    created ──▶ running ◀──▶ paused
                  │  ▲          │
                  ▼  │ resume   │
                failed ─────────┤
                  └──── drop ───┴──▶ gone

A job that is altered or emptied keeps its state of life; one that failed runs again once it is resumed or altered.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from penstock.errors import UserError

Life = Literal["running", "paused", "failed", "gone"]
Transition = Literal["pause", "resume", "alter", "empty", "flush", "drop", "fail"]

_NEXT: dict[tuple[Life, Transition], Life] = {
    ("running", "pause"): "paused",
    ("running", "alter"): "running",
    ("running", "empty"): "running",
    ("running", "flush"): "running",
    ("running", "fail"): "failed",
    ("running", "drop"): "gone",
    ("paused", "resume"): "running",
    ("paused", "alter"): "paused",
    ("paused", "empty"): "paused",
    ("paused", "fail"): "failed",
    ("paused", "drop"): "gone",
    ("failed", "resume"): "running",
    ("failed", "alter"): "running",
    ("failed", "empty"): "failed",
    ("failed", "fail"): "failed",
    ("failed", "drop"): "gone",
}
_HINTS: dict[tuple[Life, Transition], str] = {
    ("running", "resume"): "It is running already.",
    ("paused", "pause"): "It is paused already.",
    ("paused", "flush"): "Resume it first: a paused job emits nothing.",
    ("failed", "pause"): "It has failed and does not run; see why with SHOW JOBS, then alter or resume it.",
    ("failed", "flush"): "It has failed; alter or resume it first.",
}


@dataclass(frozen=True)
class Master:
    """The state of life of a job. `version` counts its changes; `error` is why it failed."""

    job: str
    life: Life = "running"
    version: int = 1
    error: str | None = None

    def after(self, transition: Transition, error: str | None = None) -> Master:
        """The master after a transition; raises where the job cannot make it now."""
        life = _NEXT.get((self.life, transition))
        if life is None:
            raise UserError(
                "JOB_CANNOT",
                f"the job {self.job} is {self.life}: it cannot {transition}",
                hint=_HINTS.get((self.life, transition), "See SHOW JOBS for the jobs there are."),
            )
        previous = self.error if life == "failed" else None
        return replace(
            self,
            life=life,
            version=self.version + (transition != "flush"),
            error=error if transition == "fail" else previous,
        )
