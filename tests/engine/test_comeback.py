"""Recovery semantics on real state directories: what each keeps, loses and repeats, event by event."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

import penstock as ps
from penstock.engine.comeback import Comeback
from penstock.engine.engine import Engine
from penstock.engine.program import Fixed
from penstock.engine.settings import Settings
from penstock.ha.schemes import Semantics
from penstock.query.compile import compiled
from penstock.sinks.contract import Sink
from penstock.state.directory import StateDirectory
from penstock.testing.inline import InlineEngine
from penstock.testing.list_log import ListLog
from tests.engine import golden
from tests.engine.test_interval import Death, Died

UNITS = 20
LINES = 200
BEGIN = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


class Forgetful(Sink):
    """Takes whatever it is offered: it keeps no account of epochs."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self, job: str, schema: dict[str, pl.DataType]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def write(self, epoch: int, rows: pl.DataFrame) -> bool:
        with open(self.path, "a", encoding="utf-8") as file:
            file.writelines(f"{json.dumps([epoch, *row], default=str)}\n" for row in rows.iter_rows())
        return True

    def describe(self) -> str:
        return str(self.path)

    def rows(self) -> list[list[object]]:
        return [json.loads(line) for line in self.path.read_text().splitlines()]


def build(folder: Path) -> ps.App:
    """Events a second apart; every tenth of a window's minute is an epoch or so."""
    lines = {"p0": [f"{(BEGIN + timedelta(seconds=n)).isoformat()},u{n % 3},/a,1.0" for n in range(LINES)]}
    events = ps.stream("events", ListLog(lines), golden.decoder(), time="time", lateness=0)
    return ps.app(
        "back",
        ps.output("each", events.select("time"), Forgetful(folder / "each")),
        ps.output("windows", events.key_by("page").window("10s").count("n"), Forgetful(folder / "windows")),
        ps.output("totals", events.key_by("user").running("10s").count("n"), Forgetful(folder / "totals")),
    )


@pytest.fixture
def death(monkeypatch: pytest.MonkeyPatch) -> Death:
    return Death(monkeypatch)


def lived(folder: Path, semantics: Semantics, every: int = 4) -> Comeback:
    """One life of an engine on a folder: until it dies, or has read everything."""
    program = Fixed(compiled(build(folder)))
    engine = InlineEngine(
        program, folder / "state", epoch_units=UNITS, checkpoint_every=every, semantics=semantics
    )
    try:
        for _ in engine.steps():
            pass
        engine.runner.settle()
    except Died:
        pass
    finally:
        engine.close()
    return engine.comeback


def told(folder: Path, name: str) -> list[list[object]]:
    return Forgetful(folder / name).rows()


@pytest.fixture
def straight(tmp_path: Path) -> Path:
    lived(tmp_path / "straight", Semantics.precise)
    return tmp_path / "straight"


def died_in_six(folder: Path, death: Death, semantics: Semantics) -> Comeback:
    """Durable is epoch 3; epochs 4 and 5 are told; epoch 6 is recorded and dies with its runs written."""
    death.at = ("sliced", 6)
    assert not lived(folder, semantics).happened
    assert StateDirectory(folder / "state").latest().epoch == 3
    return lived(folder, semantics)


def test_precise_loses_and_repeats_nothing(straight: Path, tmp_path: Path, death: Death) -> None:
    back = died_in_six(tmp_path / "one", death, Semantics.precise)
    for name in ("each", "windows", "totals"):
        assert told(tmp_path / "one", name) == told(straight, name)
    assert back.outcome() == {"replayed_epochs": 3, "replayed_events": 3 * UNITS}


def test_rollback_repeats_what_it_says(straight: Path, tmp_path: Path, death: Death) -> None:
    back = died_in_six(tmp_path / "one", death, Semantics.rollback)
    twice = 0
    for name in ("each", "windows", "totals"):
        expected, found = (Counter(map(str, told(at, name))) for at in (straight, tmp_path / "one"))
        assert set(found) == set(expected), "the same rows, and no other"
        twice += (found - expected).total()
        assert {row[0] for row in told(tmp_path / "one", name) if found[str(row)] == 2} <= {4, 5}
    assert twice > 2 * UNITS
    assert back.outcome() == {
        "replayed_epochs": 3,
        "replayed_events": 3 * UNITS,
        "repeated_epochs": 2,
        "repeated_rows": twice,
    }


def test_a_gap_loses_what_it_says_and_repeats_nothing(straight: Path, tmp_path: Path, death: Death) -> None:
    back = died_in_six(tmp_path / "one", death, Semantics.gap)
    assert back.outcome() == {"lost_epochs": 3, "lost_events": 2 * UNITS, "lost_units": 3 * UNITS}
    each = [row[1] for row in told(tmp_path / "one", "each")]
    expected = [row[1] for row in told(straight, "each")]
    # epochs 4 and 5 had been told before; only epoch 6 never is
    assert each == expected[: 6 * UNITS] + expected[7 * UNITS :]
    windows = Counter(str(row[1:3]) for row in told(tmp_path / "one", "windows"))
    assert windows.most_common(1)[0][1] == 1, "no window is told twice"
    counted = sum(int(str(row[-1])) for row in told(tmp_path / "one", "windows"))
    assert LINES - 3 * UNITS <= counted <= LINES
    # the totals go on from the durable manifest's: all but the epochs that are lost
    last = {str(row[-2]): row[-1] for row in told(tmp_path / "one", "totals")}
    assert sum(int(str(count)) for count in last.values()) == LINES - 3 * UNITS


def test_amnesia_loses_the_state_too(tmp_path: Path, death: Death) -> None:
    back = died_in_six(tmp_path / "one", death, Semantics.amnesia)
    outcome = back.outcome()
    assert outcome.pop("lost_state_bytes") > 0
    assert outcome == {"lost_epochs": 3, "lost_events": 2 * UNITS, "lost_units": 3 * UNITS}
    last = {str(row[-2]): row[-1] for row in told(tmp_path / "one", "totals")}
    assert sum(int(str(count)) for count in last.values()) == LINES - 7 * UNITS
    windows = Counter(str(row[1:3]) for row in told(tmp_path / "one", "windows"))
    assert windows.most_common(1)[0][1] == 1


@pytest.mark.parametrize("semantics", Semantics)
def test_who_ended_as_he_should_has_nothing_to_come_back_to(semantics: Semantics, tmp_path: Path) -> None:
    for _ in range(2):
        back = lived(tmp_path / "one", semantics, every=3)
        assert not back.happened
        assert back.outcome() == {}
    assert sum(1 for row in told(tmp_path / "one", "each")) == LINES


def test_a_crash_right_after_the_gap_is_the_same_gap(tmp_path: Path, death: Death) -> None:
    folder = tmp_path / "one"
    death.at = ("sliced", 6)
    lived(folder, Semantics.gap)
    death.at = ("admitted", 7)
    first = lived(folder, Semantics.gap)
    again = lived(folder, Semantics.gap)
    assert first.lost_epochs == 3
    assert not again.happened
    windows = Counter(str(row[1:3]) for row in told(folder, "windows"))
    assert windows.most_common(1)[0][1] == 1


def test_an_engine_tells_what_its_coming_back_did(tmp_path: Path, death: Death) -> None:
    folder = tmp_path / "one"
    death.at = ("sliced", 6)
    lived(folder, Semantics.gap)
    settings = Settings(
        state=folder / "state",
        master="inline",
        drain=True,
        first_epoch_units=UNITS,
        most_epoch_units=UNITS,
        epoch_interval_seconds=0.0,
        checkpoint_every=4,
        cache_root=tmp_path / "memory",
        semantics=Semantics.gap,
    )
    engine = Engine(build(folder), settings)
    engine.run()
    assert engine.seat.comeback.lost_epochs == 3
    (line,) = (folder / "state" / "recoveries.jsonl").read_text().splitlines()
    assert json.loads(line)["lost_units"] == 3 * UNITS
