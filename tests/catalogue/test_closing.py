"""Windows that end together are told in several epochs: the rows are those that one epoch would have told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.catalogue.program import Program
from penstock.engine import engine
from penstock.epoch.admission import AdmissionSettings
from penstock.epoch.kill_points import STEPS
from penstock.epoch.rate_control import EmissionLimit
from penstock.epoch.runner import EpochReport
from penstock.operators.job_windows import CLOSING_BATCHES
from penstock.settings import Settings
from tests.catalogue import kit
from tests.operators.harness import Holding

EVENTS = kit.events(160)
_WINDOWS = (5, 10, 20)
#: windows one after the other, overlapping (few at a time, many) and with gaps; ranked; and of what other jobs tell
SQL = ";\n".join(
    [
        *(
            f"CREATE JOB per_{key}_{size} AS SELECT window_start, {key}, COUNT(*) AS n, MAX(bytes) AS most "
            f"FROM clicks WHERE status = 200 GROUP BY {key} WINDOWING {size} SECONDS"
            for size in _WINDOWS
            for key in ("page", "user")
        ),
        "CREATE JOB few AS SELECT window_start, user, SUM(bytes) AS b FROM clicks GROUP BY user "
        "WINDOWING 20 SECONDS EVERY 10 SECONDS",
        "CREATE JOB many AS SELECT window_start, page, COUNT(*) AS n FROM clicks GROUP BY page "
        "WINDOWING 40 SECONDS EVERY 5 SECONDS",
        "CREATE JOB gaps AS SELECT window_start, page, COUNT(*) AS n FROM clicks GROUP BY page "
        "WINDOWING 5 SECONDS EVERY 20 SECONDS",
        "CREATE JOB best AS SELECT window_start, user, COUNT(*) AS n FROM clicks GROUP BY user "
        "ORDER BY n DESC, user LIMIT 3 WINDOWING 20 SECONDS",
        "CREATE JOB reader AS SELECT window_start, page, MAX(n) AS m FROM per_page_5 GROUP BY page "
        "WINDOWING 20 SECONDS",
        "CREATE JOB session AS SELECT user, COUNT(*) AS n FROM clicks GROUP BY user WINDOWING SESSION 3 SECONDS",
    ]
)


@dataclass(frozen=True)
class Steady(EmissionLimit):
    """Believes the same of a row for ever: what epochs consist of does not depend on the machine."""

    def observe(self, share: float, factor: float) -> EmissionLimit:
        return self


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[Any, ...]]]:
    return kit.run_all(tmp_path_factory.mktemp("straight") / "state", kit.clicks(EVENTS), SQL)


def run(state: Path, closing: EmissionLimit, **options: Any) -> list[EpochReport]:
    with kit.running(state, kit.clicks(EVENTS), SQL, closing=closing, **options) as (_, running):
        return list(running.steps())


def batches_ahead(reports: Sequence[EpochReport]) -> set[int]:
    return {pending.ahead for report in reports for pending in report.pending.values()}


@pytest.mark.parametrize("units", [80, 15])
def test_every_lot_in_an_epoch_of_its_own(units: int, straight: dict[str, Any], state: Path) -> None:
    reports = run(state, Steady(row_seconds=1.0), epoch_units=units, slices=lambda epoch: epoch % 3 + 1)
    assert kit.told(reports) == straight
    (occupied,) = {pending.batches for report in reports for pending in report.pending.values()}
    assert len(occupied) == 7, "six jobs and a ranked one, whose windows do not overlap"
    assert batches_ahead(reports) == {0, CLOSING_BATCHES, *(lot + 1 for lot in occupied[:-1])}
    assert len({report.watermark for report in reports}) > 10, "one instant after the other"


def test_an_epoch_tells_no_more_than_it_has_time_for(straight: dict[str, Any], state: Path) -> None:
    closing = Steady(row_seconds=0.02)  # so 43 rows in seven eighths of a second
    reports = run(state, closing, epoch_units=20)
    assert kit.told(reports) == straight
    told = [sum(rows.height for rows in report.rows.values()) for report in reports]
    assert sum(told) > 400
    # what is of few rows cannot be cut any further: a lot, or the windows that overlap
    assert max(told) <= 90, told
    assert len(reports) < sum(told) / 10, "nor much less"


def test_nothing_is_held_where_all_of_it_fits(straight: dict[str, Any], state: Path) -> None:
    reports = run(state, Steady(row_seconds=1e-9), epoch_units=80)
    assert kit.told(reports) == straight
    assert len(reports) == 2


@pytest.mark.parametrize("seed", range(6))
def test_held_anywhere(seed: int, straight: dict[str, Any], state: Path) -> None:
    reports = run(state, Holding(seed), epoch_units=20, slices=lambda epoch: (epoch + seed) % 4 + 1)
    assert kit.told(reports) == straight
    assert any(pending.is_limited for report in reports for pending in report.pending.values())


def test_killed_at_any_step_while_it_tells(straight: dict[str, Any], state: Path) -> None:
    """One life after the other, each killed at another step some epochs further on, with other slices."""
    kills = [(step, 2 * number + 1) for number, step in enumerate(STEPS)]
    for number, (step, epoch) in enumerate([*kills, ("nowhere", -1)]):
        options: dict[str, Any] = {
            "epoch_units": 20,
            "slices": number % 3 + 1,
            "closing": Steady(row_seconds=0.1),
        }
        with kit.running(state, kit.clicks(EVENTS), SQL, **options) as (jobs, running):
            try:
                with kit.killed_at(step, epoch):
                    list(running.steps())
            except kit.Killed:
                kills.remove((step, epoch))
            told = {name: [row for a in jobs.since(name, 0) for row in a.rows.rows()] for name in straight}
    assert not kills, "each of them died"
    assert told == straight


def test_an_engine_that_comes_back_tells_no_more_at_once_than_before(state: Path) -> None:
    """It does not know what is held: it looks first."""
    closing = Steady(row_seconds=0.1)
    with kit.running(state, kit.clicks(EVENTS), SQL, epoch_units=20, closing=closing) as (_, running):
        before = [running.step() for _ in range(4)]
    with kit.running(state, kit.clicks(EVENTS), SQL, epoch_units=20, closing=closing) as (_, running):
        after = list(running.steps())
    assert all(report is not None and report.pending["clicks"].is_limited for report in before[1:])
    assert not after[0].rows
    assert max(sum(rows.height for rows in report.rows.values()) for report in after) <= 90


def test_without_holding_it_goes_on_with_what_was_held(straight: dict[str, Any], state: Path) -> None:
    with kit.running(state, kit.clicks(EVENTS), SQL, epoch_units=20, closing=Steady(row_seconds=0.1)) as (
        _,
        running,
    ):
        reports = [running.step() for _ in range(7)]
    with kit.running(state, kit.clicks(EVENTS), SQL) as (_, running):
        rest = list(running.steps())
    assert len(rest) == 1
    assert kit.told([report for report in (*reports, *rest) if report is not None]) == straight


def test_a_window_that_was_told_ahead_is_not_open_any_more(straight: dict[str, Any], state: Path) -> None:
    """FLUSH between two lots tells what is still held once more, as it tells all that is open, but nothing told."""
    names = [f"per_page_{size}" for size in _WINDOWS]
    with kit.running(state, kit.clicks(EVENTS), SQL, epoch_units=20, closing=Steady(row_seconds=1.0)) as (
        jobs,
        running,
    ):
        reports: list[EpochReport] = []
        while (
            not reports
            or not 0 < reports[-1].pending["clicks"].ahead < CLOSING_BATCHES
            or not kit.told(reports).keys() & {*names}
        ):
            report = running.step()
            assert report is not None
            reports.append(report)
        ahead = {name: rows for name, rows in kit.told(reports).items() if name in names}
        for name in names:
            jobs.execute(f"FLUSH JOB {name}")
        reports += list(running.steps())
    told = kit.told(reports)
    again = 0
    for name in names:
        counts = Counter(told[name])
        assert counts.keys() >= set(straight[name])
        assert all(counts[row] == 1 for row in ahead.get(name, ())), "told, so not open"
        again += sum(count == 2 for count in counts.values())
        assert max(counts.values()) <= 2
    assert again, "the others were open"


@pytest.mark.spark
def test_on_spark(
    straight: dict[str, Any], spark: SparkSession, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark keeps what its offsets say of how far watermarks may come, and asks for epochs that read nothing."""
    limited = partial(AdmissionSettings, emission_limit=Steady(row_seconds=0.01))
    monkeypatch.setattr(engine, "AdmissionSettings", limited)
    jobs = Program("test", state, streams={"clicks": kit.clicks(EVENTS)}, begin=SQL)
    settings = Settings(
        state=state, drain=True, most_epoch_units=40, small_epoch_bytes=0, slices=2, warm_up=False
    )
    reports: list[EpochReport] = []
    engine.Engine(jobs, settings, spark).run(reports.append)
    assert kit.told(reports) == straight
    assert any(report.pending["clicks"].is_limited for report in reports)
    assert len(batches_ahead(reports)) > 1


def test_windows_that_overlap_much_are_not_counted_over_and_over(state: Path) -> None:
    sql = (
        "CREATE JOB hops AS SELECT window_start, page, COUNT(*) AS n FROM clicks GROUP BY page "
        "WINDOWING 200 SECONDS EVERY 1 SECOND"
    )
    found = {}
    for name, closing in (("held", Steady(row_seconds=1e-3)), ("straight", None)):
        with kit.running(state / name, kit.clicks(EVENTS), sql, epoch_units=20, closing=closing) as (
            _,
            running,
        ):
            found[name] = list(running.steps())
    assert kit.told(found["held"]) == kit.told(found["straight"])
    counted = max(
        sum(map(sum, pending.rows.values()))
        for report in found["held"]
        for pending in report.pending.values()
    )
    rows = sum(len(rows) for rows in kit.told(found["straight"]).values())
    assert len(EVENTS) / 2 < counted < 4 * rows
    assert len(found["held"]) < len(found["straight"]) + 12
