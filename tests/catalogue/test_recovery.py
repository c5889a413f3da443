"""Recovery semantics of single jobs in SQL: what each loses when the engine comes back, worked out event by event."""

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
from tests.catalogue.recovering import EVENTS, NOWHERE, UNITS, Told, clicks

COUNTED = "SELECT window_start, page, COUNT(*) AS n FROM clicks GROUP BY page WINDOWING 10 SECONDS"
BEGIN = f"""
CREATE JOB exact AS {COUNTED};
CREATE JOB holes RECOVERY gap AS {COUNTED};
CREATE JOB passing AS SELECT user, status FROM clicks WHERE status >= 400 RECOVERY gap;
CREATE JOB blank AS SELECT user, COUNT(*) AS n FROM clicks GROUP BY user WINDOWING 1000 SECONDS RECOVERY amnesia;
CREATE JOB base RECOVERY gap AS SELECT page, SUM(bytes) AS b FROM clicks GROUP BY page WINDOWING 5 SECONDS;
CREATE JOB reader AS SELECT page, MAX(b) AS m FROM base GROUP BY page WINDOWING 30 SECONDS
"""


def lived(state: Path, kill: tuple[str, int] = NOWHERE) -> tuple[Told, RecoveryOutcome]:
    return recovering.lived(state, BEGIN, kill)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Told:
    return lived(tmp_path_factory.mktemp("straight"))[0]


def seen(event: kit.Event) -> bool:
    """Whether an event is in none of the epochs that are left out."""
    return EVENTS.index(event) // UNITS not in (4, 5, 6)


def test_each_job_loses_what_it_may(straight: Told, tmp_path: Path) -> None:
    """Durable is epoch 3; epochs 4 and 5 are told; epoch 6 is recorded and dies with its runs written."""
    lived(tmp_path, ("sliced", 6))
    found, back = lived(tmp_path)
    assert (back.durable_epoch, back.recorded_epoch) == (3, 6)
    assert found["exact"] == straight["exact"]
    assert found["reader"] == straight["reader"], "what a precise job reads is there"
    assert found["passing"] == [told for told in straight["passing"] if told[0] != 6]
    assert found["base"] == [told for told in straight["base"] if told[0] != 6]

    # windows told before are as they were; none is told again; those after it know nothing of the lost epochs
    early = [told for told in straight["holes"] if told[0] < 6]
    assert found["holes"][: len(early)] == early
    counts = {
        (start, page): len([event for event in events if seen(event)])
        for (start, page), events in kit.windows(EVENTS, 10, lambda event: event["page"]).items()
    }
    expected = [
        (epoch, (*row[:-1], counts[_start(row), _page(row)]))
        for epoch, row in straight["holes"]
        if epoch > 6 and counts[_start(row), _page(row)]
    ]
    assert found["holes"][len(early) :] == expected
    assert expected != [told for told in straight["holes"] if told[0] > 6], "something was lost"

    blank = {row[-2]: row[-1] for _, row in found["blank"]}
    assert sum(blank.values()) == len(EVENTS) - 7 * UNITS
    jobs = back.by_job()
    untold = {name: len([1 for epoch, _ in straight[name] if epoch == 6]) for name in ("passing", "base")}
    one = JobRecovery(Semantics.gap, lost_epochs=1, lost_units=UNITS, untold_epochs=1)
    three = replace(one, lost_epochs=3, lost_units=3 * UNITS)
    state_bytes = jobs["blank"].lost_state_bytes
    assert jobs == {
        "blank": replace(three, semantics=Semantics.amnesia, lost_state_bytes=state_bytes),
        "holes": three,
        "passing": replace(one, lost_rows=untold["passing"]),
        "base": replace(one, lost_rows=untold["base"]),
    }


def _start(row: tuple[Any, ...]) -> int:
    instant = next(value for value in row if isinstance(value, datetime))
    return int(instant.timestamp())


def _page(row: tuple[Any, ...]) -> str:
    return next(value for value in row if isinstance(value, str))


@pytest.mark.parametrize("step", ["recorded", "gathered", "delivered", "committed"])
def test_the_precise_ones_have_everything_wherever_it_dies(step: str, straight: Told, tmp_path: Path) -> None:
    lived(tmp_path, (step, 5))
    lived(tmp_path, (step, 8))
    found, _ = lived(tmp_path)
    assert found["exact"] == straight["exact"]
    assert found["reader"] == straight["reader"]


def test_a_jobs_recovery_can_be_changed(straight: Told, tmp_path: Path) -> None:
    with kit.running(tmp_path, clicks(), BEGIN, epoch_units=UNITS, checkpoint_every=4) as (jobs, engine):
        engine.step()
        (answer,) = jobs.execute("ALTER JOB holes SET RECOVERY precise")
        assert "when the engine recovers: nothing is lost or repeated" in answer.message
        jobs.execute("ALTER JOB exact SET RECOVERY rollback; ALTER JOB blank SET RECOVERY DEFAULT")
        shown = {row["job"]: row["recovery"] for row in jobs.execute("SHOW JOBS")[0].rows}
        assert shown["exact"] == "rollback"
        assert shown["blank"] is None
        assert jobs.questions.versions("holes")[-1][1].did == "recovery precise"
        assert decode_catalogue(encode_catalogue(jobs.catalogue)) == jobs.catalogue
        assert jobs.catalogue.jobs["holes"].version == 1, "nothing else of it has changed"
        engine.runner.checkpoint()
    lived(tmp_path, ("sliced", 8))
    found, back = lived(tmp_path)
    assert found["holes"] == straight["holes"]
    assert found["blank"] == straight["blank"]
    assert set(back.by_job()) == {"passing", "base", "exact"}


def test_what_the_text_says_anew_holds(tmp_path: Path) -> None:
    lived(tmp_path)
    with kit.running(tmp_path, clicks(), BEGIN.replace("holes RECOVERY gap", "holes")) as (jobs, _):
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
def test_what_is_no_recovery_is_refused_at_its_place(text: str, where: str, tmp_path: Path) -> None:
    with kit.running(tmp_path, clicks(), BEGIN) as (jobs, _):
        before = jobs.commands
        with pytest.raises(UserError, match="BAD_SQL") as refused:
            jobs.execute(text)
        assert where in str(refused.value.where)
        with pytest.raises(UserError, match="UNKNOWN_JOB"):
            jobs.execute("ALTER JOB nobody SET RECOVERY gap")
        assert jobs.commands == before
