"""A job that takes more than its share of epochs, again and again, is paused; one that does now and then is not."""

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
from tests.catalogue.test_epoch_failures import STAY, life

NAMES = {1: "one", 2: "two"}


def paused(
    epochs: Sequence[tuple[dict[int, float], float]], names: dict[int, str] = NAMES
) -> list[list[int]]:
    """Who is paused after each epoch: (seconds by job, the epoch's own)."""
    shares, found = JobShares(0.5, 1.0, patience=3), []
    for taken, seconds in epochs:
        shares, errors = shares.after(taken, seconds, names)
        found.append(sorted(errors))
    return found


def test_only_so_many_epochs_in_a_row_count() -> None:
    assert paused([({1: 0.6}, 1.0)] * 3) == [[], [], [1]]
    assert paused([({1: 0.6}, 1.0)] * 2 + [({1: 0.4}, 1.0)] + [({1: 0.6}, 1.0)] * 2) == [[]] * 5
    assert paused([({1: 0.6}, 1.0)] * 2 + [({}, 1.0)] + [({1: 0.6}, 1.0)] * 2) == [[]] * 5


def test_it_is_a_share_of_the_epoch_or_of_what_an_epoch_should_take() -> None:
    assert paused([({1: 0.4}, 0.41)] * 5) == [[]] * 5, "short epochs harm nobody"
    assert paused([({1: 2.0}, 5.0)] * 5) == [[]] * 5, "long epochs are long for all"
    assert paused([({1: 3.0}, 5.0)] * 3)[2] == [1]


def test_a_job_that_is_alone_may_take_all() -> None:
    assert paused([({1: 3.0}, 3.0)] * 5, {1: "one"}) == [[]] * 5


def test_counting_begins_anew_once_a_job_is_paused() -> None:
    assert paused([({1: 0.6, 2: 0.7}, 1.0)] * 4) == [[], [], [1, 2], []]


def test_what_is_told_names_the_job_and_the_limit() -> None:
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


@pytest.mark.parametrize("step", ["nowhere", "gathered"])
def test_a_job_that_burns_more_than_its_share_is_paused(step: str, tmp_path: Path) -> None:
    """The decision is a command: killed in the next epoch, and with a function that is fast by then, it still holds."""
    found = kit.events(160)
    stream = kit.of_log(ListLog({"p": [json.dumps(event) for event in found]}, finished=True))
    alone = kit.run_all(tmp_path / "alone", stream, STAY, epoch_units=10)
    options: dict[str, Any] = {"epoch_units": 10}
    with kit.running(tmp_path / "s", stream, f"{STAY}; {SLOW}", functions=BURN, job_share=0.3, **options) as (
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
        assert "slow" in kit.told(last)
    told = kit.told(reports + rest + last)
    assert {name: rows for name, rows in told.items() if name != "slow"} == alone
