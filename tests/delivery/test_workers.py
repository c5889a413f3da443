"""Workers: one thread while work is quick, more behind what blocks, none for what waits for its time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.delivery.workers import Workers
from tests.delivery.kit import wait_until


@contextmanager
def workers_of(execute: Callable[[int], None], most: int = 200) -> Iterator[Workers[int]]:
    workers: Workers[int] = Workers(execute, "test", most=most, grow_seconds=0.02)
    try:
        yield workers
    finally:
        workers.close()


def test_an_item_that_blocks_delays_no_other_however_close_they_are_submitted() -> None:
    for _ in range(50):
        gate, done = threading.Event(), list[int]()

        def execute(item: int) -> None:
            if item == 0:
                gate.wait(60)  # noqa: B023
            done.append(item)  # noqa: B023

        with workers_of(execute) as workers:
            workers.submit(-1)
            wait_until(lambda: done == [-1], "a thread that is idle")  # noqa: B023
            workers.submit(0)
            workers.submit(1)
            wait_until(lambda: done == [-1, 1], "the second one")  # noqa: B023
            gate.set()
            wait_until(lambda: done == [-1, 1, 0], "the first one")  # noqa: B023


def test_quick_work_takes_one_thread() -> None:
    threads, count = set[int](), 1_000

    def execute(item: int) -> None:
        threads.add(threading.get_ident())

    with workers_of(execute) as workers:
        for item in range(count):
            workers.submit(item)
        wait_until(lambda: workers.is_idle, "all")
    assert len(threads) < 5


def test_what_is_due_later_is_executed_then() -> None:
    done: list[tuple[int, float]] = []
    started = time.monotonic()
    with workers_of(lambda item: done.append((item, time.monotonic() - started))) as workers:
        workers.submit(2, 0.2)
        workers.submit(1, 0.05)
        workers.submit(0)
        wait_until(lambda: len(done) == 3, "all")
    assert [item for item, _ in done] == [0, 1, 2]
    assert done[1][1] >= 0.05
    assert done[2][1] >= 0.2


def test_no_more_items_block_at_once_than_allowed() -> None:
    gate, running, most = threading.Event(), list[int](), 3

    def execute(item: int) -> None:
        running.append(item)
        gate.wait(60)

    with workers_of(execute, most) as workers:
        for item in range(10):
            workers.submit(item)
        wait_until(lambda: len(running) == most, "as many as allowed")
        assert not workers.is_idle
        gate.set()
        wait_until(lambda: len(running) == 10, "the others")


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
