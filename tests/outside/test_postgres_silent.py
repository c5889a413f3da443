"""A PostgreSQL that is stopped while its kernel responds is shown as an outage, and delays no other sink."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from penstock.delivery import sink_delivery
from penstock.engine.status_server import status
from penstock.sinks import Postgres
from penstock.testing import postgres_server
from penstock.testing.postgres_server import PostgresServer
from tests.delivery.kit import Numbers, Switched, app_of, running, settings_of, wait_until

pytestmark = pytest.mark.process


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    if reason := postgres_server.why_not():
        pytest.skip(reason)
    server = PostgresServer()
    server.start()
    yield server
    server.remove()


def test_a_stopped_server_is_shown_until_it_continues(
    server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_delivery, "SILENT_SECONDS", 1.0)

    def select() -> list[int]:
        with psycopg.connect(server.address) as connection:
            return [n for (n,) in connection.execute("SELECT n FROM numbers ORDER BY n")]

    numbers, well = Numbers(), Switched("near")
    app = app_of(numbers, far=Postgres(server.address, "numbers", make_table=True), near=well)
    with running(app, settings_of(tmp_path)) as engine:
        numbers.add(3)
        wait_until(
            lambda: len(well.numbers()) == 3 and not engine.program.deliveries.lags(), "the first rows"
        )
        server.pause()
        try:
            numbers.add(3)
            wait_until(lambda: len(well.numbers()) == 6, "rows of the other sink")
            wait_until(lambda: engine.outage is not None, "the outage")
            (lag,) = status(engine, None).deliveries
            assert "SINK_NOT_RESPONDING" in lag.error
            assert lag.silent_seconds >= 1.0
        finally:
            server.resume()
        wait_until(lambda: not engine.program.deliveries.lags(), "its rows")
        assert engine.outage is None
        assert select() == list(range(6))
