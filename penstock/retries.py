"""Repeats what fails because something outside is away, with growing pauses, for as long as that lasts.

Guarantees: only transient errors (`errors.is_transient`) are retried, without a limit; every other error is raised at
once. A pause ends as soon as the engine is to stop. What is retried must be idempotent: the steps of an epoch are.
Does not guarantee: that an attempt under way ends early; that is up to the time limits of what it talks to.
On failure: `Interrupted` when the engine is to stop while something is away.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from penstock.errors import PenstockError, is_transient

Result = TypeVar("Result")
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class RetryPolicy:
    """How long to wait between attempts, and how often an outage that lasts is logged. Pure."""

    first_seconds: float = 0.1
    longest_seconds: float = 10.0
    factor: float = 2.0
    log_seconds: float = 300.0
    #: an outage that lasts longer is an error; by default none is
    longest_outage_seconds: float = math.inf

    def pause_seconds(self, failures: int, draw: float) -> float:
        """The pause after so many failures in a row; `draw` from 0 to 1 spreads engines that fail together."""
        exponent = min(failures - 1, 64)
        return min(self.longest_seconds, self.first_seconds * self.factor**exponent) * (0.5 + 0.5 * draw)


@dataclass(frozen=True)
class Outage:
    """Something outside that is away: the step that waits for it, the last error, since when, and how many failures."""

    step: str
    error: BaseException
    since: float
    failures: int = 1
    logged_at: float = 0.0

    @property
    def condition(self) -> str:
        """The condition of the last error; the name of its class if it has none."""
        error = self.error
        return error.condition if isinstance(error, PenstockError) else type(error).__name__


class Interrupted(Exception):
    """The engine is to stop while something outside is away; `error` is the last error."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass
class Retries:
    """The retries of one engine. `outage` and `count` may be read from any thread; `run` is called by one at a time."""

    is_stopped: Callable[[], bool] = lambda: False
    #: waits at most so many seconds, less if the engine is to stop
    wait: Callable[[float], object] = lambda seconds: threading.Event().wait(seconds)
    clock: Callable[[], float] = time.monotonic
    draw: Callable[[], float] = field(default_factory=lambda: random.Random().random)
    policy: RetryPolicy = field(default_factory=RetryPolicy)
    #: what is away now; None if nothing is
    outage: Outage | None = None
    #: how many attempts have failed and were repeated, since the start
    count: int = 0

    def run(
        self, step: str, attempt: Callable[[], Result], check: Callable[[], None] = lambda: None
    ) -> Result:
        """The result of an attempt, again after transient errors. `check` is called before each further attempt and
        raises if there is to be none."""
        try:
            while True:
                try:
                    result = attempt()
                except Exception as failure:  # everything else is raised again
                    if not is_transient(failure):
                        raise
                    self._wait_after(step, failure)
                    check()
                else:
                    if self.outage is not None:
                        self._log_end(self.outage)
                    return result
        finally:
            self.outage = None

    def _wait_after(self, step: str, failure: Exception) -> None:
        now, former = self.clock(), self.outage
        if former is None:
            outage = Outage(step, failure, since=now)
        else:
            outage = replace(former, error=failure, failures=former.failures + 1)
        if former is None or now - outage.logged_at >= self.policy.log_seconds:
            seconds = f", for {now - outage.since:.0f} s now" if former else ""
            _LOG.warning("waiting to %s%s, tried again until it succeeds: %s", step, seconds, failure)
            outage = replace(outage, logged_at=now)
        self.outage = outage
        self.count += 1
        if now - outage.since >= self.policy.longest_outage_seconds:
            raise failure
        if not self.is_stopped():
            self.wait(self.policy.pause_seconds(outage.failures, self.draw()))
        if self.is_stopped():
            raise Interrupted(failure) from failure

    def _log_end(self, outage: Outage) -> None:
        seconds = self.clock() - outage.since
        _LOG.warning("can %s again, after %.1f s and %d failures", outage.step, seconds, outage.failures)
