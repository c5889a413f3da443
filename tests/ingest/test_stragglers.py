"""Epochs wait for silent partitions up to a bound and then skip them, or wait for ever, as the stream declares; what
was skipped is counted, shown, and can be read later."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.catalogue.program import Program
from penstock.client import connect
from penstock.logs.contract import Span
from penstock.sql.connectors import build_stream
from penstock.sql.parse import parse
from penstock.sql.statements import CreateStream
from penstock.testing.list_log import ListLog
from penstock.testing.serving import serving
from tests.server.kit import until

COLUMNS = {"at": ps.Datetime("us", "UTC"), "n": ps.Int64()}
COUNTS = "CREATE JOB counts AS SELECT COUNT(*) AS n FROM events GROUP BY TUMBLE(at, INTERVAL '10' SECOND)"


def line(second: int) -> str:
    return json.dumps({"at": f"2026-03-01T12:{second // 60:02}:{second % 60:02}Z", "n": second})


def jobs(folder: Path, log: ListLog, idle_after: str | None) -> Program:
    events = ps.stream("events", log, ps.json_lines(COLUMNS), time="at", idle_after=idle_after)
    return Program("straggling", folder / "state", streams={"events": events}, begin=COUNTS)


@pytest.mark.slow
def test_a_straggler_is_skipped_and_its_span_is_reported(tmp_path: Path) -> None:
    log = ListLog({"quick": [line(0)], "slow": [line(1)]}, finished=False)
    with serving(jobs(tmp_path, log, "1s"), tmp_path / "state") as running, connect(running.url) as client:
        until(lambda: client.status().events == 2)
        for second in range(2, 30):
            log.add("quick", line(second))
        # the window ends although nothing more came from the slow one
        result = next(iter(client.subscribe("counts", since=0)))
        assert result.dicts()[0]["n"] == 10

        def skips_of_slow() -> list[dict[str, Any]]:
            log.add("quick", line(29))  # continues: if all were silent, none would be skipped
            return [skip for skip in client.leaped("events") if skip["partition"] == "slow"]

        until(skips_of_slow)
        skip = skips_of_slow()[-1]
        assert (skip["partition"], skip["offset"], skip["reason"]) == ("slow", 1, "silent: passed over")
        assert client.status().leaped >= 1
        log.add("slow", line(2), line(29), line(30))
        back = until(lambda: [skip for skip in skips_of_slow() if "came back" in skip["reason"]])
        (late,) = until(lambda: client.late_events("events"))
        assert (late["partition"], late["offset"]) == ("slow", 1)
    (folder,) = (tmp_path / "state" / "leaped").iterdir()
    rows = [
        json.loads(text) for file in sorted(folder.glob("*.jsonl")) for text in file.read_text().splitlines()
    ]
    assert any(row["partition"] == "slow" and "came back" in row["reason"] for row in rows)
    end = int(back[0]["reason"].rpartition(" ")[2])
    (chunk,) = log.read(Span("slow", back[0]["offset"], end))
    assert chunk.data.splitlines()[0].decode() == line(2)


def test_without_a_bound_epochs_wait_for_a_silent_partition(tmp_path: Path) -> None:
    log = ListLog({"quick": [line(0)], "slow": [line(1)]}, finished=False)
    with serving(jobs(tmp_path, log, None), tmp_path / "state") as running, connect(running.url) as client:
        for second in range(2, 30):
            log.add("quick", line(second))
        until(lambda: client.status().events == 30)
        time.sleep(0.5)  # time for a wrong result: no window may close
        assert client.answer("counts") is None or client.answer("counts").epoch is None  # type: ignore[union-attr]
        assert client.status().leaped == 0
        log.add("slow", line(29))
        result = next(iter(client.subscribe("counts", since=0)))
        assert result.dicts()[0]["n"] == 10
        assert client.late_events("events") == client.leaped("events") == []


@pytest.mark.parametrize(
    ("clause", "expected"), [("", 5_000_000), ("IDLE AFTER 2 SECONDS", 2_000_000), ("IDLE AFTER NEVER", None)]
)
def test_sql_declares_how_long_to_wait(clause: str, expected: int | None) -> None:
    (statement,) = parse(f"CREATE STREAM s FROM segments('x/y') FORMAT combined_log EVENT TIME time {clause}")
    assert isinstance(statement, CreateStream)
    stream_node: Any = build_stream(statement).node
    assert stream_node.stream.idle_after == expected
