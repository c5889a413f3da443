"""Trials in a child process: what they return, and that nothing that they execute harms the parent."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import polars as pl
import pytest

from penstock.query.trial import NotSendable, TrialEnded, TrialProcess

pytestmark = pytest.mark.process
GIBIBYTE = 1 << 30


@pytest.fixture(scope="module")
def process() -> Iterator[TrialProcess]:
    started = TrialProcess()
    started.start()
    yield started
    started.close()


def test_a_trial_returns_what_its_function_returns(process: TrialProcess) -> None:
    frame = pl.DataFrame({"n": [1, 2]})
    assert process.call(lambda rows: rows.select(pl.col("n") + 1), frame)["n"].to_list() == [2, 3]


def test_a_trial_raises_what_its_function_raises(process: TrialProcess) -> None:
    with pytest.raises(pl.exceptions.ColumnNotFoundError, match="missing"):
        process.call(lambda: pl.DataFrame({"n": [1]}).select("missing"))


def test_trials_share_one_process(process: TrialProcess) -> None:
    first, second = process.call(os.getpid), process.call(os.getpid)
    assert first == second == process.pid != os.getpid()


def test_what_a_function_prints_is_no_answer(process: TrialProcess) -> None:
    assert process.call(lambda: print("a" * 100_000)) is None


def test_a_function_that_takes_too_much_memory_ends_the_trial_alone(process: TrialProcess) -> None:
    with pytest.raises((TrialEnded, MemoryError)):
        process.call(lambda: len(bytearray(64 * GIBIBYTE)))
    with pytest.raises(TrialEnded):
        process.call(lambda: pl.select(pl.lit("x").repeat_by(2_000_000_000).list.join("")).height)
    assert process.call(lambda: 1) == 1


def test_a_function_that_does_not_return_ends_the_trial_at_its_deadline(process: TrialProcess) -> None:
    with pytest.raises(TrialEnded) as ended:
        process.call(time.sleep, 3600, seconds=0.2)
    assert ended.value.timed_out
    assert process.call(lambda: 1) == 1


def test_a_function_that_ends_its_process_ends_the_trial_alone(process: TrialProcess) -> None:
    with pytest.raises(TrialEnded) as ended:
        process.call(os._exit, 3)
    assert not ended.value.timed_out
    assert process.call(lambda: 1) == 1


def test_a_child_that_dies_again_and_again_leaves_nothing_behind(process: TrialProcess) -> None:
    process.call(int)
    open_before, threads_before = len(os.listdir("/proc/self/fd")), threading.active_count()
    dead = set()
    for number in range(10):
        assert process.pid is not None
        dead.add(process.pid)
        if number % 2:  # while nothing is under way
            os.kill(process.pid, signal.SIGKILL)
        else:
            with pytest.raises(TrialEnded):
                process.call(os._exit, 3)
        assert process.call(lambda: 1) == 1
    assert len(dead) == 10
    assert not any(os.path.exists(f"/proc/{pid}") for pid in dead)
    assert (len(os.listdir("/proc/self/fd")), threading.active_count()) == (open_before, threads_before)


def test_what_cannot_be_pickled_is_not_sent(process: TrialProcess) -> None:
    with pytest.raises(NotSendable):
        process.call(threading.Lock().acquire)


def test_a_trial_that_is_interrupted_leaves_no_answer_to_the_next(
    process: TrialProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("penstock.query.trial.select.poll", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            process.call(str.upper, "former")
    assert process.call(str.upper, "next") == "NEXT"
