"""What a case is: how its state was made, how it is continued, and what it must then have emitted."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.golden import archive, lives, plans, unit_app
from tests.golden.archive import Rows
from tests.golden.given import Given, Lines

#: kinds of operators that hold no state between epochs
STATELESS_KINDS = frozenset({"round-robin"})
#: directories of rows that are put aside: dead letters and late events
ASIDE = ("dead", "late")
_OF_A_FILE = re.compile(r'(?<="partition": ")[0-9a-f]+-([0-9a-f]{8}")')


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
    #: the changes of jobs, by the epoch before which they are executed; then epochs are cut alike in every life
    commands: lives.Commands = field(default_factory=dict)
    moves: lives.Moves = field(default_factory=dict)
    #: commands after which the first ones are kept as a snapshot of what they came to
    fold_after: int | None = None
    #: whether the cut is between epochs that emit together what is due at one instant
    holds_emissions: bool = False
    #: the first format that has it
    since: int = 1
    #: through which epoch an engine that was killed has executed the commands
    executed: int = -1
    #: how much of the log an epoch takes after the cut, if that may be another amount
    rest_units: int = 33

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
            fold_after=self.fold_after,
            holds_emissions=self.holds_emissions,
            **self._cutting,
        )
        assert done == self.cut, f"{self.name}: everything was read in {done} epochs"

    def whole(self, given: Given, folder: Path) -> None:
        """An undisturbed life over the whole input."""
        cutting: dict[str, Any] = {}
        if self.commands:
            cutting = {"epoch_units": self.epoch_units, "commands": self.commands}
        lives.live(self.build(given), folder / "state", **cutting)

    def operators(self, given: Given, folder: Path) -> dict[str, str]:
        """The stateful operators whose state the archive must hold, by id, each with its kind."""
        found = plans.operators_of(self.build(given), folder / "state")
        return {name: kind for name, kind in found.items() if kind not in STATELESS_KINDS}

    def state(self, folder: Path) -> Path:
        """The state directory in force."""
        return folder / "state"

    def facts(self, folder: Path) -> dict[str, Any]:
        """What else the archive must say about itself."""
        return {}

    def planned(self, given: Given, folder: Path) -> list[object]:
        """The operators themselves and the logs, for whoever looks at what the cases cover."""
        return plans.planned(self.build(given), folder / "state")

    # -- continuing ------------------------------------------------------------------------------

    def restore(self, folder: Path) -> None:
        """Do to unpacked files what whoever brings a backup to another place must do: nothing."""

    def rest(self, given: Given, folder: Path) -> None:
        """Continue on an unpacked state directory to the end of the input; cut otherwise, if that may be."""
        cutting = self._cutting if self.commands else {**self._cutting, "epoch_units": self.rest_units}
        commands = {epoch: change for epoch, change in self.commands.items() if epoch > self.executed}
        lives.live(self.build(given), folder / "state", slices=3, commands=commands, **cutting)

    def rest_on_spark(self, given: Given, folder: Path, spark: SparkSession) -> None:
        """The same on real Spark."""
        lives.live_on_spark(self.build(given), folder / "state", spark=spark, epoch_units=33, slices=3)

    def why_not(self) -> str | None:
        """Why it cannot be continued here; None when it can."""
        return None

    @property
    def marks(self) -> tuple[pytest.MarkDecorator, ...]:
        """How a test of it is marked."""
        return ()


@dataclass(frozen=True)
class OfUnit(Case):
    """A case of an HA unit: its directory is the root, with what the engines share in `ha`. `fails_over`: the leader
    was killed on the way, so a replica's directory is in force; and in the end everything was.

    A unit knows where it is: its name ends in a hash of its root's path, and its records in the coordination store say
    which directory is in force. `restore` puts the new place there, as a tool that restores backups would.
    """

    scheme: str = "passive-replication"
    fails_over: bool = False
    #: the application that its engines load
    app: str = "golden-unit"
    file: Path = Path(unit_app.__file__)

    @property
    def marks(self) -> tuple[pytest.MarkDecorator, ...]:
        return (pytest.mark.kill,)

    def first(self, given: Given, folder: Path) -> None:
        first = self.cut_lines // 2
        with self.engines(folder, "0", drain=False, first_epoch_units=24, most_epoch_units=24) as unit:
            unit.until("the unit stands", lambda: unit.stands(self.fails_over))
            self.grow(unit, folder, 0, first)
            if self.fails_over:
                leader = unit.leader()
                unit.kill(leader)
                unit.until("another leads", lambda: unit.stands(True) and unit.leader() != leader)
            self.grow(unit, folder, first, self.cut_lines)
            (unit.die if self.fails_over else unit.stop)()
        archive.without_places(folder / "state", self.file)

    @property
    def cut_lines(self) -> int:
        """How many lines of each partition are read before the cut."""
        return self.cut * 12

    def grow(self, unit: lives.LiveUnit, folder: Path, start: int, end: int) -> None:
        """Let the log grow from so many lines of each partition to so many, and wait until these are through."""
        write_limit(folder, str(end))
        unit.until("the lines are through", lambda: unit.committed("events", end))

    def rest(self, given: Given, folder: Path) -> None:
        with self.engines(folder, "all", drain=True) as unit:
            assert unit.wait() == "done"

    def state(self, folder: Path) -> Path:
        record: dict[str, Any] = archive.unit_record(folder / "state")
        return folder / "state" / Path(record["directory"]).relative_to(archive.unit_root(folder / "state"))

    def restore(self, folder: Path) -> None:
        archive.move_unit(folder / "state", lives.name_of_unit(self.app, folder / "state"))

    @contextlib.contextmanager
    def engines(self, folder: Path, through: str, **settings: Any) -> Iterator[lives.LiveUnit]:
        """The engines of the unit, over a log that has come so far."""
        write_limit(folder, through)
        os.environ[unit_app.FOLDER] = str(folder)
        try:
            yield lives.LiveUnit(self.file, self.app, folder / "state", self.scheme, **settings)
        finally:
            del os.environ[unit_app.FOLDER]


def write_limit(folder: Path, through: str) -> None:
    """Say how many lines of every partition there are by now, or `all`."""
    staged = folder / f".{unit_app.LIMIT}"
    staged.write_text(through)
    staged.replace(folder / unit_app.LIMIT)


@contextlib.contextmanager
def within(folder: Path) -> Iterator[None]:
    """Work in a folder."""
    with contextlib.chdir(folder):
        yield


def given_of(folder: Path) -> Given:
    """What an unpacked archive gives its case."""
    return Given(archive.read_lines(folder), folder / "out")


def found(folder: Path, through: int | None = None) -> Rows:
    """All rows that were delivered in a folder, and what was put aside. `through`: only those in files of epochs up to
    this one, which leaves out tables."""
    rows = archive.rows_below(folder / "out", through)
    for why in ASIDE:
        for stream, lines in archive.rows_below(folder / "state" / why, through).items():
            # of a text file, the part of its partition's id that a copy has too
            rows[f"{why}.{stream}"] = sorted(_OF_A_FILE.sub(r"\1", line) for line in lines)
    if through is None:
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


def is_aside(name: str) -> bool:
    """Whether `found` calls rows so that were put aside, instead of an output's."""
    return "." in name


def make(case: Case, made: Mapping[str, Lines], folder: Path) -> dict[str, Any]:
    """Make a case's files in an empty folder; returns what the archive says about itself."""

    def rows(one: Case, name: str, given: Given) -> Rows:
        """What an undisturbed life over all that is given brings forth."""
        aside = folder / f"life-{name}"
        aside.mkdir()
        with within(aside):
            one.whole(replace(given, out=aside / "out"), aside)
        brought = found(aside)
        shutil.rmtree(aside)
        return brought

    archive.write_lines(folder, case.lines(made))
    given = given_of(folder)
    with within(folder):
        case.first(given, folder)
        operators, facts = case.operators(given, folder), case.facts(folder)
        kinds = plans.kinds_of(case.planned(given, folder))
    state = case.state(folder)
    manifest = archive.newest_manifest(state)
    without = sorted(operators.keys() - archive.rows_held(manifest).keys())
    assert not without, f"{case.name}: no state at the cut of {without}"
    facts = {
        "case": case.name,
        "epoch": manifest["epoch"],
        "recorded": archive.newest_record(state),
        "offsets": archive.offsets(state, manifest["epoch"]),
        "operators": operators,
        "kinds": kinds,
        "answers": sorted(manifest["answers"]),
        **facts,
    }
    after = given.after(facts["offsets"])
    expected = rows(case, "undisturbed", given)
    alone = rows(replace(case, commands={}), "alone", after)
    check_dependence(case, expected, found(folder, facts["epoch"]), alone)
    archive.write_rows(folder / "expected", expected)
    return facts


def check_dependence(case: Case, expected: Rows, before: Rows, alone: Rows) -> None:
    """Check that the rows of every output after the cut depend on what was before it. `alone`: the rows of the events
    after the cut by themselves, which the archives of format 1 hold; for later ones this is checked when they are made.
    """
    for output in before.keys() - case.stateless:
        if is_aside(output):
            continue
        rest = Counter(expected[output]) - Counter(before[output])
        assert rest, f"nothing of {output} comes after the cut"
        assert rest != Counter(alone.get(output, [])), f"{output} does not depend on what was before the cut"
