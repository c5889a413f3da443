"""What a case is: how its state was made, how it is continued, and what it must then have emitted."""

from __future__ import annotations

import contextlib
import gzip
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.golden import archive, lives, unit_app
from tests.golden.archive import Rows
from tests.golden.given import Given, Lines

#: kinds of operators that hold no state between epochs
STATELESS_KINDS = frozenset({"relay"})
#: directories of rows that are put aside: dead letters and late events
ASIDE = ("dead", "late")
_OF_A_FILE = re.compile(r'(?<="partition": ")[0-9a-f]+-([0-9a-f]{8}")')
#: the stream that agents reduce
REDUCED = "events"


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
    #: commands after which the first ones are kept as a snapshot of what they came to
    fold_after: int | None = None

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
        found = lives.operators_of(self.build(given), folder / "state")
        return {name: kind for name, kind in found.items() if kind not in STATELESS_KINDS}

    def state(self, folder: Path) -> Path:
        """The state directory in force."""
        return folder / "state"

    def facts(self, folder: Path) -> dict[str, Any]:
        """What else the archive must say about itself."""
        return {}

    def planned(self, given: Given, folder: Path) -> list[object]:
        """The operators themselves and the logs, for whoever looks at what the cases cover."""
        return lives.planned(self.build(given), folder / "state")

    # -- continuing ------------------------------------------------------------------------------

    def restore(self, folder: Path) -> None:
        """Do to unpacked files what whoever brings a backup to another place must do: nothing."""

    def rest(self, given: Given, folder: Path) -> None:
        """Continue on an unpacked state directory to the end of the input; cut otherwise, if that may be."""
        cutting = self._cutting if self.commands else {**self._cutting, "epoch_units": 33}
        lives.live(self.build(given), folder / "state", slices=3, commands=self.commands, **cutting)

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


@dataclass(frozen=True)
class Reduced(Case):
    """A case over lines that agents have reduced. No public name makes such an app: `--reduced` does."""

    def lines(self, made: Mapping[str, Lines]) -> Mapping[str, Lines]:
        app = self.build(Given(made, Path("out")))
        parts = made[REDUCED].items()
        return {REDUCED: {part: lives.reduced_lines(app, REDUCED, lines) for part, lines in parts}}

    def first(self, given: Given, folder: Path) -> None:
        self._over(given).first(given, folder)

    def whole(self, given: Given, folder: Path) -> None:
        self._over(given).whole(given, folder)

    def rest(self, given: Given, folder: Path) -> None:
        self._over(given).rest(given, folder)

    def operators(self, given: Given, folder: Path) -> dict[str, str]:
        return self._over(given).operators(given, folder)

    def planned(self, given: Given, folder: Path) -> list[object]:
        return self._over(given).planned(given, folder)

    def _over(self, given: Given) -> Case:
        """The case over partial answers."""
        return Case(
            self.name, lambda given: lives.reduced(self.build(given), REDUCED), self.cut, self.epoch_units
        )


@dataclass(frozen=True)
class OnSpark(Case):
    """A case whose state directory a real Spark wrote, with the offsets and commits of its streaming query."""

    def first(self, given: Given, folder: Path) -> None:
        lives.live_on_spark(
            self.build(given), folder / "state", epochs=self.cut, epoch_units=self.epoch_units
        )


@dataclass(frozen=True)
class Files(Case):
    """A case over text files, whose partitions are known by inode and first line.

    A backup brought to another place has files of other inodes, so what is unpacked would be read as new files. The
    archive says which file was which partition; `restore` writes the files anew and puts their inodes into the epoch
    records and manifests (and a manifest's checksum), as a tool that restores backups would. Nothing else of the state
    directory names a place: the glob is relative, and a case works in its folder.

    `rotate` instead packs the files, as a rotation does: an archive takes the identity of the text file it was made of,
    so nothing is rewritten.
    """

    def first(self, given: Given, folder: Path) -> None:
        self._write(given, folder)
        super().first(given, folder)

    def whole(self, given: Given, folder: Path) -> None:
        self._write(given, folder)
        super().whole(given, folder)

    def facts(self, folder: Path) -> dict[str, Any]:
        ids = archive.offsets(folder / "state", archive.newest_record(folder / "state"))["events"]
        inodes = {f"{path.stat().st_ino:x}": path.name for path in (folder / "logs").iterdir()}
        return {"files": {inodes[id.split("-")[0]]: id for id in ids}, "offsets": self._by_part(folder, ids)}

    def _by_part(self, folder: Path, ids: Mapping[str, int]) -> dict[str, dict[str, int]]:
        """How many lines of every file have been read."""
        inodes = {f"{path.stat().st_ino:x}": path for path in (folder / "logs").iterdir()}
        read = {inodes[id.split("-")[0]]: offset for id, offset in ids.items()}
        return {"events": {path.stem: path.read_bytes()[:at].count(b"\n") for path, at in read.items()}}

    def restore(self, folder: Path) -> None:
        shutil.rmtree(folder / "logs")
        self._write(given_of(folder), folder)
        for name, before in archive.about(folder)["files"].items():
            inode = (folder / "logs" / name).stat().st_ino
            archive.rename(folder / "state", before, f"{inode:x}-{before.split('-')[1]}")

    def rotate(self, folder: Path) -> None:
        """Bring the files back packed."""
        for path in sorted((folder / "logs").iterdir()):
            path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))
            path.unlink()

    def _write(self, given: Given, folder: Path) -> None:
        (folder / "logs").mkdir(exist_ok=True)
        for part, lines in given.lines["events"].items():
            (folder / "logs" / f"{part}.log").write_text("".join(f"{line}\n" for line in lines))


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
        "answers": sorted(manifest["answers"]),
        **facts,
    }
    after = given.after(facts["offsets"])
    archive.write_rows(folder / "expected", rows(case, "undisturbed", given))
    archive.write_rows(folder / "alone", rows(replace(case, commands={}), "alone", after))
    return facts
