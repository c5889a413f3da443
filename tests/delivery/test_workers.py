"""What is due behind work that blocks is executed by another thread."""

from __future__ import annotations

import threading
from collections.abc import Callable

from penstock.delivery.workers import Workers


def test_what_is_due_while_a_thread_wakes_up_is_not_left_behind_what_blocks() -> None:
    workers: Workers[Callable[[], object]] = Workers(lambda work: work(), "test", grow_seconds=0.01)
    for _ in range(30):
        first, gate, done = threading.Event(), threading.Event(), threading.Event()
        workers.submit(first.set)
        assert first.wait(30)
        workers.submit(gate.wait)  # wakes the idle thread, which has not started by now
        workers.submit(done.set)
        assert done.wait(30), "it waits for what blocks"
        gate.set()
    assert workers.close(30)


def test_closed_workers_say_whether_something_is_still_under_way() -> None:
    workers: Workers[Callable[[], object]] = Workers(lambda work: work(), "test")
    started, gate = threading.Event(), threading.Event()

    def block() -> None:
        started.set()
        gate.wait()

    workers.submit(block)
    assert started.wait(30)
    assert not workers.close(0.05)
    gate.set()
    assert workers.close(30)
