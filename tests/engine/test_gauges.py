"""The gauges of the live view: latency, rate, and their texts."""

from __future__ import annotations

import io
from datetime import UTC, datetime

import polars as pl
import pytest
from rich.console import Console

from penstock.cli.screen import Facts, draw_screen
from penstock.engine.gauges import Gauges, latest_rows
from penstock.epoch.runner import EpochReport
from penstock.formatting import clock, seconds, size, sparkline

NOW = 1_800_000_000.0


def report(
    epoch: int, events: int = 1000, *, age: tuple[float, float] = (0.5, 1.5), at: float = NOW
) -> EpochReport:
    newest, oldest = (round((at - seconds_) * 1e6) for seconds_ in age)
    as_of = datetime(2027, 1, 15, 8, 0, 0, tzinfo=UTC)
    rows = pl.DataFrame(
        {
            "as_of": [as_of] * 10,
            "rank": range(1, 11),
            "pattern": [f"/a > /{n}" for n in range(10)],
            "count": range(10),
        }
    )
    return EpochReport(
        epoch, events, events * 200, 1, 2, 0.4, {}, {"clicks": events}, None, 3_200_000,
        {"patterns": rows, "pages": rows.rename({"pattern": "page"})},
        oldest=oldest, newest=newest, committed_at=at,
    )  # fmt: skip


def gauges(now: float = NOW) -> Gauges:
    live = Gauges(clock=lambda: now)
    live.started_at = now - 4
    return live


def test_latency_is_the_age_of_events_when_their_epoch_is_committed() -> None:
    live = gauges()
    live.add(report(0, age=(1.0, 3.0)))
    latency = live.latency(recent=True)
    assert latency is not None
    assert latency.p50 == pytest.approx(2.0, abs=0.05)
    assert latency.p99 == pytest.approx(3.0, abs=0.05)


def test_epochs_are_weighted_by_their_events() -> None:
    live = gauges()
    live.add(report(0, 9_990, age=(1.0, 1.0)))
    live.add(report(1, 10, age=(50.0, 50.0)))
    latency = live.latency(recent=False)
    assert latency is not None
    assert latency.p99 == pytest.approx(1.0)


def test_a_replay_of_old_events_has_no_latency() -> None:
    live = gauges()
    live.add(report(0, age=(1e8, 1e8 + 5)))
    assert live.latency(recent=True) is None


def test_the_rate_looks_back_no_further_than_the_engine_has_run() -> None:
    live = gauges()
    live.add(report(0, 4_000, at=NOW - 2))
    live.add(report(1, 4_000, at=NOW - 1))
    assert live.rate() == pytest.approx(2_000)
    live.add(report(2, 1, at=NOW - 3600))
    assert live.rate() == pytest.approx(2_000)


def test_the_latest_result_is_that_of_the_last_instant() -> None:
    rows = pl.DataFrame({"as_of": [1, 1, 2], "n": [1, 2, 3]})
    assert latest_rows(rows)["n"].to_list() == [3]


@pytest.mark.parametrize(("width", "height"), [(100, 30), (80, 24), (60, 16)])
def test_the_screen_fits_its_terminal(width: int, height: int) -> None:
    live = gauges()
    for epoch in range(50):
        live.add(report(epoch))
    units, backlog = {"clicks": "records"}, {"clicks": 1_234}
    facts = Facts("clickstream", "running", 31.0, 60.0, backlog, units, 1.0, ("patterns", "pages"))
    console = Console(width=width, height=height, record=True, file=io.StringIO())
    console.print(draw_screen(live, facts, width, height))
    lines = console.export_text().splitlines()
    assert len(lines) <= height
    assert "1,234 events" in "\n".join(lines)
    assert "/a > /0" in "\n".join(lines)
    assert ("/9" in "\n".join(lines)) == (height >= 24)


def test_before_the_first_epoch_the_screen_says_what_it_waits_for() -> None:
    facts = Facts("clickstream", "running", 1.0, None, {}, {}, 1.0, ("patterns",))
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(draw_screen(gauges(), facts, 80, 24))
    assert "waiting for Spark" in console.export_text()


def test_values_are_formatted_for_people() -> None:
    assert [size(n) for n in (0, 999, 1500, 3_200_000)] == ["0 B", "999 B", "1.5 kB", "3.2 MB"]
    assert [seconds(s) for s in (0.43, 1.64, 200)] == ["430 ms", "1.6 s", "3 min 20 s"]
    assert [clock(s) for s in (42, 3723)] == ["0:42", "1:02:03"]
    assert sparkline([0, 1, 2], 10) == "▁▅█"
    assert sparkline([1, 2, 3, 4], 2) == "▇█"
