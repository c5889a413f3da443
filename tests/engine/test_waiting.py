"""A run that waits for something outside ends when it is to end, and goes on where a step failed after the commit."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.engine import engine as engine_module
from penstock.engine.engine import Engine
from penstock.epoch.runner import EpochRunner
from penstock.errors import ExternalError
from penstock.settings import INLINE, Settings
from penstock.sinks.contract import Sink
from penstock.testing.list_sink import ListSink

LINES = [{"at": f"2026-03-01T00:00:{second:02d}Z", "row": second} for second in range(20)]


def make_engine(folder: Path, sink: Sink, **settings: Any) -> Engine:
    (folder / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in LINES))
    decoder = ps.json_lines({"at": ps.Datetime("us", "UTC"), "row": ps.Int64})
    log = ps.files(str(folder / "in.jsonl"), finished=True)
    rows = ps.stream("rows", log, decoder, time="at").select("row")
    app = ps.app("waits", ps.output("out", rows, sink))
    return Engine(app, Settings(state=folder / "state", master=INLINE, **settings))


def away() -> ExternalError:
    return ExternalError("SINK_UNWRITABLE", "it is away", is_transient=True)


class Away(ListSink):
    """A sink whose server never answers."""

    def write(self, epoch: int, rows: Any) -> bool:
        raise away()


def test_a_step_that_fails_after_the_commit_is_repeated_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, failures = EpochRunner._pause_expensive_jobs, [away(), away()]

    def fail_twice(self: EpochRunner, *arguments: Any) -> None:
        if failures:
            raise failures.pop()
        whole(self, *arguments)

    monkeypatch.setattr(EpochRunner, "_pause_expensive_jobs", fail_twice)
    sink = ListSink()
    summary = make_engine(tmp_path, sink, drain=True).run()
    assert (summary.epochs, summary.events) == (1, len(LINES))
    assert sorted(row["row"] for row in sink.rows()) == list(range(20))


def test_a_run_whose_time_is_up_while_it_waits_ends_with_the_error(tmp_path: Path) -> None:
    with pytest.raises(ExternalError, match="it is away"):
        make_engine(tmp_path, Away(), drain=True).run(for_seconds=0.5)


def test_a_run_that_ends_by_itself_does_not_wait_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "_LONGEST_OUTAGE_OF_DRAIN", 0.3)
    with pytest.raises(ExternalError, match="it is away"):
        make_engine(tmp_path, Away(), drain=True).run()


def test_a_run_that_is_stopped_while_it_waits_ends_without_an_error(tmp_path: Path) -> None:
    engine = make_engine(tmp_path, Away())
    ended = threading.Event()

    def stop_when_waiting() -> None:
        while engine.outage is None and not ended.wait(0.01):
            pass
        engine.stop()

    thread = threading.Thread(target=stop_when_waiting)
    thread.start()
    try:
        assert engine.run(for_seconds=60.0).epochs == 1, "no epoch waits for the sink"
    finally:
        ended.set()
        thread.join()
