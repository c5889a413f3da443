"""What a case is: how its state was made, how it is continued, and what it must then have emitted."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import penstock as ps
from tests.golden import archive, lives
from tests.golden.archive import Rows
from tests.golden.given import Given

#: kinds of operators that hold no state between epochs
STATELESS_KINDS = frozenset({"relay"})
#: directories of rows that are put aside: dead letters and late events
ASIDE = ("dead", "late")


@dataclass(frozen=True)
class Case:
    """An app whose state is cut after some epochs.

    `stateless`: the outputs whose rows depend on no earlier event.
    """

    name: str
    build: Callable[[Given], ps.App]
    #: epochs before the cut, and how much of the log each takes
    cut: int = 5
    epoch_units: int = 24
    stateless: frozenset[str] = frozenset()
    checkpoint_every: int = 1

    # -- making ----------------------------------------------------------------------------------

    def first(self, given: Given, folder: Path) -> None:
        """The part of the life that the archive holds."""
        done = lives.live(
            self.build(given),
            folder / "state",
            epochs=self.cut,
            epoch_units=self.epoch_units,
            checkpoint_every=self.checkpoint_every,
        )
        assert done == self.cut, f"{self.name}: everything was read in {done} epochs"

    def whole(self, given: Given, folder: Path) -> None:
        """An undisturbed life over the whole input."""
        lives.live(self.build(given), folder / "state")

    def operators(self, given: Given) -> dict[str, str]:
        """The stateful operators whose state the archive must hold, by id, each with its kind."""
        return {
            name: kind
            for name, kind in lives.operators_of(self.build(given)).items()
            if kind not in STATELESS_KINDS
        }

    def planned(self, given: Given) -> list[object]:
        """The operators themselves, for whoever looks at what the cases cover."""
        return lives.planned(self.build(given))

    # -- continuing ------------------------------------------------------------------------------

    def rest(self, given: Given, folder: Path) -> None:
        """Continue on an unpacked state directory to the end of the input, cut otherwise than before."""
        lives.live(
            self.build(given),
            folder / "state",
            epoch_units=17,
            slices=3,
            checkpoint_every=self.checkpoint_every,
        )

    def fresh(self, given: Given, folder: Path, offsets: Mapping[str, Mapping[str, int]]) -> Rows:
        """The rows of the rest of the input, with no state before it."""
        rest = given.after(offsets, folder / "out")
        self.whole(rest, folder)
        return found(folder)


def given_of(folder: Path) -> Given:
    """What an unpacked archive gives its case."""
    return Given(archive.read_lines(folder), folder / "out")


def found(folder: Path) -> Rows:
    """All rows that were delivered in a folder, and what was put aside: dead letters and late events."""
    rows = archive.rows_below(folder / "out")
    for why in ASIDE:
        for stream, lines in archive.rows_below(folder / "state" / why).items():
            rows[f"{why}-{stream}"] = lines
    return rows


def aside_of(given: Given) -> set[str]:
    """What `found` calls the rows that are put aside, by stream."""
    return {f"{why}-{stream}" for why in ASIDE for stream in given.lines}


def make(case: Case, given_lines: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Make a case's files in an empty folder; returns what the archive says about itself."""
    archive.write_lines(folder, given_lines)
    given = given_of(folder)
    case.first(given, folder)
    manifest = archive.newest_manifest(folder / "state")
    aside = folder / "undisturbed"
    case.whole(Given(given.lines, aside / "out"), aside)
    archive.write_rows(folder / "expected", found(aside))
    shutil.rmtree(aside)
    return {
        "case": case.name,
        "epoch": manifest["epoch"],
        "offsets": archive.offsets(folder / "state"),
        "operators": case.operators(given),
        "answers": sorted(manifest["answers"]),
    }
