"""Isolates jobs from each other: a job that fails, or takes more than its share of epochs, fails or is paused alone.

In a task, `JobFailures` catches what a job's own code raises, limits how long it may take and measures it; `job_memory`
bounds its memory. Code that some outputs of an app share, and not all, fails these. The driver executes the epoch
again without the jobs that failed. `JobShares` decides which jobs are paused.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import FrameType

from penstock.epoch.job_memory import JobMemory, JobWatch, job_watch
from penstock.epoch.message import JobError
from penstock.errors import ExternalError, InternalError, PenstockError, UserError, is_transient
from penstock.query.steps import COMPUTING_RAISES

#: texts of Spark's
_WORKER_LATE = "Python worker failed to connect back"
_RESULT_SIZE = "is bigger than spark.driver.maxResultSize"
#: the packages whose errors are those of tasks
_SPARK = ("pyspark", "py4j")
#: a job's own code is reported from so many seconds in a task on
_LEAST_SECONDS = 0.001


class JobTimeout(Exception):
    """A job's own code takes too long. Raised inside that code."""


class JobsFailed(Exception):
    """Jobs that come and go have failed, by number: the epoch is to be executed without them."""

    def __init__(self, errors: dict[int, PenstockError]) -> None:
        super().__init__(f"{len(errors)} jobs failed")
        self.errors = errors


@dataclass
class JobFailures:
    """The jobs that failed in one task, by their numbers, and how long the own code of each job took."""

    errors: dict[int, PenstockError] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)
    #: of the worker; None where memory is not bounded
    watch: JobWatch | None = None

    @staticmethod
    def of(memory: JobMemory | None) -> JobFailures:
        """Those of a task in which jobs may take so much memory."""
        return JobFailures(watch=None if memory is None else job_watch(memory))

    def add(self, job: int, error: PenstockError) -> None:
        """Record a failure; only the first of a job counts."""
        self.errors.setdefault(job, error)

    def job_seconds(self) -> dict[int, float]:
        """How long the own code of jobs took, where it is worth reporting."""
        return {job: seconds for job, seconds in self.seconds.items() if seconds >= _LEAST_SECONDS}

    def job_bytes(self) -> dict[int, int]:
        """By how many bytes the process grew in the own code of jobs, where it is worth reporting."""
        return {} if self.watch is None else self.watch.take_growth()

    def messages(self) -> Iterator[bytes]:
        """The failures, for the driver."""
        for job, error in self.errors.items():
            yield JobError(job, error).to_bytes()

    @contextlib.contextmanager
    def isolate(self, jobs: tuple[int, ...], seconds: float) -> Iterator[None]:
        """Run the own code of jobs: they fail alone, also if it takes longer than so many seconds. No job: an error is
        everybody's. Only what belongs to one job alone is measured."""
        if not jobs:
            yield
            return
        timer, started, alone = _Timer(), time.perf_counter(), len(jobs) == 1
        try:
            with (
                timer.limit(seconds),
                self.watch.watch(jobs[0]) if alone and self.watch is not None else contextlib.nullcontext(),
            ):
                yield
        except COMPUTING_RAISES as failure:  # whatever a user's code raises
            error = _timeout_error(seconds) if timer.has_expired else _error_of_jobs(jobs, failure)
            if error is None:
                raise
            for job in jobs:
                self.add(job, error)
        finally:
            if alone:
                self.seconds[jobs[0]] = self.seconds.get(jobs[0], 0.0) + time.perf_counter() - started


class _Timer:
    """Interrupts what takes too long, where the interpreter allows that: in its main thread."""

    def __init__(self) -> None:
        self.has_expired = False

    @contextlib.contextmanager
    def limit(self, seconds: float) -> Iterator[None]:
        """Raise `JobTimeout` inside after so many seconds; 0: never."""
        if seconds <= 0 or threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGALRM, self._expire)
        # again and again: code may catch an interruption and try something else first
        others, started = signal.setitimer(signal.ITIMER_REAL, seconds, min(seconds, 1.0)), time.monotonic()
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            if others[0]:  # an alarm that somebody had set before, without engine and Spark
                left = others[0] - (time.monotonic() - started)
                signal.setitimer(signal.ITIMER_REAL, max(left, 0.001), others[1])

    def _expire(self, number: int, frame: FrameType | None) -> None:
        self.has_expired = True
        raise JobTimeout


def _error_of_jobs(jobs: tuple[int, ...], failure: BaseException) -> PenstockError | None:
    """The error with which jobs fail alone. None for outputs of an app (their numbers are negative), if it is not their
    code that fails: the engine waits for what is away, and ends if state is damaged, as it does for all."""
    is_output = jobs[0] < 0
    if isinstance(failure, UserError) or (isinstance(failure, PenstockError) and not is_output):
        return failure if is_output else _with_job_hint(failure)
    if is_output and isinstance(failure, PenstockError | OSError):
        return None
    return _unexpected_error(failure)


def _with_job_hint(error: PenstockError) -> PenstockError:
    """The error, with what to do about it where only one job is concerned."""
    return type(error)(
        error.condition,
        error.primary,
        detail=error.detail,
        where=error.where,
        hint="Alter the job, or resume it once what it reads is as it should be.",
    )


def _timeout_error(seconds: float) -> UserError:
    return UserError(
        "JOB_TOO_SLOW",
        f"the job's own code took more than {seconds:g} s in a task of an epoch",
        hint="Make its functions faster, or give jobs more time with job_seconds; then resume it.",
    )


def _unexpected_error(failure: BaseException) -> PenstockError:
    text = str(failure).strip().splitlines()
    return InternalError("JOB_FAILED", f"{type(failure).__name__}: {text[0] if text else 'no reason given'}")


@dataclass(frozen=True)
class JobShares:
    """How much of epochs jobs may take, and in how many epochs in a row each job has taken more. Pure.

    A job is over its share in an epoch if its own code took more than `share` of the epoch's length, or of the target
    length if that is longer: a trickle is no burden. It is paused after `patience` such epochs in a row, and only while
    there are other jobs.
    """

    #: of an epoch; 0 for no limit
    share: float
    #: the target length of an epoch
    epoch_seconds: float
    patience: int = 5
    over: Mapping[int, int] = field(default_factory=dict)

    def after(
        self, taken: Mapping[int, float], seconds: float, names: Mapping[int, str]
    ) -> tuple[JobShares, dict[int, PenstockError]]:
        """The shares after an epoch of so many seconds, of which jobs took these, and an error for each job to pause.
        `names`: all jobs that ran."""
        limit = self.share * max(self.epoch_seconds, seconds)
        if not self.share or len(names) < 2:
            return replace(self, over={}), {}
        over = {job: self.over.get(job, 0) + 1 for job, one in taken.items() if one > limit and job in names}
        errors = {
            job: self._error(names[job], taken[job], limit)
            for job, times in over.items()
            if times >= self.patience
        }
        return replace(self, over={job: times for job, times in over.items() if job not in errors}), errors

    def _error(self, name: str, seconds: float, limit: float) -> PenstockError:
        return UserError(
            "JOB_OVER_ITS_SHARE",
            f"the job {name} took more than its share of each of {self.patience} epochs in a row",
            detail=f"{seconds:.2f} s of the last one, where its share is {limit:.2f} s (job_share is {self.share:g})",
            hint="Make its functions faster, run it in an engine of its own, or raise job_share; then resume it.",
        )


# -- what ends an epoch unforeseen -----------------------------------------------------------------------


def explain_failure(failure: BaseException) -> PenstockError:
    """The error for whatever ended an epoch."""
    if isinstance(failure, PenstockError):
        return failure
    text = str(failure).strip()
    if _WORKER_LATE in text:
        return ExternalError(
            "WORKER_TOO_LATE",
            "Spark waited in vain for a Python process it had started (ten seconds)",
            detail=_WORKER_LATE,
            hint="Most likely the machine is overloaded. Nothing is lost: start again with the same state directory "
            "when it has less to do.",
            is_transient=True,
        )
    if _RESULT_SIZE in text:
        return ExternalError(
            "RESULT_TOO_LARGE",
            "what the tasks of an epoch sent to the driver is larger than Spark may collect",
            detail=next((line.strip() for line in text.splitlines() if _RESULT_SIZE in line), None),
            hint="Start again with a larger spark.driver.maxResultSize (and more memory for the driver), or leave out "
            "the job that emits so much: `penstock recover exclude-job DIR JOB`.",
        )
    lines = text.splitlines()
    is_of_spark = type(failure).__module__.partition(".")[0] in _SPARK
    kind = "A task of the epoch failed" if is_of_spark else type(failure).__name__
    return InternalError(
        "EPOCH_FAILED",
        f"{kind}: {_main_line(lines) or type(failure).__name__}",
        detail=text[-2000:] if len(lines) > 1 else None,
        hint="The epoch is not committed; start again with the same state directory to repeat it.",
    )


def explain_os_error(failure: OSError) -> ExternalError:
    """The error for a failure of the system that passes; raises any other again, which Spark retries."""
    if not is_transient(failure):
        raise failure
    return ExternalError(
        "SYSTEM_UNAVAILABLE",
        "the system could not do what a task needs",
        detail=f"{failure}.",
        hint="Check disks, mounts and the network of the host: the epoch is executed again until that succeeds.",
        is_transient=True,
    )


def _main_line(lines: Sequence[str]) -> str:
    """The line of an error's text that names the error: of a traceback the one after the calls, else the first."""
    tracebacks = [
        number for number, line in enumerate(lines) if line.strip().startswith("Traceback (most recent")
    ]
    if tracebacks:
        margin = len(lines[tracebacks[-1]]) - len(lines[tracebacks[-1]].lstrip())
        for line in lines[tracebacks[-1] + 1 :]:
            if line.strip() and len(line) - len(line.lstrip()) <= margin:
                return line.strip()
    return next((line.strip() for line in lines if line.strip()), "")
