"""Windows that end together are emitted over several epochs, with the rows that one epoch would emit."""

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

pytestmark = pytest.mark.slow

EVENTS = kit.events(160)
_WINDOWS = (5, 10, 20)
#: tumbling windows, hopping ones (few at a time, many), ones with gaps, ranked ones, and windows of another job's rows
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
class FixedRowTime(EmissionLimit):
    """A fixed estimate of the time that a row takes, so that the epochs do not depend on the machine."""

    def observe(self, share: float, factor: float) -> EmissionLimit:
        return self


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[Any, ...]]]:
    return kit.run_all(tmp_path_factory.mktemp("unlimited") / "state", kit.clicks(EVENTS), SQL)


def run(state: Path, closing: EmissionLimit, **options: Any) -> list[EpochReport]:
    with kit.running(state, kit.clicks(EVENTS), SQL, closing=closing, **options) as (_, running):
        return list(running.steps())


def batches_ahead(reports: Sequence[EpochReport]) -> set[int]:
    return {pending.ahead for report in reports for pending in report.pending.values()}


@pytest.mark.parametrize("units", [80, 15])
def test_every_batch_of_windows_is_emitted_in_an_epoch_of_its_own(
    units: int, undisturbed: dict[str, Any], state: Path
) -> None:
    reports = run(state, FixedRowTime(row_seconds=1.0), epoch_units=units, slices=lambda epoch: epoch % 3 + 1)
    assert kit.emitted_rows(reports) == undisturbed
    (occupied,) = {pending.batches for report in reports for pending in report.pending.values()}
    assert len(occupied) == 7, "six jobs and a ranked one, whose windows do not overlap"
    assert batches_ahead(reports) == {0, CLOSING_BATCHES, *(batch + 1 for batch in occupied[:-1])}
    assert len({report.watermark for report in reports}) > 10, "each instant in its own epochs"


def test_an_epoch_emits_no_more_rows_than_its_time_allows(undisturbed: dict[str, Any], state: Path) -> None:
    closing = FixedRowTime(row_seconds=0.02)  # so 43 rows in seven eighths of a second
    reports = run(state, closing, epoch_units=20)
    assert kit.emitted_rows(reports) == undisturbed
    counts = [sum(rows.height for rows in report.rows.values()) for report in reports]
    assert sum(counts) > 400
    # a batch, or windows that overlap, cannot be divided further
    assert max(counts) <= 90, counts
    assert len(reports) < sum(counts) / 10, "nor far fewer"


def test_all_windows_are_emitted_at_once_where_time_allows(undisturbed: dict[str, Any], state: Path) -> None:
    reports = run(state, FixedRowTime(row_seconds=1e-9), epoch_units=80)
    assert kit.emitted_rows(reports) == undisturbed
    assert len(reports) == 2


@pytest.mark.parametrize("seed", range(6))
def test_the_rows_are_the_same_wherever_windows_are_held(
    seed: int, undisturbed: dict[str, Any], state: Path
) -> None:
    reports = run(state, Holding(seed), epoch_units=20, slices=lambda epoch: (epoch + seed) % 4 + 1)
    assert kit.emitted_rows(reports) == undisturbed
    assert any(pending.is_limited for report in reports for pending in report.pending.values())


def test_a_kill_at_any_step_during_emission_changes_no_rows(undisturbed: dict[str, Any], state: Path) -> None:
    """Each run is killed at another step, some epochs later, and has other slices than the run before."""
    kills = [(step, 2 * number + 1) for number, step in enumerate(STEPS)]
    for number, (step, epoch) in enumerate([*kills, kit.NEVER]):
        options: dict[str, Any] = {
            "epoch_units": 20,
            "slices": number % 3 + 1,
            "closing": FixedRowTime(row_seconds=0.1),
        }
        with kit.running(state, kit.clicks(EVENTS), SQL, **options) as (jobs, running):
            try:
                with kit.killed_at(step, epoch):
                    list(running.steps())
            except kit.Killed:
                kills.remove((step, epoch))
            emitted = {name: [row for _, row in kit.retained_rows(jobs, name)] for name in undisturbed}
    assert not kills, "each run was killed"
    assert emitted == undisturbed


def test_an_engine_that_restarts_emits_no_more_at_once_than_before(state: Path) -> None:
    """It does not know which rows are held, so its first epoch only counts them."""
    closing = FixedRowTime(row_seconds=0.1)
    with kit.running(state, kit.clicks(EVENTS), SQL, epoch_units=20, closing=closing) as (_, running):
        before = [running.step() for _ in range(4)]
    with kit.running(state, kit.clicks(EVENTS), SQL, epoch_units=20, closing=closing) as (_, running):
        after = list(running.steps())
    assert all(report is not None and report.pending["clicks"].is_limited for report in before[1:])
    assert not after[0].rows
    assert max(sum(rows.height for rows in report.rows.values()) for report in after) <= 90


def test_an_engine_without_emission_limit_emits_the_held_windows(
    undisturbed: dict[str, Any], state: Path
) -> None:
    with kit.running(
        state, kit.clicks(EVENTS), SQL, epoch_units=20, closing=FixedRowTime(row_seconds=0.1)
    ) as (
        _,
        running,
    ):
        reports = [running.step() for _ in range(7)]
    with kit.running(state, kit.clicks(EVENTS), SQL) as (_, running):
        rest = list(running.steps())
    assert len(rest) == 1
    assert kit.emitted_rows([report for report in (*reports, *rest) if report is not None]) == undisturbed


def test_flush_does_not_repeat_a_window_that_was_emitted_ahead(
    undisturbed: dict[str, Any], state: Path
) -> None:
    """FLUSH between two batches emits the held windows, as it does all open ones, but none that was emitted."""
    names = [f"per_page_{size}" for size in _WINDOWS]
    with kit.running(
        state, kit.clicks(EVENTS), SQL, epoch_units=20, closing=FixedRowTime(row_seconds=1.0)
    ) as (
        jobs,
        running,
    ):
        reports: list[EpochReport] = []
        while (
            not reports
            or not 0 < reports[-1].pending["clicks"].ahead < CLOSING_BATCHES
            or not kit.emitted_rows(reports).keys() & {*names}
        ):
            report = running.step()
            assert report is not None
            reports.append(report)
        ahead = {name: rows for name, rows in kit.emitted_rows(reports).items() if name in names}
        for name in names:
            jobs.execute(f"FLUSH JOB {name}")
        reports += list(running.steps())
    emitted = kit.emitted_rows(reports)
    repeated = 0
    for name in names:
        counts = Counter(emitted[name])
        assert counts.keys() >= set(undisturbed[name])
        assert all(counts[row] == 1 for row in ahead.get(name, ())), "emitted, so not open"
        repeated += sum(count == 2 for count in counts.values())
        assert max(counts.values()) <= 2
    assert repeated, "the others were open"


@pytest.mark.spark
def test_spark_emits_the_same_rows_under_an_emission_limit(
    undisturbed: dict[str, Any], spark: SparkSession, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's offsets hold how far watermarks may advance, and request epochs that read nothing."""
    limited = partial(AdmissionSettings, emission_limit=FixedRowTime(row_seconds=0.01))
    monkeypatch.setattr(engine, "AdmissionSettings", limited)
    jobs = Program("test", state, streams={"clicks": kit.clicks(EVENTS)}, begin=SQL)
    settings = Settings(
        state=state, drain=True, most_epoch_units=40, small_epoch_bytes=0, slices=2, warm_up=False
    )
    reports: list[EpochReport] = []
    engine.Engine(jobs, settings, spark).run(reports.append)
    assert kit.emitted_rows(reports) == undisturbed
    assert any(report.pending["clicks"].is_limited for report in reports)
    assert len(batches_ahead(reports)) > 1


def test_the_rows_of_windows_that_overlap_much_are_not_counted_again_in_every_epoch(state: Path) -> None:
    sql = (
        "CREATE JOB hops AS SELECT window_start, page, COUNT(*) AS n FROM clicks GROUP BY page "
        "WINDOWING 200 SECONDS EVERY 1 SECOND"
    )
    reports = {}
    for name, closing in (("held", FixedRowTime(row_seconds=1e-3)), ("unlimited", None)):
        with kit.running(state / name, kit.clicks(EVENTS), sql, epoch_units=20, closing=closing) as (
            _,
            running,
        ):
            reports[name] = list(running.steps())
    assert kit.emitted_rows(reports["held"]) == kit.emitted_rows(reports["unlimited"])
    counted = max(
        sum(map(sum, pending.rows.values()))
        for report in reports["held"]
        for pending in report.pending.values()
    )
    rows = sum(len(rows) for rows in kit.emitted_rows(reports["unlimited"]).values())
    assert len(EVENTS) / 2 < counted < 4 * rows
    assert len(reports["held"]) < len(reports["unlimited"]) + 12
