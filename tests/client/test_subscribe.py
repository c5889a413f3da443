"""A client's subscription delivers each result once, whatever happens to the connection or the service."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from penstock.client import Result, connect
from penstock.errors import UserError
from penstock.server.limits import Limits
from tests.server import kit


def test_a_subscription_is_an_iterator(state: Path) -> None:
    with kit.site(state, kit.ALL) as site, connect(site.url) as client:
        site.epochs(4)
        subscription = client.subscribe("seen", since=2)
        iterator = iter(subscription)
        assert [result.epoch for result in islice(iterator, 3)] == [2, 3, 4]
        site.epochs(1)
        result = next(iterator)
        assert (result.job, result.epoch, subscription.epoch, len(result)) == ("seen", 5, 5, 1)
        assert str(result.rows.schema["ts"]) == "Datetime(time_unit='us', time_zone='UTC')"
        assert result.rows.equals(client.ask("seen"))
        iterator.close()  # type: ignore[attr-defined]
        kit.until(lambda: client.status().subscribers == 0)


def test_a_subscription_is_an_asynchronous_iterator(state: Path) -> None:
    async def some(count: int) -> list[int]:
        epochs = []
        async for result in client.subscribe("seen", since=0):
            epochs.append(result.epoch)
            if len(epochs) == count:
                return epochs
        raise AssertionError

    with kit.site(state, kit.ALL) as site, connect(site.url) as client:
        site.epochs(6)
        assert asyncio.run(some(6)) == [1, 2, 3, 4, 5, 6]


def test_dropping_the_job_ends_the_subscription_with_an_error(state: Path) -> None:
    with kit.site(state, kit.ALL) as site, connect(site.url) as client:
        iterator = iter(client.subscribe("seen", since=0))
        site.epochs(1)
        assert next(iterator).epoch == 1
        client.drop("seen")
        with pytest.raises(UserError, match="JOB_DROPPED"):
            next(iterator)


@pytest.mark.slow
def test_a_subscription_continues_after_a_restart_of_the_service(state: Path) -> None:
    """The service starts again on the same port with the same state, and the client continues."""
    results: list[Result] = []
    with contextlib.ExitStack() as stack:
        with kit.site(state, kit.ALL) as site:
            port = int(site.url.rsplit(":", 1)[1])
            client = stack.enter_context(connect(site.url))
            subscription = client.subscribe("seen", since=0)
            listener = threading.Thread(target=lambda: results.extend(islice(subscription, 12)))
            listener.start()
            site.epochs(5)
            kit.until(lambda: subscription.epoch == 5)
        with kit.site(state, kit.ALL, port=port) as site:
            site.log.add("p0", *kit.LATER[:5])  # the events that the log had before
            for line in kit.LATER[5:12]:
                site.log.add("p0", line)
                site.running.step()
            listener.join(30)
    assert [result.epoch for result in results] == list(range(1, 13))


class CuttingProxy:
    """A proxy of a service that cuts every connection after some bytes."""

    def __init__(self, url: str, after: int) -> None:
        host, port = url.removeprefix("http://").split(":")
        self._to, self._after, self.cuts = (host, int(port)), after, 0
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._server.close()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._forward, args=(client,), daemon=True).start()

    def _forward(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client, socket.create_connection(self._to) as service:
            service.sendall(client.recv(65_536))
            left = self._after
            while left > 0 and (piece := service.recv(min(left, 4_096))):
                client.sendall(piece)
                left -= len(piece)
            self.cuts += 1


@pytest.fixture
def proxied(state: Path) -> Iterator[tuple[kit.Site, CuttingProxy]]:
    with kit.site(state, kit.ALL) as site:
        proxy = CuttingProxy(site.url, 1_700)
        yield site, proxy
        proxy.close()


@pytest.mark.slow
def test_each_result_arrives_once_over_connections_that_break(proxied: tuple[kit.Site, CuttingProxy]) -> None:
    site, proxy = proxied
    site.epochs(25)
    with connect(proxy.url) as client:
        results = list(islice(client.subscribe("seen", since=1), 25))
    assert [result.epoch for result in results] == list(range(1, 26))
    assert proxy.cuts > 3


def test_a_slow_subscriber_that_was_dropped_continues_from_the_retained_results(state: Path) -> None:
    limits = Limits(behind_epochs=2, patience_seconds=0.2)
    with kit.site(state, kit.ALL, limits=limits) as site, connect(site.url) as client:
        iterator = iter(client.subscribe("seen", since=0))
        seen = []
        for _ in range(5):
            site.epochs(10)
            seen += [result.epoch for result in islice(iterator, 10)]
        assert seen == list(range(1, 51))
