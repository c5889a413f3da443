"""The API's benchmark: its load against a real service on the inline engine, and what it makes of what came."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.api_load import (
    AnsweredRequests,
    ReceivedEvents,
    result_epochs_since,
    run_load,
    run_requests,
    run_subscribers,
)
from bench.held_connections import hold_connections
from penstock.errors import ExternalError
from tests.server import kit

POPULAR = "CREATE JOB popular AS SELECT page, status FROM clicks"


@contextmanager
def flowing(state: Path) -> Iterator[int]:
    """The port of a service whose job tells rows in every epoch, some a second."""
    with kit.site(state, POPULAR, events=3) as site:
        over = threading.Event()

        def flow() -> None:
            for _ in range(900):
                if over.wait(0.02):
                    return
                site.epochs(1)

        thread = threading.Thread(target=flow)
        thread.start()
        try:
            yield int(site.url.rpartition(":")[2])
        finally:
            over.set()
            thread.join()


@pytest.mark.slow
def test_questions_are_asked_at_their_rate_and_all_answered(state: Path) -> None:
    with flowing(state) as port:
        found = run_load(run_requests(port, per_second=50, seconds=1.0, connections=4))
    assert len(found.delays) == 50
    assert all(delay > 0 for delay in found.delays)
    assert 0 < found.rate <= 51


@pytest.mark.process
@pytest.mark.slow
def test_questions_are_answered_beside_connections_that_send_nothing(state: Path) -> None:
    with kit.site(state, POPULAR, events=3) as site:
        port, connections = int(site.url.rpartition(":")[2]), site.running.service.connections
        assert connections is not None
        with hold_connections(port, silent=30, slow=4):
            kit.until(lambda: len(connections) >= 34, 60)
            found = run_load(run_requests(port, per_second=50, seconds=1.0, connections=4))
        assert len(found.delays) == 50
        kit.until(lambda: len(connections) < 34, 60)


@pytest.mark.slow
def test_subscribers_are_compared_with_the_results_that_the_service_keeps(state: Path) -> None:
    with flowing(state) as port:
        found = run_load(run_subscribers(port, subscribers=5, seconds=1.0))
        assert result_epochs_since(port, found.epochs[0])[: len(found.epochs)] == found.epochs
    assert found.epochs
    assert found.share == 1.0
    assert len(found.spreads) == len(found.epochs)
    assert all(spread >= 0 for spread in found.spreads)


def test_who_misses_an_epoch_has_one_twice_or_hears_nothing_is_not_right() -> None:
    whole = [(4, 1.0), (5, 2.0), (7, 3.0)]
    others = [whole[:2], [*whole[:2], *whole[1:]], [], [whole[1], whole[0], whole[2]]]
    found = ReceivedEvents([whole, [*whole, (8, 4.0)], *others], [4, 5, 7])
    assert found.share == pytest.approx(2 / 6)
    assert found.spreads == [0.0, 0.0, 0.0]
    assert ReceivedEvents([[], []], [4]).share == 0.0
    assert ReceivedEvents([[], []], [4]).spreads == []


def test_a_service_that_is_down_or_refuses_is_an_error(state: Path) -> None:
    with kit.site(state, events=3) as site:
        port = int(site.url.rpartition(":")[2])
        with pytest.raises(ExternalError, match="404"):
            run_load(run_requests(port, per_second=10, seconds=0.2, connections=1))
    with pytest.raises(ExternalError, match="closed the connection"):
        run_load(run_requests(port, per_second=10, seconds=0.2, connections=1))


def test_the_rate_counts_until_the_last_answer() -> None:
    assert AnsweredRequests([0.1] * 100, 2.0).rate == 50.0
