"""Recovery semantics of jobs that are paused, resumed and created around a loss: the strict ones are as if there were
none."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from penstock.epoch.recovery import RecoveryOutcome
from penstock.ha.schemes import Semantics
from tests.catalogue.recovering import EVENTS, NOWHERE, UNITS, Told, lived

#: durable is epoch 3; epochs 4 and 5 are told; epoch 6 is recorded and dies with its runs written
DIES = ("sliced", 6)
TOTALS = "SELECT user, COUNT(*) AS n FROM clicks GROUP BY user WINDOWING 1000 SECONDS"
BASE = "SELECT page, SUM(bytes) AS b FROM clicks GROUP BY page WINDOWING 10 SECONDS"
READER = "SELECT page, SUM(b) AS m FROM base GROUP BY page WINDOWING 30 SECONDS"


def _touchy(times: pl.Series) -> pl.Series:
    """Fails in epoch 2."""
    if (times == datetime.fromisoformat(EVENTS[2 * UNITS + 10]["ts"])).any():
        raise ValueError("not at this time")
    return pl.repeat(1, len(times), dtype=pl.Int64, eager=True)


FUNCTIONS: dict[str, Any] = {"touchy": lambda ts: ts.map_batches(_touchy, return_dtype=pl.Int64)}


def total(told: Told, job: str) -> int:
    return sum(row[-1] for _, row in told[job])


def both(
    folder: Path, sql: str, said: dict[int, str], semantics: Semantics = Semantics.precise
) -> tuple[Told, Told, RecoveryOutcome]:
    """What is told without a loss and with one, and how it came back."""
    straight, _ = lived(folder / "straight", sql, NOWHERE, dict(said), semantics, FUNCTIONS)
    rest = dict(said)
    lived(folder / "lossy", sql, DIES, rest, semantics, FUNCTIONS)
    found, back = lived(folder / "lossy", sql, NOWHERE, rest, semantics, FUNCTIONS)
    assert (back.durable_epoch, back.recorded_epoch) == (3, 6)
    return straight, found, back


@pytest.mark.parametrize("recovery", ["precise", "rollback", "gap"])
def test_a_paused_job_keeps_its_state_where_all_that_run_lose_theirs(recovery: str, tmp_path: Path) -> None:
    sql = f"CREATE JOB bills RECOVERY {recovery} AS {TOTALS}; CREATE JOB live AS {TOTALS}"
    said = {2: "PAUSE JOB bills", 8: "RESUME JOB bills"}
    straight, found, back = both(tmp_path, sql, said, Semantics.amnesia)
    assert straight["bills"]
    assert found["bills"] == straight["bills"]
    assert total(found, "live") == total(straight, "live") - 7 * UNITS
    assert set(back.by_job()) == {"live"}


def test_so_does_one_that_failed(tmp_path: Path) -> None:
    bills = TOTALS.replace("GROUP", "WHERE touchy(ts) > 0 GROUP")
    sql = f"CREATE JOB bills RECOVERY precise AS {bills}; CREATE JOB live AS {TOTALS}"
    straight, found, _ = both(tmp_path, sql, {8: "RESUME JOB bills"}, Semantics.amnesia)
    assert total(straight, "bills") == len(EVENTS) - 6 * UNITS
    assert found["bills"] == straight["bills"]


def test_where_the_paused_one_loses_its_state_too_all_is_lost(tmp_path: Path) -> None:
    sql = f"CREATE JOB bills AS {TOTALS}; CREATE JOB live AS {TOTALS}"
    said = {2: "PAUSE JOB bills", 8: "RESUME JOB bills"}
    straight, found, back = both(tmp_path, sql, said, Semantics.amnesia)
    assert total(found, "bills") == total(straight, "bills") - 2 * UNITS
    assert back.lost_state_bytes > 0


@pytest.mark.parametrize("recovery", ["gap", "amnesia"])
def test_what_a_paused_precise_job_reads_loses_nothing(recovery: str, tmp_path: Path) -> None:
    sql = f"CREATE JOB base RECOVERY {recovery} AS {BASE}; CREATE JOB reader AS {READER}"
    said = {3: "PAUSE JOB reader", 7: "RESUME JOB reader"}
    straight, found, _ = both(tmp_path, sql, said)
    assert straight["reader"]
    assert found["reader"] == straight["reader"]
    assert found["base"] == [told for told in straight["base"] if told[0] != 6]


def test_a_paused_job_that_may_lose_epochs_spares_nobody_from_it(tmp_path: Path) -> None:
    sql = f"""CREATE JOB exact AS {TOTALS}; CREATE JOB base RECOVERY gap AS {BASE};
    CREATE JOB reader RECOVERY gap AS {READER}"""
    straight, found, back = both(tmp_path, sql, {3: "PAUSE JOB reader", 7: "RESUME JOB reader"})
    assert found["exact"] == straight["exact"]
    assert back.by_job()["base"].lost_epochs == 3


@pytest.mark.parametrize("recovery", ["gap", "amnesia"])
def test_what_a_precise_job_comes_to_read_is_whole_from_the_durable_epoch_on(
    recovery: str, tmp_path: Path
) -> None:
    """In epoch 4 nobody reads it yet."""
    sql = f"CREATE JOB base RECOVERY {recovery} AS {BASE}; CREATE JOB exact AS {TOTALS}"
    straight, found, _ = both(tmp_path, sql, {5: f"CREATE JOB reader RECOVERY precise AS {READER}"})
    assert straight["reader"]
    assert found["reader"] == straight["reader"]
    assert found["exact"] == straight["exact"]


def test_so_is_what_is_read_by_what_it_comes_to_read(tmp_path: Path) -> None:
    """`middle` runs in epoch 4, is paused in epoch 5, and is read by a precise job from epoch 6 on."""
    middle = "SELECT page, SUM(b) AS s FROM base GROUP BY page WINDOWING 20 SECONDS"
    sql = f"""CREATE JOB base RECOVERY gap AS {BASE}; CREATE JOB middle RECOVERY gap AS {middle};
    CREATE JOB exact AS {TOTALS}"""
    last = "CREATE JOB last AS SELECT page, SUM(s) AS t FROM middle GROUP BY page WINDOWING 40 SECONDS"
    straight, found, _ = both(tmp_path, sql, {5: "PAUSE JOB middle", 6: f"RESUME JOB middle; {last}"})
    assert straight["last"]
    assert found["last"] == straight["last"]


def test_a_job_that_remembers_nothing_spares_none_that_it_reads(tmp_path: Path) -> None:
    sql = f"""CREATE JOB exact AS {TOTALS}; CREATE JOB base RECOVERY gap AS {BASE};
    CREATE JOB large RECOVERY gap AS SELECT page, b FROM base WHERE b > 1000"""
    _, _, back = both(tmp_path, sql, {})
    assert back.by_job()["base"].lost_epochs == 3
