"""Runs an app on one state directory, unchanged or changed: what the tests of state continuity share."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import penstock as ps
from penstock.epoch.runner import EpochReport
from penstock.errors import PenstockError
from penstock.query.logical import App
from penstock.state.directory import StateDirectory
from penstock.testing.inline import run_inline
from penstock.testing.list_log import ListLog
from penstock.testing.list_sink import ListSink

BEGIN = datetime(2026, 3, 1, 12, tzinfo=UTC)


def lines(count: int) -> list[str]:
    """An event a second, of two users."""
    return [
        json.dumps({"ts": (BEGIN + timedelta(seconds=n)).isoformat(), "user": f"u{n % 2}", "n": n})
        for n in range(count)
    ]


def stream(log: ListLog, name: str = "events") -> ps.Stream:
    schema = {"ts": pl.Datetime("us", "UTC"), "user": pl.String(), "n": pl.Int64()}
    return ps.stream(name, log, ps.json_lines(schema), time="ts", lateness="0s")


class ChangedApp:
    """An app over a log that grows: totals per user in windows of a minute, and sessions; its settings can change."""

    def __init__(self, state: Path, log: ListLog) -> None:
        self.state, self.log = state, log
        self.rows: dict[str, list[dict[str, Any]]] = {}

    def run(
        self,
        gap: str | None = "30s",
        window: str = "1m",
        top: int | None = None,
        **options: Any,
    ) -> list[EpochReport]:
        reports = run_inline(self.build(gap, window, top), self.state, **options)
        self.rows = {}
        for report in reports:
            for output, built in report.rows.items():
                self.rows.setdefault(output, []).extend(built.to_dicts())
        return reports

    def build(self, gap: str | None = "30s", window: str = "1m", top: int | None = None) -> App:
        rows = stream(self.log).key_by("user")
        totals = rows.window(window).aggregate(ps.sum_("n", "total"), ps.count())
        outputs = {"totals": totals if top is None else totals.top(top, by="total", changes_only=True)}
        if gap is not None:
            outputs["sessions"] = rows.session(gap).aggregate(ps.count())
        return ps.app("app", *(ps.output(output, built, ListSink()) for output, built in outputs.items()))

    def count_events(self, output: str) -> int:
        """The number of events in an output's rows of the last run."""
        return sum(row["count"] for row in self.rows.get(output, []))


def finish(app: ChangedApp) -> None:
    app.log.add("p", *lines(90)[50:])
    app.log.finish()


def catch_error(change: Callable[[], object]) -> PenstockError:
    with pytest.raises(PenstockError) as found:
        change()
    return found.value


def states_of(state: Path) -> set[str]:
    manifest = StateDirectory(state).manifests.latest()
    return {id_ for id_, group in manifest.collections.items() if any(group.values())}


TOTALS, SESSIONS = "1-time-window-aggregate", "2-session-window"
