"""What a case is: how its state was made, how it is continued, and what it must then have emitted."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.golden import archive, lives
from tests.golden.archive import Rows
from tests.golden.given import Given, Lines

#: kinds of operators that hold no state between epochs
STATELESS_KINDS = frozenset({"relay"})
#: directories of rows that are put aside: dead letters and late events
ASIDE = ("dead", "late")


@dataclass(frozen=True)
class Case:
    """A query whose state is cut after some epochs.

    It runs with its folder as the working directory, so that a query may name files by relative paths.
    """

    name: str
    build: Callable[[Given], lives.Query]
    #: epochs before the cut, and how much of the log each takes
    cut: int = 5
    epoch_units: int = 24
    checkpoint_every: int = 1
    #: the outputs whose rows depend on no earlier event, or that have ended by the cut
    stateless: frozenset[str] = frozenset()
    #: what is said to jobs, before which epoch; then epochs are cut alike in every life
    commands: lives.Commands = field(default_factory=dict)
    moves: lives.Moves = field(default_factory=dict)

    @property
    def _cutting(self) -> dict[str, Any]:
        return {"epoch_units": self.epoch_units, "checkpoint_every": self.checkpoint_every}

    # -- making ----------------------------------------------------------------------------------

    def lines(self, made: Mapping[str, Lines]) -> Mapping[str, Lines]:
        """The input, of what there is."""
        return made

    def first(self, given: Given, folder: Path) -> None:
        """The part of the life that the archive holds."""
        done = lives.live(
            self.build(given),
            folder / "state",
            epochs=self.cut,
            commands=self.commands,
            moves=self.moves,
            **self._cutting,
        )
        assert done == self.cut, f"{self.name}: everything was read in {done} epochs"

    def whole(self, given: Given, folder: Path) -> None:
        """An undisturbed life over the whole input."""
        cutting = {"epoch_units": self.epoch_units, "commands": self.commands} if self.commands else {}
        lives.live(self.build(given), folder / "state", **cutting)

    def operators(self, given: Given, folder: Path) -> dict[str, str]:
        """The stateful operators whose state the archive must hold, by id, each with its kind."""
        found = lives.operators_of(self.build(given), folder / "state")
        return {name: kind for name, kind in found.items() if kind not in STATELESS_KINDS}

    def planned(self, given: Given, folder: Path) -> list[object]:
        """The operators themselves, for whoever looks at what the cases cover."""
        return lives.planned(self.build(given), folder / "state")

    # -- continuing ------------------------------------------------------------------------------

    def rest(self, given: Given, folder: Path) -> None:
        """Continue on an unpacked state directory to the end of the input; cut otherwise than before, if that may be."""
        cutting = self._cutting if self.commands else {**self._cutting, "epoch_units": 17}
        lives.live(self.build(given), folder / "state", slices=3, commands=self.commands, **cutting)

    def fresh(self, given: Given, folder: Path, facts: Mapping[str, Any]) -> Rows:
        """The rows of the rest of the input, with no state before it."""
        rest = given.after(facts["offsets"], folder / "out")
        folder.mkdir()
        with within(folder):
            self.whole(rest, folder)
        return found(folder)


@dataclass(frozen=True)
class Killed(Case):
    """A case whose engine is killed at a step of an epoch, in a process of its own."""

    step: str = "recorded"

    def first(self, given: Given, folder: Path) -> None:
        killed = subprocess.run(
            [sys.executable, "-m", "tests.golden.dying", self.name, str(folder)],
            env=os.environ
            | {"PENSTOCK_KILL_AT": f"{self.step}:{self.cut}", "PYTHONPATH": os.pathsep.join(sys.path)},
            start_new_session=True,
            timeout=120,
            check=False,
        )
        assert killed.returncode == -signal.SIGKILL, f"{self.name} did not die: {killed.returncode}"

    def die(self, given: Given, folder: Path) -> None:
        """Live until killed; in the process that is to be."""
        lives.live(self.build(given), folder / "state", **self._cutting)


@contextlib.contextmanager
def within(folder: Path) -> Iterator[None]:
    """Work in a folder."""
    with contextlib.chdir(folder):
        yield


def given_of(folder: Path) -> Given:
    """What an unpacked archive gives its case."""
    return Given(archive.read_lines(folder), folder / "out")


def found(folder: Path, upto: int | None = None) -> Rows:
    """All rows that were delivered in a folder, and what was put aside. `upto`: only those in files of epochs up to this
    one, which leaves out tables."""
    rows = archive.rows_below(folder / "out", upto)
    for why in ASIDE:
        for stream, lines in archive.rows_below(folder / "state" / why, upto).items():
            rows[f"{why}-{stream}"] = lines
    if upto is None:
        for database in sorted((folder / "out").glob("*.db")):
            rows |= _tables(database)
    return rows


def _tables(database: Path) -> Rows:
    """The rows of a SQLite file's tables, without those of the sink itself."""
    with contextlib.closing(sqlite3.connect(database)) as reading:
        names = [name for (name,) in reading.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        mine = [name for name in names if not name.startswith(("penstock_", "sqlite_"))]
        reading.row_factory = sqlite3.Row
        return {
            f"{database.stem}-{name}": archive.canonical(
                map(dict, reading.execute(f'SELECT * FROM "{name}"'))
            )
            for name in mine
        }


def aside_of(given: Given) -> set[str]:
    """What `found` calls the rows that are put aside, by stream."""
    return {f"{why}-{stream}" for why in ASIDE for stream in given.lines}


def make(case: Case, made: Mapping[str, Lines], folder: Path) -> dict[str, Any]:
    """Make a case's files in an empty folder; returns what the archive says about itself."""
    archive.write_lines(folder, case.lines(made))
    given = given_of(folder)
    with within(folder):
        case.first(given, folder)
        operators = case.operators(given, folder)
    aside = folder / "undisturbed"
    aside.mkdir()
    with within(aside):
        case.whole(Given(given.lines, aside / "out"), aside)
    archive.write_rows(folder / "expected", found(aside))
    shutil.rmtree(aside)
    manifest = archive.newest_manifest(folder / "state")
    without = sorted(operators.keys() - archive.rows_held(manifest).keys())
    assert not without, f"{case.name}: no state at the cut of {without}"
    return {
        "case": case.name,
        "epoch": manifest["epoch"],
        "recorded": archive.newest_record(folder / "state"),
        "offsets": archive.offsets(folder / "state", manifest["epoch"]),
        "operators": operators,
        "answers": sorted(manifest["answers"]),
    }
