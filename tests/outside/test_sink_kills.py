"""An engine killed between a sink's write and its own commit: no row is lost or written twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock as ps
from penstock.query.logical import App
from penstock.testing import run_inline
from penstock.testing.kafka_cluster import KafkaCluster
from tests.outside import test_sink_contracts as contracts
from tests.outside.receiver import Receiver

LINES = 400
SINKS = {
    "redis": contracts.TestRedis,
    "postgres": contracts.TestPostgres,
    "http": contracts.TestHttpPush,
    "kafka": contracts.TestKafka,
}
CHILD = "import sys; from tests.outside.test_sink_kills import child; child(*sys.argv[1:])"

pytestmark = pytest.mark.kill


def app(kind: str, folder: Path) -> App:
    rows = ps.stream(
        "rows",
        ps.files(str(folder / "in.jsonl"), finished=True),
        ps.json_lines({"at": ps.Datetime("us", "UTC"), "epoch": ps.Int64, "row": ps.Int64}),
        time="at",
    )
    return ps.app("killed", ps.output("out", rows.select("epoch", "row"), SINKS[kind].make(folder)))


def child(kind: str, folder: str) -> None:
    run_inline(app(kind, Path(folder)), Path(folder) / "state", epoch_units=5_000)


@pytest.fixture
def servers(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Start the server that a sink needs."""

    def start_server(kind: str) -> None:
        if kind == "http":
            receiver: Receiver = request.getfixturevalue("receiver")
            receiver.fails_at_times = True
            contracts.TestHttpPush.receiver = receiver
        elif kind == "kafka":
            cluster: KafkaCluster = request.getfixturevalue("kafka")
            assert cluster.brokers
        else:
            request.getfixturevalue(f"{kind}_address")

    return start_server


@pytest.mark.parametrize("kind", SINKS)
def test_an_engine_killed_around_the_write_writes_every_row_once(
    kind: str, servers: Callable[[str], None], tmp_path: Path
) -> None:
    servers(kind)
    lines = (
        f'{{"at": "2026-03-01T00:{n // 60 % 60:02}:{n % 60:02}Z", "epoch": 0, "row": {n}}}\n'
        for n in range(LINES)
    )
    (tmp_path / "in.jsonl").write_text("".join(lines))
    process = subprocess.run(
        [sys.executable, "-c", CHILD, kind, str(tmp_path)],
        env=os.environ
        | {"PENSTOCK_KILL_AT": "delivered:2", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        start_new_session=True,
        capture_output=True,
        timeout=100,
        check=False,
    )
    assert process.returncode == -signal.SIGKILL, process.stderr.decode()[-3000:]
    run_inline(app(kind, tmp_path), tmp_path / "state", epoch_units=5_000)
    found = SINKS[kind].read(SINKS[kind].make(tmp_path))
    assert sorted(found["row"].to_list()) == list(range(LINES))
