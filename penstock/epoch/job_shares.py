"""Jobs that take more than their share of epochs, again and again: who they are is decided here. Pure.

Receives how long jobs kept each epoch; hands an error for each that is to be paused.

A job is over its share in an epoch that it kept for more than `share` of the epoch's length, or of the length an epoch
should have, whichever is longer: a trickle is nobody's burden. It is paused when that has been so in `patience`
epochs one after the other, and only while there are others who suffer from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from penstock.errors import PenstockError, UserError


@dataclass(frozen=True)
class JobShares:
    """What is allowed, and in how many epochs until now each job was over it."""

    #: of an epoch; 0: as much as it likes
    share: float
    #: how long an epoch should take
    epoch_seconds: float
    patience: int = 5
    over: Mapping[int, int] = field(default_factory=dict)

    def after(
        self, taken: Mapping[int, float], seconds: float, names: Mapping[int, str]
    ) -> tuple[JobShares, dict[int, PenstockError]]:
        """What is known after an epoch of so many seconds that jobs kept for so long, and who is to be paused.
        `names`: all jobs that ran."""
        limit = self.share * max(self.epoch_seconds, seconds)
        if not self.share or len(names) < 2:
            return replace(self, over={}), {}
        over = {
            job: self.over.get(job, 0) + 1 for job, kept in taken.items() if kept > limit and job in names
        }
        enough = [job for job, times in over.items() if times >= self.patience]
        errors = {job: self._error(names[job], taken[job], limit) for job in enough}
        return replace(self, over={job: times for job, times in over.items() if job not in errors}), errors

    def _error(self, name: str, seconds: float, limit: float) -> PenstockError:
        return UserError(
            "JOB_OVER_ITS_SHARE",
            f"the job {name} kept each of {self.patience} epochs in a row for longer than its share",
            detail=f"the last for {seconds:.2f} s, where {limit:.2f} s are its share (job_share is {self.share:g})",
            hint="Make its functions faster, run it in an engine of its own, or raise job_share; then resume it.",
        )
