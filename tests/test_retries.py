"""The retry policy, by a manual clock: pauses grow to a limit, only transient errors are retried, a stop ends it."""

from __future__ import annotations

import errno
import logging
import pickle
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from penstock.epoch.job_failures import explain_os_error
from penstock.epoch.message import error_from_json, error_to_json
from penstock.errors import ExternalError, is_transient
from penstock.retries import Interrupted, Outage, Retries, RetryPolicy

AWAY = ExternalError("SINK_UNWRITABLE", "the sink is away", is_transient=True)


@dataclass
class ManualClock:
    """A clock that only waiting advances."""

    now: float = 100.0
    pauses: list[float] = field(default_factory=list)

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.pauses.append(seconds)


def failing(times: int, failure: Exception = AWAY) -> Callable[[], str]:
    """What fails so many times and then succeeds."""
    left = [failure] * times

    def attempt() -> str:
        if left:
            raise left.pop()
        return "done"

    return attempt


def retries_of(clock: ManualClock, **fields: object) -> Retries:
    return Retries(wait=clock.wait, clock=lambda: clock.now, draw=random.Random(7).random, **fields)  # type: ignore[arg-type]


def test_pauses_double_up_to_the_longest_and_are_spread() -> None:
    policy = RetryPolicy(first_seconds=0.1, longest_seconds=10.0)
    assert [policy.pause_seconds(failures, 1.0) for failures in (1, 2, 3, 8, 1_000_000)] == [
        0.1,
        0.2,
        0.4,
        10.0,
        10.0,
    ]
    assert policy.pause_seconds(3, 0.0) == pytest.approx(0.2)


def test_a_transient_error_is_retried_for_as_long_as_it_lasts() -> None:
    clock = ManualClock()
    retries = retries_of(clock)
    assert retries.run("deliver", failing(10_000)) == "done"
    assert retries.count == len(clock.pauses) == 10_000
    assert sum(clock.pauses) > 3600
    assert retries.outage is None


def test_the_outage_shows_the_step_since_when_and_the_last_error() -> None:
    clock, seen = ManualClock(), list[Outage | None]()
    retries = retries_of(clock)
    attempt = failing(3)

    def look_and_attempt() -> str:
        seen.append(retries.outage)
        return attempt()

    retries.run("deliver", look_and_attempt)
    assert seen[0] is None
    last = seen[-1]
    assert last is not None
    assert (last.step, last.since, last.failures, last.condition) == ("deliver", 100.0, 3, "SINK_UNWRITABLE")


def test_an_outage_is_logged_at_first_then_rarely_and_at_its_end(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    policy = RetryPolicy(longest_seconds=10.0, log_seconds=300.0)
    with caplog.at_level(logging.WARNING):
        retries_of(clock, policy=policy).run("deliver", failing(200))
    seconds = sum(clock.pauses)
    assert 1 + seconds // 320 <= len(caplog.records) - 1 <= 1 + seconds // 300
    assert "deliver again" in caplog.records[-1].message


@pytest.mark.parametrize(
    "failure",
    [
        ExternalError("FENCED", "another engine leads"),
        PermissionError(errno.EACCES, "denied"),
        ValueError("a defect"),
    ],
)
def test_other_errors_are_raised_at_once(failure: Exception) -> None:
    clock = ManualClock()
    with pytest.raises(type(failure)):
        retries_of(clock).run("deliver", failing(1, failure))
    assert not clock.pauses


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.ESTALE, errno.ECONNREFUSED])
def test_errors_of_disks_and_networks_are_transient(number: int) -> None:
    assert retries_of(ManualClock()).run("read", failing(2, OSError(number, "x"))) == "done"


def test_a_stop_ends_the_waiting_with_the_last_error() -> None:
    clock, stopped = ManualClock(), False

    def wait(seconds: float) -> None:
        nonlocal stopped
        stopped = len(clock.pauses) == 4
        clock.wait(seconds)

    retries = Retries(lambda: stopped, wait, lambda: clock.now, lambda: 1.0)
    with pytest.raises(Interrupted) as interrupted:
        retries.run("deliver", failing(1_000))
    assert interrupted.value.error is AWAY
    assert len(clock.pauses) == 5
    assert retries.outage is None


def test_a_check_between_attempts_ends_them() -> None:
    def check() -> None:
        raise ExternalError("LEASE_LOST", "the lease has expired")

    with pytest.raises(ExternalError, match="LEASE_LOST"):
        retries_of(ManualClock()).run("deliver", failing(1_000), check)


def test_a_failure_of_the_system_in_a_task_reaches_the_driver_as_transient() -> None:
    error = explain_os_error(OSError(errno.EIO, "Input/output error"))
    assert error.condition == "SYSTEM_UNAVAILABLE"
    assert is_transient(error)
    with pytest.raises(PermissionError):
        explain_os_error(PermissionError(errno.EACCES, "denied"))


def test_an_error_stays_transient_on_its_way_from_a_task() -> None:
    assert is_transient(pickle.loads(pickle.dumps(AWAY)))
    assert is_transient(error_from_json(error_to_json(AWAY)))
    assert not is_transient(error_from_json({**error_to_json(AWAY), "is_transient": False}))
