"""Recovery semantics of jobs that are paused, resumed and created around a loss: precise jobs lose nothing."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from penstock.epoch.recovery import RecoveryOutcome
from penstock.ha.schemes import Semantics
from tests.catalogue import kit
from tests.catalogue.recovering import EVENTS, UNITS, Rows, run_until

pytestmark = pytest.mark.slow

#: epoch 3 is durable, the rows of 4 and 5 are emitted, and epoch 6 is killed once it has written its runs
KILL = ("sliced", 6)
TOTALS = "SELECT user, COUNT(*) AS n FROM clicks GROUP BY user WINDOWING 1000 SECONDS"
BASE = "SELECT page, SUM(bytes) AS b FROM clicks GROUP BY page WINDOWING 10 SECONDS"
READER = "SELECT page, SUM(b) AS m FROM base GROUP BY page WINDOWING 30 SECONDS"


def _touchy(times: pl.Series) -> pl.Series:
    """Fails in epoch 2."""
    if (times == datetime.fromisoformat(EVENTS[2 * UNITS + 10]["ts"])).any():
        raise ValueError("not at this time")
    return pl.repeat(1, len(times), dtype=pl.Int64, eager=True)


FUNCTIONS: dict[str, Any] = {"touchy": lambda ts: ts.map_batches(_touchy, return_dtype=pl.Int64)}


def total(rows: Rows, job: str) -> int:
    return sum(row[-1] for _, row in rows[job])


def run_both(
    folder: Path, sql: str, commands: dict[int, str], semantics: Semantics = Semantics.precise
) -> tuple[Rows, Rows, RecoveryOutcome]:
    """The rows emitted without a loss and with one, and the outcome of the recovery."""
    undisturbed, _ = run_until(folder / "straight", sql, kit.NEVER, dict(commands), semantics, FUNCTIONS)
    remaining = dict(commands)
    run_until(folder / "lossy", sql, KILL, remaining, semantics, FUNCTIONS)
    rows, outcome = run_until(folder / "lossy", sql, kit.NEVER, remaining, semantics, FUNCTIONS)
    assert (outcome.durable_epoch, outcome.recorded_epoch) == (3, 6)
    return undisturbed, rows, outcome


@pytest.mark.parametrize("recovery", ["precise", "rollback", "gap"])
def test_a_paused_job_keeps_its_state_where_the_running_jobs_lose_theirs(
    recovery: str, tmp_path: Path
) -> None:
    sql = f"CREATE JOB bills RECOVERY {recovery} AS {TOTALS}; CREATE JOB live AS {TOTALS}"
    commands = {2: "PAUSE JOB bills", 8: "RESUME JOB bills"}
    undisturbed, rows, outcome = run_both(tmp_path, sql, commands, Semantics.amnesia)
    assert undisturbed["bills"]
    assert rows["bills"] == undisturbed["bills"]
    assert total(rows, "live") == total(undisturbed, "live") - 7 * UNITS
    assert set(outcome.by_job()) == {"live"}


def test_a_failed_job_keeps_its_state_where_the_running_jobs_lose_theirs(tmp_path: Path) -> None:
    bills = TOTALS.replace("GROUP", "WHERE touchy(ts) > 0 GROUP")
    sql = f"CREATE JOB bills RECOVERY precise AS {bills}; CREATE JOB live AS {TOTALS}"
    undisturbed, rows, _ = run_both(tmp_path, sql, {8: "RESUME JOB bills"}, Semantics.amnesia)
    assert total(undisturbed, "bills") == len(EVENTS) - 6 * UNITS
    assert rows["bills"] == undisturbed["bills"]


def test_a_paused_job_with_amnesia_loses_its_state_with_the_running_jobs(tmp_path: Path) -> None:
    sql = f"CREATE JOB bills AS {TOTALS}; CREATE JOB live AS {TOTALS}"
    commands = {2: "PAUSE JOB bills", 8: "RESUME JOB bills"}
    undisturbed, rows, outcome = run_both(tmp_path, sql, commands, Semantics.amnesia)
    assert total(rows, "bills") == total(undisturbed, "bills") - 2 * UNITS
    assert outcome.lost_state_bytes > 0


@pytest.mark.parametrize("recovery", ["gap", "amnesia"])
def test_a_job_that_a_paused_precise_job_reads_loses_no_state(recovery: str, tmp_path: Path) -> None:
    sql = f"CREATE JOB base RECOVERY {recovery} AS {BASE}; CREATE JOB reader AS {READER}"
    commands = {3: "PAUSE JOB reader", 7: "RESUME JOB reader"}
    undisturbed, rows, _ = run_both(tmp_path, sql, commands)
    assert undisturbed["reader"]
    assert rows["reader"] == undisturbed["reader"]
    assert rows["base"] == [row for row in undisturbed["base"] if row[0] != 6]


def test_a_paused_job_with_gap_recovery_does_not_protect_the_job_it_reads(tmp_path: Path) -> None:
    sql = f"""CREATE JOB exact AS {TOTALS}; CREATE JOB base RECOVERY gap AS {BASE};
    CREATE JOB reader RECOVERY gap AS {READER}"""
    undisturbed, rows, outcome = run_both(tmp_path, sql, {3: "PAUSE JOB reader", 7: "RESUME JOB reader"})
    assert rows["exact"] == undisturbed["exact"]
    assert outcome.by_job()["base"].lost_epochs == 3


@pytest.mark.parametrize("recovery", ["gap", "amnesia"])
def test_a_job_that_a_new_precise_job_reads_is_complete_from_the_durable_epoch_on(
    recovery: str, tmp_path: Path
) -> None:
    """In epoch 4 no job reads it yet."""
    sql = f"CREATE JOB base RECOVERY {recovery} AS {BASE}; CREATE JOB exact AS {TOTALS}"
    undisturbed, rows, _ = run_both(tmp_path, sql, {5: f"CREATE JOB reader RECOVERY precise AS {READER}"})
    assert undisturbed["reader"]
    assert rows["reader"] == undisturbed["reader"]
    assert rows["exact"] == undisturbed["exact"]


def test_a_job_is_complete_that_a_new_precise_job_reads_by_way_of_another(tmp_path: Path) -> None:
    """`middle` runs in epoch 4, is paused in epoch 5, and is read by a precise job from epoch 6 on."""
    middle = "SELECT page, SUM(b) AS s FROM base GROUP BY page WINDOWING 20 SECONDS"
    sql = f"""CREATE JOB base RECOVERY gap AS {BASE}; CREATE JOB middle RECOVERY gap AS {middle};
    CREATE JOB exact AS {TOTALS}"""
    last = "CREATE JOB last AS SELECT page, SUM(s) AS t FROM middle GROUP BY page WINDOWING 40 SECONDS"
    undisturbed, rows, _ = run_both(tmp_path, sql, {5: "PAUSE JOB middle", 6: f"RESUME JOB middle; {last}"})
    assert undisturbed["last"]
    assert rows["last"] == undisturbed["last"]


def test_a_stateless_job_does_not_protect_the_job_it_reads(tmp_path: Path) -> None:
    sql = f"""CREATE JOB exact AS {TOTALS}; CREATE JOB base RECOVERY gap AS {BASE};
    CREATE JOB large RECOVERY gap AS SELECT page, b FROM base WHERE b > 1000"""
    _, _, outcome = run_both(tmp_path, sql, {})
    assert outcome.by_job()["base"].lost_epochs == 3
