"""Recovery semantics of single outputs: what each keeps, loses and repeats beside others, event by event."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock.catalogue.app_plan import stages_owned
from penstock.cli.unit_tables import job_lines
from penstock.engine.engine import Engine
from penstock.engine.status_server import status
from penstock.epoch.kill_points import STEPS, StepName
from penstock.epoch.recovery import JobRecovery, RecoveryOutcome
from penstock.errors import UserError
from penstock.ha.schemes import Semantics
from penstock.query.compile import compile_app
from penstock.state.directory import StateDirectory
from penstock.testing.list_log import ListLog
from tests import dying
from tests import golden_query as golden
from tests.dying import LINES, UNITS, Death, Forgetful, seconds, settings, told

#: the outputs, with what each may lose or repeat
MIXED = {
    "each": None,
    "windows": "precise",
    "some": "gap",
    "totals": "gap",
    "same": "gap",
    "again": "rollback",
    "blank": "amnesia",
}


def build(folder: Path, recovery: dict[str, Any]) -> ps.App:
    """Events a second apart, in one partition: an epoch is the next UNITS of them."""
    events = seconds()
    windows = events.key_by("page").window("7s").count("n")
    rows = {
        "each": events.select("time"),
        "windows": windows,
        "some": events.select("time", "user"),
        "totals": events.key_by("user").running("10s").count("n"),
        "same": windows.select("n", "page"),
        "again": events.select("user", "time"),
        "blank": events.key_by("page").running("20s").count("n"),
    }
    return ps.app(
        "mixed",
        *(
            ps.output(
                name, rows[name], Forgetful(folder / name), ps.jsonl(folder / f"{name}-files"), recovery=one
            )
            for name, one in recovery.items()
        ),
    )


def lived(folder: Path) -> RecoveryOutcome:
    return dying.lived(build(folder, MIXED), folder)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("straight")
    lived(folder)
    return folder


def files(folder: Path, name: str) -> dict[str, bytes]:
    """What a sink that keeps account of epochs has, byte by byte."""
    return {path.name: path.read_bytes() for path in (folder / f"{name}-files").glob("*.jsonl")}


def last_totals(folder: Path, name: str) -> int:
    return sum({row[-2]: row[-1] for row in told(folder, name)}.values())


def died_in_six(
    folder: Path, death: Death, recovery: dict[str, Any] = MIXED, semantics: Semantics = Semantics.precise
) -> RecoveryOutcome:
    return dying.died_in_six(lambda: build(folder, recovery), folder, death, semantics)


def test_each_output_loses_and_repeats_what_it_may(straight: Path, tmp_path: Path, death: Death) -> None:
    back = died_in_six(tmp_path, death)
    for name in ("each", "windows"):  # byte for byte what an undisturbed run tells
        assert (tmp_path / name).read_bytes() == (straight / name).read_bytes()
        assert files(tmp_path, name) == files(straight, name)
    # it remembers nothing: epochs 4 and 5 had been told, only epoch 6 never is
    assert told(tmp_path, "some") == [row for row in told(straight, "some") if row[0] != 6]
    # what others need as well was repeated for them: only what epoch 6 told is missing
    untold = [row for row in told(straight, "same") if row[0] == 6]
    assert told(tmp_path, "same") == [row for row in told(straight, "same") if row[0] != 6]
    # its own state is that of the durable manifest
    assert last_totals(tmp_path, "totals") == LINES - 3 * UNITS
    assert last_totals(tmp_path, "blank") == LINES - 7 * UNITS
    twice = Counter(map(str, told(tmp_path, "again"))) - Counter(map(str, told(straight, "again")))
    assert twice.total() == 2 * UNITS
    assert files(tmp_path, "again") == files(straight, "again")
    found = back.by_job()
    blank = found.pop("blank")
    assert blank.lost_state_bytes > 0
    assert replace(blank, lost_state_bytes=0) == _lost("amnesia", 3, 1)
    assert found == {
        "some": _lost("gap", 1, 1, lost_rows=UNITS),
        "same": _lost("gap", 1, 1, lost_rows=len(untold)),
        "totals": _lost("gap", 3, 1),
        "again": JobRecovery(Semantics.rollback, repeated_epochs=2, repeated_rows=2 * UNITS),
    }
    assert untold
    assert back.counts() == {
        "replayed_epochs": 3,
        "replayed_events": 3 * UNITS,
        "repeated_epochs": 2,
        "repeated_rows": 2 * UNITS,
        "lost_jobs": 4,
    }


def _lost(semantics: str, epochs: int, untold: int, lost_rows: int = 0) -> JobRecovery:
    return JobRecovery(
        Semantics(semantics),
        lost_epochs=epochs,
        lost_units=epochs * UNITS,
        untold_epochs=untold,
        lost_rows=lost_rows,
    )


@pytest.mark.parametrize("step", STEPS)
def test_wherever_it_dies_the_precise_ones_have_everything(
    step: StepName, straight: Path, tmp_path: Path, death: Death
) -> None:
    death.at = (step, 5)
    lived(tmp_path)
    back = lived(tmp_path)
    for name in ("each", "windows", "again"):
        assert files(tmp_path, name) == files(straight, name)
    lost = back.by_job()["some"].lost_rows
    missing = set(files(straight, "some")) - set(files(tmp_path, "some"))
    rows = sum(files(straight, "some")[name].count(b"\n") for name in missing)
    # the sinks of an epoch after which none is recorded may have it all the same
    assert rows == (0 if step in ("admitted", "planned", "delivered", "committed") else lost)
    assert lost == UNITS
    assert files(tmp_path, "some").items() <= files(straight, "some").items()


def test_dying_again_while_it_comes_back_and_after(straight: Path, tmp_path: Path, death: Death) -> None:
    death.at = ("sliced", 6)
    lived(tmp_path)
    death.at = ("gathered", 5)
    lived(tmp_path)
    death.at = ("sliced", 8)
    third = lived(tmp_path)
    assert third.by_job()["totals"].lost_epochs == 3
    # the last repeated epoch is durable: what was left out then is not left out again
    assert StateDirectory(tmp_path / "state").manifests.latest().epoch == 6
    fourth = lived(tmp_path)
    assert fourth.by_job()["totals"].lost_epochs == 2
    assert last_totals(tmp_path, "totals") == LINES - 5 * UNITS
    for name in ("each", "windows"):
        assert files(tmp_path, name) == files(straight, name)


def test_where_all_outputs_lose_no_epoch_is_repeated(tmp_path: Path, death: Death) -> None:
    all_gap: dict[str, Any] = {"some": "gap", "totals": "gap", "blank": "amnesia"}
    back = died_in_six(tmp_path, death, all_gap)
    assert back.counts() == {"lost_epochs": 3, "lost_events": 2 * UNITS, "lost_units": 3 * UNITS}
    assert last_totals(tmp_path, "totals") == LINES - 3 * UNITS
    assert last_totals(tmp_path, "blank") == LINES - 7 * UNITS
    jobs = back.by_job()
    assert jobs["some"] == _lost("gap", 1, 1)
    assert jobs["totals"] == _lost("gap", 3, 1)
    assert jobs["blank"].lost_state_bytes > 0
    assert replace(jobs["blank"], lost_state_bytes=0) == _lost("amnesia", 3, 1)


def test_the_engine_speaks_for_outputs_that_say_nothing(straight: Path, tmp_path: Path, death: Death) -> None:
    back = died_in_six(tmp_path, death, {"windows": "precise", "totals": None}, Semantics.gap)
    assert (tmp_path / "windows").read_bytes() == (straight / "windows").read_bytes()
    assert last_totals(tmp_path, "totals") == LINES - 3 * UNITS
    assert list(back.by_job()) == ["totals"]


def test_who_ended_as_he_should_lost_nothing(straight: Path, tmp_path: Path) -> None:
    for _ in range(2):
        back = lived(tmp_path)
        assert not back.has_epochs
        assert back.by_job() == {}
    for name in MIXED:
        assert told(tmp_path, name) == told(straight, name)


def test_what_outputs_share_is_nobodys_own(tmp_path: Path) -> None:
    plan = compile_app(build(tmp_path, MIXED))
    assert set(stages_owned(plan, ["same"]).values()) == set()
    both = stages_owned(plan, ["same", "windows", "some"])
    assert set(both.values()) == {frozenset({"same", "windows"})}
    assert len(stages_owned(plan, list(MIXED))) == len(plan.stages)


def test_a_recovery_that_is_none_is_refused_at_its_line(tmp_path: Path) -> None:
    events = ps.stream("events", ListLog({"p0": []}), golden.decoder(), time="time")
    with pytest.raises(UserError, match="UNKNOWN_RECOVERY") as refused:
        ps.output("each", events, recovery="gaps")
    assert refused.value.hint == "Did you mean gap?"
    assert "test_recovery_of_jobs.py" in str(refused.value.where)
    with pytest.raises(UserError, match="There are precise, rollback, gap, amnesia"):
        ps.output("each", events, recovery=3)  # type: ignore[arg-type]


def test_an_engine_tells_what_each_job_lost(tmp_path: Path, death: Death) -> None:
    death.at = ("sliced", 6)
    lived(tmp_path)
    engine = Engine(build(tmp_path, MIXED), settings(tmp_path))
    engine.run()
    facts = status(engine, None)["recovery"]["jobs"]
    jobs = {name: JobRecovery.from_json(one) for name, one in facts.items()}
    assert jobs["totals"] == _lost("gap", 3, 1)
    assert facts["totals"] == {
        "semantics": "gap",
        "lost_epochs": 3,
        "lost_units": 3 * UNITS,
        "untold_epochs": 1,
    }
    assert "each" not in jobs
    (line,) = (tmp_path / "state" / "recoveries.jsonl").read_text().splitlines()
    assert json.loads(line)["jobs"] == facts
    assert (
        "totals (gap): epochs lost 3, records or bytes of the logs lost 60, epochs not delivered 1"
        in job_lines(jobs)
    )
