"""A state directory that is restored from a copy, while its sink has what came after: for any sink."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import penstock as ps
from penstock.errors import UserError
from penstock.sinks.contract import Sink
from penstock.testing.inline import InlineEngine
from tests.cli.kit import run_in_process
from tests.delivery.kit import Numbers

#: what the sink has at first; the copy of the state was made when it had the first six
BEFORE = list(range(12))


@dataclass
class RestoredCase:
    """An app with one output on a state directory, whose sink `make` makes and `read` reads."""

    folder: Path
    make: Callable[[], Sink]
    read: Callable[[], list[int]]
    numbers: Numbers = field(default_factory=Numbers)

    @property
    def state(self) -> Path:
        return self.folder / "state"

    def run(self, epochs: int) -> None:
        """Execute so many epochs of two numbers each."""
        app = ps.app("numbers", ps.output("all", self.numbers.stream.select("n"), self.make()))
        engine = InlineEngine(app, self.state)
        try:
            for _ in range(epochs):
                self.numbers.add(2)
                engine.step()
        finally:
            engine.close()

    def restore_old_copy(self) -> None:
        """Copy the state after three epochs, continue for three, from two starts, and restore the copy."""
        self.run(3)
        shutil.copytree(self.state, self.folder / "copy")
        for epochs in (1, 2):
            self.run(epochs)
        assert self.read() == BEFORE
        shutil.rmtree(self.state)
        shutil.copytree(self.folder / "copy", self.state)

    def refuse(self) -> UserError:
        """Start; the error."""
        with pytest.raises(UserError) as refused:
            self.run(1)
        assert refused.value.condition == "STATE_RESTORED"
        assert self.read() == BEFORE
        return refused.value

    def decide(self, refused: UserError, command: str) -> None:
        """Execute one of the commands that the error names."""
        commands = re.findall("`(penstock recover .*?)`", str(refused.hint))
        (chosen,) = (one for one in commands if command in one)
        done = run_in_process(*shlex.split(chosen)[1:])
        assert (done.returncode, done.stderr) == (0, "")


def check_refused_and_skipped(case: RestoredCase) -> None:
    """It is refused at every start; then the sink keeps what it has, and gets what comes after that."""
    case.restore_old_copy()
    for _ in range(3):
        refused = case.refuse()
    case.decide(refused, "skip-delivery")
    first_new = (
        case.numbers.count + 4
    )  # one epoch takes in all that came meanwhile, and two have two numbers each
    case.run(3)
    assert case.read() == BEFORE, "the epochs up to the sink's"
    case.run(2)
    case.run(1)
    assert case.read() == [*BEFORE, *range(first_new + 2, case.numbers.count)]


def check_refused_and_written_again(case: RestoredCase) -> None:
    """It is refused at every start; then the sink gets all that comes after the copy, beside what it has."""
    case.restore_old_copy()
    for _ in range(2):
        refused = case.refuse()
    case.decide(refused, "write-again")
    case.run(1)
    case.run(2)
    assert case.read() == sorted([*BEFORE, *range(6, case.numbers.count)])


def check_a_copy_of_what_the_sink_has_continues(case: RestoredCase) -> None:
    """A directory that is moved, or restored when nothing was emitted since, continues."""
    case.run(3)
    shutil.copytree(case.state, case.folder / "copy")
    case.state.rename(case.folder / "former")
    (case.folder / "copy").rename(case.state)
    case.run(2)
    assert case.read() == list(range(10))
