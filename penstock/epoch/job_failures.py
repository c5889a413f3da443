"""Jobs that fail alone: who failed in a task and why, how long each kept it and how long it may.

Receives what a job's own steps and operators raise; hands it to the driver as a message, so that the epoch can be
carried out without that job.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import FrameType

from penstock.epoch.message import JobError
from penstock.errors import ExternalError, InternalError, PenstockError, UserError

#: as Spark says it
_LATE = "Python worker failed to connect back"
#: the packages whose errors are those of tasks
_SPARK = ("pyspark", "py4j")
#: seconds in a task
_WORTH_TELLING = 0.001


class TooLong(Exception):
    """A job's own code does not come to an end. Raised where that code is."""


class JobsFailed(Exception):
    """Jobs that come and go have failed, by number: the epoch is to be carried out without them."""

    def __init__(self, errors: dict[int, PenstockError]) -> None:
        super().__init__(f"{len(errors)} jobs failed")
        self.errors = errors


@dataclass
class Failures:
    """The jobs that failed in one task, by their numbers, and for how long jobs kept it with what is their own."""

    found: dict[int, PenstockError] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)

    def add(self, job: int, error: PenstockError) -> None:
        """The first failure of a job is the one that is told."""
        self.found.setdefault(job, error)

    def kept(self) -> dict[int, float]:
        """For how long jobs kept the task, where that is worth telling."""
        return {job: seconds for job, seconds in self.seconds.items() if seconds >= _WORTH_TELLING}

    def messages(self) -> Iterator[bytes]:
        """What the driver is told."""
        for job, error in self.found.items():
            yield JobError(job, error).to_bytes()

    @contextlib.contextmanager
    def of(self, job: int | None, seconds: float) -> Iterator[None]:
        """What is done in here is the job's own: it fails alone, also by taking too long. None: nobody's own."""
        if job is None:
            yield
            return
        clock, began = _Clock(), time.perf_counter()
        try:
            with clock.limited(seconds):
                yield
        except Exception as failure:
            if clock.rang:
                self.add(job, _too_long(seconds))
            elif isinstance(failure, PenstockError):
                self.add(job, _of_a_job(failure))
            else:
                self.add(job, _unexpected(failure))
        finally:
            self.seconds[job] = self.seconds.get(job, 0.0) + time.perf_counter() - began


class _Clock:
    """Interrupts what takes too long, where the interpreter lets us: in its main thread."""

    def __init__(self) -> None:
        self.rang = False

    @contextlib.contextmanager
    def limited(self, seconds: float) -> Iterator[None]:
        """Raise `TooLong` inside after so many seconds; 0: never."""
        if seconds <= 0 or threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGALRM, self._ring)
        # again and again: what is interrupted may be tried in another way first
        others, started = signal.setitimer(signal.ITIMER_REAL, seconds, min(seconds, 1.0)), time.monotonic()
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            if others[0]:  # an alarm that somebody had set before, without engine and Spark
                left = others[0] - (time.monotonic() - started)
                signal.setitimer(signal.ITIMER_REAL, max(left, 0.001), others[1])

    def _ring(self, number: int, frame: FrameType | None) -> None:
        self.rang = True
        raise TooLong


def _of_a_job(error: PenstockError) -> PenstockError:
    """The error, with what to do about it where only one job is concerned."""
    return type(error)(
        error.condition,
        error.primary,
        detail=error.detail,
        where=error.where,
        hint="Alter the job, or resume it once what it reads is as it should be.",
    )


def _too_long(seconds: float) -> UserError:
    return UserError(
        "JOB_TOO_SLOW",
        f"the job kept an epoch for more than {seconds:g} s",
        hint="Make its functions faster, or give jobs more time with job_seconds; then resume it.",
    )


def _unexpected(failure: Exception) -> PenstockError:
    text = str(failure).strip().splitlines()
    return InternalError("JOB_FAILED", f"{type(failure).__name__}: {text[0] if text else 'no reason given'}")


def explained(failure: BaseException) -> PenstockError:
    """What ended an epoch, in our own words, where it was none of our errors."""
    if isinstance(failure, PenstockError):
        return failure
    text = str(failure).strip()
    if _LATE in text:
        return ExternalError(
            "WORKER_TOO_LATE",
            "Spark waited in vain for a Python process it had started (ten seconds)",
            detail=_LATE,
            hint="Most likely the machine is overloaded. Nothing is lost: start again with the same state directory "
            "when it has less to do.",
        )
    lines = text.splitlines()
    of_spark = type(failure).__module__.partition(".")[0] in _SPARK
    kind = "A task of the epoch failed" if of_spark else type(failure).__name__
    return InternalError(
        "EPOCH_FAILED",
        f"{kind}: {_said(lines) or type(failure).__name__}",
        detail=text[-2000:] if len(lines) > 1 else None,
        hint="The epoch is not committed; start again with the same state directory to repeat it.",
    )


def _said(lines: Sequence[str]) -> str:
    """The line of an error's text that says what it is: of a traceback what follows the calls, else the first."""
    tracebacks = [
        number for number, line in enumerate(lines) if line.strip().startswith("Traceback (most recent")
    ]
    if tracebacks:
        margin = len(lines[tracebacks[-1]]) - len(lines[tracebacks[-1]].lstrip())
        for line in lines[tracebacks[-1] + 1 :]:
            if line.strip() and len(line) - len(line.lstrip()) <= margin:
                return line.strip()
    return next((line.strip() for line in lines if line.strip()), "")
