"""A job that takes more than its share of several epochs in a row is paused; one that does so now and then is not."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from penstock.epoch.job_failures import JobShares
from penstock.testing.list_log import ListLog
from tests.catalogue import kit
from tests.catalogue.kit import STEADY_JOBS, life

NAMES = {1: "one", 2: "two"}


def pause_decisions(
    epochs: Sequence[tuple[dict[int, float], float]], names: dict[int, str] = NAMES
) -> list[list[int]]:
    """The jobs to pause after each epoch; an epoch is (seconds by job, its own seconds)."""
    shares, decisions = JobShares(0.5, 1.0, patience=3), []
    for taken, seconds in epochs:
        shares, errors = shares.after(taken, seconds, names)
        decisions.append(sorted(errors))
    return decisions


def test_only_consecutive_epochs_over_the_share_pause_a_job() -> None:
    assert pause_decisions([({1: 0.6}, 1.0)] * 3) == [[], [], [1]]
    assert pause_decisions([({1: 0.6}, 1.0)] * 2 + [({1: 0.4}, 1.0)] + [({1: 0.6}, 1.0)] * 2) == [[]] * 5
    assert pause_decisions([({1: 0.6}, 1.0)] * 2 + [({}, 1.0)] + [({1: 0.6}, 1.0)] * 2) == [[]] * 5


def test_the_share_is_of_the_epoch_or_of_its_target_time() -> None:
    assert pause_decisions([({1: 0.4}, 0.41)] * 5) == [[]] * 5, "short epochs delay no other job"
    assert pause_decisions([({1: 2.0}, 5.0)] * 5) == [[]] * 5, "its share of a long epoch is small"
    assert pause_decisions([({1: 3.0}, 5.0)] * 3)[2] == [1]


def test_a_job_that_is_alone_may_take_all() -> None:
    assert pause_decisions([({1: 3.0}, 3.0)] * 5, {1: "one"}) == [[]] * 5


def test_counting_restarts_once_a_job_is_paused() -> None:
    assert pause_decisions([({1: 0.6, 2: 0.7}, 1.0)] * 4) == [[], [], [1, 2], []]


def test_the_error_names_the_job_and_the_limit() -> None:
    shares, _ = JobShares(0.5, 1.0, patience=1).after({}, 1.0, NAMES)
    text = shares.after({2: 0.75}, 1.2, NAMES)[1][2].text()
    for part in ("JOB_OVER_ITS_SHARE", "the job two", "0.75 s", "0.60 s", "job_share is 0.5", "resume"):
        assert part in text


def _burning(values: pl.Series) -> pl.Series:
    end = time.process_time() + 0.08
    while time.process_time() < end:
        pass
    return values


BURN: dict[str, Any] = {"burn": lambda user: user.map_batches(_burning, return_dtype=pl.String)}
SLOW = "CREATE JOB slow AS SELECT burn(user) AS u FROM clicks"


@pytest.mark.slow
@pytest.mark.parametrize("step", ["nowhere", "gathered"])
def test_a_job_that_burns_more_than_its_share_is_paused(step: str, tmp_path: Path) -> None:
    """The pause is a command: it survives a kill in the next epoch, and a function that is fast by then."""
    events = kit.events(160)
    stream = kit.of_log(ListLog({"p": [json.dumps(event) for event in events]}, finished=True))
    alone = kit.run_all(tmp_path / "alone", stream, STEADY_JOBS, epoch_units=10)
    options: dict[str, Any] = {"epoch_units": 10}
    with kit.running(
        tmp_path / "s", stream, f"{STEADY_JOBS}; {SLOW}", functions=BURN, job_share=0.3, **options
    ) as (
        jobs,
        engine,
    ):
        reports = []
        while life(jobs, "slow") == "running":
            report = engine.step()
            assert report is not None
            reports.append(report)
        assert len(reports) == 5
        assert all("slow" in report.rows for report in reports)
        error = str(jobs.catalogue.jobs["slow"].master.error)
        assert "JOB_OVER_ITS_SHARE" in error
        if step != "nowhere":
            with kit.killed_at(step, 5), pytest.raises(kit.Killed):
                engine.step()
    fast = {"burn": lambda user: user.map_batches(lambda values: values, return_dtype=pl.String)}
    with kit.running(tmp_path / "s", stream, functions=fast, **options) as (jobs, engine):
        assert life(jobs, "slow") == "failed"
        rest = [report for report in (engine.step(), engine.step()) if report is not None]
        assert not any("slow" in report.rows for report in rest)
        assert jobs.execute("RESUME JOB slow")[0].state == "kept"
        last = list(engine.steps())
        assert "slow" in kit.emitted_rows(last)
    emitted = kit.emitted_rows(reports + rest + last)
    assert {name: rows for name, rows in emitted.items() if name != "slow"} == alone
