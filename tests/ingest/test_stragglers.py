"""Epochs wait for silent partitions up to a bound and then leap over them, or wait for ever, as the stream says; what
was leaped is counted, shown, and can be read later."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
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

COLUMNS = {"at": ps.Datetime("us", "UTC"), "n": ps.Int64()}
COUNTS = "CREATE JOB counts AS SELECT COUNT(*) AS n FROM events GROUP BY TUMBLE(at, INTERVAL '10' SECOND)"


def line(second: int) -> str:
    return json.dumps({"at": f"2026-03-01T12:{second // 60:02}:{second % 60:02}Z", "n": second})


def until(what: Callable[[], Any], seconds: float = 60) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := what():
            return found
        time.sleep(0.05)
    raise AssertionError("it did not come in time")


def jobs(folder: Path, log: ListLog, idle_after: str | None) -> Program:
    events = ps.stream("events", log, ps.json_lines(COLUMNS), time="at", idle_after=idle_after)
    return Program("straggling", folder / "state", streams={"events": events}, begin=COUNTS)


def test_a_straggler_is_leaped_over_and_its_span_is_told(tmp_path: Path) -> None:
    log = ListLog({"quick": [line(0)], "slow": [line(1)]}, finished=False)
    with serving(jobs(tmp_path, log, "1s"), tmp_path / "state") as running, connect(running.url) as client:
        until(lambda: client.status().events == 2)
        for second in range(2, 30):
            log.add("quick", line(second))
        # the window ends although nothing more came from the slow one
        told = next(iter(client.subscribe("counts", since=0)))
        assert told.dicts()[0]["n"] == 10

        def leaps() -> list[dict[str, Any]]:
            log.add("quick", line(29))  # goes on: where all are silent, nobody is passed over
            return [leap for leap in client.leaped("events") if leap["partition"] == "slow"]

        until(leaps)
        leap = leaps()[-1]
        assert (leap["partition"], leap["offset"], leap["reason"]) == ("slow", 1, "silent: passed over")
        assert client.status().leaped >= 1
        log.add("slow", line(2), line(29), line(30))
        back = until(lambda: [leap for leap in leaps() if "came back" in leap["reason"]])
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


def test_without_a_bound_epochs_wait(tmp_path: Path) -> None:
    log = ListLog({"quick": [line(0)], "slow": [line(1)]}, finished=False)
    with serving(jobs(tmp_path, log, None), tmp_path / "state") as running, connect(running.url) as client:
        for second in range(2, 30):
            log.add("quick", line(second))
        until(lambda: client.status().events == 30)
        time.sleep(0.5)  # whatever comes in vain: no window may close
        assert client.answer("counts") is None or client.answer("counts").epoch is None  # type: ignore[union-attr]
        assert client.status().leaped == 0
        log.add("slow", line(29))
        told = next(iter(client.subscribe("counts", since=0)))
        assert told.dicts()[0]["n"] == 10
        assert client.late_events("events") == client.leaped("events") == []


@pytest.mark.parametrize(
    ("said", "meant"), [("", 5_000_000), ("IDLE AFTER 2 SECONDS", 2_000_000), ("IDLE AFTER NEVER", None)]
)
def test_sql_says_how_long_to_wait(said: str, meant: int | None) -> None:
    (statement,) = parse(f"CREATE STREAM s FROM segments('x/y') FORMAT combined_log EVENT TIME time {said}")
    assert isinstance(statement, CreateStream)
    made: Any = build_stream(statement).node
    assert made.stream.idle_after == meant
