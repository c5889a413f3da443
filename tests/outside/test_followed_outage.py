"""A follower starts, and opens a new job, while a sink is away: it waits for the sink, as the leader does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.catalogue.program import Program
from penstock.state.directory import StateDirectory
from penstock.testing import postgres_server
from penstock.testing.postgres_server import PostgresServer
from tests.catalogue import kit
from tests.delivery.kit import wait_until

pytestmark = pytest.mark.process


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    if reason := postgres_server.why_not():
        pytest.skip(reason)
    server = PostgresServer()
    server.start()
    yield server
    server.remove()


@pytest.mark.parametrize("holds", [True, False], ids=["holds rows", "delivers"])
def test_a_follower_starts_and_opens_jobs_while_their_sink_is_away(
    holds: bool, server: PostgresServer, tmp_path: Path
) -> None:
    stream, state = kit.clicks(kit.events(60)), tmp_path / "state"

    def into(table: str) -> str:
        return f"INTO postgres('{server.address}', '{table}', make_table => TRUE)"

    first = f"CREATE JOB pages AS SELECT page FROM clicks {into('pages')}"
    with kit.running(state, stream, first, epoch_units=20) as (leader, engine):
        assert engine.step() is not None
        commands = leader.commands
        leader.execute(f"CREATE JOB users AS SELECT user FROM clicks {into('users')}")
        server.stop()
        follower = Program("test", state, streams={"clicks": stream}, begin=first)
        follower.start(follows=True)
        if holds:
            follower.deliveries.hold()
        follower.open(StateDirectory(state).read_existing_facts().id, lambda name, scan: None, commands)
        follower.follow_commands(leader.commands)
        assert set(follower.epochs.plan(leader.commands).outputs) == {"pages", "users"}
        follower.deliveries.add(1, [entry.result_key for entry in follower.catalogue.jobs.values()])
        if not holds:
            wait_until(lambda: follower.deliveries.outage is not None, "the outage is noticed")
        follower.deliveries.check()
        assert {lag.job for lag in follower.deliveries.lags()} == {"pages", "users"}
        follower.close()
        server.start()
