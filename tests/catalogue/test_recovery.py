"""Recovery semantics of single jobs in SQL: what each loses when the engine recovers, worked out event by event."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from penstock.catalogue.snapshot import decode_catalogue, encode_catalogue
from penstock.epoch.recovery import JobRecovery, RecoveryOutcome
from penstock.errors import UserError
from penstock.ha.schemes import Semantics
from tests.catalogue import kit, recovering
from tests.catalogue.recovering import EVENTS, UNITS, Rows, clicks

COUNTED = "SELECT window_start, page, COUNT(*) AS n FROM clicks GROUP BY page WINDOWING 10 SECONDS"
SQL = f"""
CREATE JOB exact AS {COUNTED};
CREATE JOB holes RECOVERY gap AS {COUNTED};
CREATE JOB passing AS SELECT user, status FROM clicks WHERE status >= 400 RECOVERY gap;
CREATE JOB blank AS SELECT user, COUNT(*) AS n FROM clicks GROUP BY user WINDOWING 1000 SECONDS RECOVERY amnesia;
CREATE JOB base RECOVERY gap AS SELECT page, SUM(bytes) AS b FROM clicks GROUP BY page WINDOWING 5 SECONDS;
CREATE JOB reader AS SELECT page, MAX(b) AS m FROM base GROUP BY page WINDOWING 30 SECONDS
"""


def run_until(state: Path, kill: tuple[str, int] = kit.NEVER) -> tuple[Rows, RecoveryOutcome]:
    return recovering.run_until(state, SQL, kill)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    return run_until(tmp_path_factory.mktemp("straight"))[0]


def is_processed(event: kit.Event) -> bool:
    """Whether an event is in none of the lost epochs."""
    return EVENTS.index(event) // UNITS not in (4, 5, 6)


@pytest.mark.slow
def test_each_job_loses_what_its_recovery_semantics_allow(undisturbed: Rows, tmp_path: Path) -> None:
    """Epoch 3 is durable, the rows of 4 and 5 are emitted, and epoch 6 is killed once it has written its runs."""
    run_until(tmp_path, ("sliced", 6))
    rows, outcome = run_until(tmp_path)
    assert (outcome.durable_epoch, outcome.recorded_epoch) == (3, 6)
    assert rows["exact"] == undisturbed["exact"]
    assert rows["reader"] == undisturbed["reader"], "a precise job reads everything"
    assert rows["passing"] == [row for row in undisturbed["passing"] if row[0] != 6]
    assert rows["base"] == [row for row in undisturbed["base"] if row[0] != 6]

    # windows emitted before the kill stay and are not repeated; later ones lack the lost epochs
    early = [row for row in undisturbed["holes"] if row[0] < 6]
    assert rows["holes"][: len(early)] == early
    counts = {
        (start, page): len([event for event in events if is_processed(event)])
        for (start, page), events in kit.windows(EVENTS, 10, lambda event: event["page"]).items()
    }
    expected = [
        (epoch, (*row[:-1], counts[_start(row), _page(row)]))
        for epoch, row in undisturbed["holes"]
        if epoch > 6 and counts[_start(row), _page(row)]
    ]
    assert rows["holes"][len(early) :] == expected
    assert expected != [row for row in undisturbed["holes"] if row[0] > 6], "something was lost"

    blank = {row[-2]: row[-1] for _, row in rows["blank"]}
    assert sum(blank.values()) == len(EVENTS) - 7 * UNITS
    losses = outcome.by_job()
    lost_rows = {
        name: len([1 for epoch, _ in undisturbed[name] if epoch == 6]) for name in ("passing", "base")
    }
    one = JobRecovery(Semantics.gap, lost_epochs=1, lost_units=UNITS, untold_epochs=1)
    three = replace(one, lost_epochs=3, lost_units=3 * UNITS)
    state_bytes = losses["blank"].lost_state_bytes
    assert losses == {
        "blank": replace(three, semantics=Semantics.amnesia, lost_state_bytes=state_bytes),
        "holes": three,
        "passing": replace(one, lost_rows=lost_rows["passing"]),
        "base": replace(one, lost_rows=lost_rows["base"]),
    }


def _start(row: tuple[Any, ...]) -> int:
    instant = next(value for value in row if isinstance(value, datetime))
    return int(instant.timestamp())


def _page(row: tuple[Any, ...]) -> str:
    return next(value for value in row if isinstance(value, str))


@pytest.mark.parametrize("step", ["recorded", "gathered", "emitted", "committed"])
def test_precise_jobs_emit_everything_at_whatever_step_the_engine_is_killed(
    step: str, undisturbed: Rows, tmp_path: Path
) -> None:
    run_until(tmp_path, (step, 5))
    run_until(tmp_path, (step, 8))
    rows, _ = run_until(tmp_path)
    assert rows["exact"] == undisturbed["exact"]
    assert rows["reader"] == undisturbed["reader"]


def test_the_recovery_of_a_job_can_be_changed(undisturbed: Rows, tmp_path: Path) -> None:
    with kit.running(tmp_path, clicks(), SQL, epoch_units=UNITS, checkpoint_every=4) as (jobs, engine):
        engine.step()
        (reply,) = jobs.execute("ALTER JOB holes SET RECOVERY precise")
        assert "when the engine recovers: nothing is lost or repeated" in reply.message
        jobs.execute("ALTER JOB exact SET RECOVERY rollback; ALTER JOB blank SET RECOVERY DEFAULT")
        shown = {row["job"]: row["recovery"] for row in jobs.execute("SHOW JOBS")[0].rows}
        assert shown["exact"] == "rollback"
        assert shown["blank"] is None
        assert jobs.questions.versions("holes")[-1][1].did == "recovery precise"
        assert decode_catalogue(encode_catalogue(jobs.catalogue)) == jobs.catalogue
        assert jobs.catalogue.jobs["holes"].version == 1, "only the recovery has changed"
        engine.runner.checkpoint()
    run_until(tmp_path, ("sliced", 8))
    rows, outcome = run_until(tmp_path)
    assert rows["holes"] == undisturbed["holes"]
    assert rows["blank"] == undisturbed["blank"]
    assert set(outcome.by_job()) == {"passing", "base", "exact"}


def test_a_script_that_changes_the_recovery_of_a_job_takes_effect_at_the_restart(tmp_path: Path) -> None:
    run_until(tmp_path)
    with kit.running(tmp_path, clicks(), SQL.replace("holes RECOVERY gap", "holes")) as (jobs, _):
        assert jobs.catalogue.jobs["holes"].recovery is None
        assert jobs.catalogue.jobs["base"].recovery == "gap"


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("CREATE JOB a RECOVERY gaps AS SELECT page FROM clicks", "line 1, column 23"),
        ("CREATE JOB a AS SELECT page FROM clicks\n  RECOVERY never", "line 2, column 12"),
        ("CREATE JOB a AS SELECT page FROM clicks RECOVERY", "line 1, column 49"),
        (
            "CREATE JOB a RECOVERY gap AS SELECT page FROM clicks INTO console() RECOVERY gap",
            "line 1, column 69",
        ),
        ("ALTER JOB exact SET RECOVERY", "line 1, column 29"),
        ("ALTER JOB exact SET RECOVERY gap please", "line 1, column 34"),
        ("ALTER JOB exact SET RECOVERY 5", "line 1, column 30"),
    ],
)
def test_invalid_recovery_semantics_are_refused_with_line_and_column(
    text: str, where: str, tmp_path: Path
) -> None:
    with kit.running(tmp_path, clicks(), SQL) as (jobs, _):
        before = jobs.commands
        with pytest.raises(UserError, match="BAD_SQL") as refused:
            jobs.execute(text)
        assert where in str(refused.value.where)
        with pytest.raises(UserError, match="UNKNOWN_JOB"):
            jobs.execute("ALTER JOB nobody SET RECOVERY gap")
        assert jobs.commands == before
