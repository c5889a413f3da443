"""Three ways with jobs of Python that come, change their code and go: the other jobs' files are the same to the byte,
and a repeated epoch runs the code that it ran before, also when its file has changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from penstock.catalogue.program import Program
from tests.catalogue import kit
from tests.catalogue.python_kit import EVENT_BYTES, Files, alter, create, deployed, running

EVENTS = kit.events(240)
OTHERS = """
counts = clicks.key_by("page").window("5s").count()
sessions = clicks.key_by("user").session("2s").count()
app = ps.app("others", ps.output("counts", counts, ps.jsonl({out!r} + "/counts")),
             ps.output("sessions", sessions, ps.jsonl({out!r} + "/sessions")))
"""
SQL = """
CREATE JOB best AS SELECT user, SUM(bytes) AS b FROM clicks GROUP BY user ORDER BY b DESC LIMIT 3 WINDOWING 10 SECONDS
    INTO jsonl('{out}/best');
CREATE JOB errors AS SELECT user, page FROM clicks WHERE status >= 400 INTO jsonl('{out}/errors')
"""
COMING = """
class Tagged(ps.CustomOperator):
    def init_state(self):
        return {{"n": 0}}

    def process(self, batch, state, out, context):
        state["n"] += batch.height
        out.emit(batch.select("_time", "user", tag=pl.lit({tag!r})))
        return state

query = clicks.key_by("{key}").apply(Tagged(), {{"user": ps.String(), "tag": ps.String()}})
"""


class Case:
    """The same files and jobs, run in some way into a directory of its own."""

    def __init__(self, folder: Path, files: Files) -> None:
        self.state, self.out, self._files = folder / "state", folder / "out", files

    def begin(self, jobs: Program) -> None:
        if not jobs.catalogue.jobs:
            deployed(
                jobs, self._files.write(OTHERS.format(out=str(self.out)), f"{self.state.parent.name}.py")
            )
            jobs.execute(SQL.format(out=self.out))

    def coming(self, tag: str, key: str = "user") -> Path:
        return self._files.write(COMING.format(tag=tag, key=key), "coming.py")

    def run(
        self,
        said: Mapping[int, Callable[[Program], Any]],
        kill: tuple[str, int] | None = None,
        **options: Any,
    ) -> None:
        """Run until everything is read or the engine is killed; `said`: what happens before an epoch, once."""
        left = dict(said)
        with running(self.state, given=self._files.stream, **options) as (jobs, engine):
            self.begin(jobs)
            try:
                with kit.killed_at(*(kill or ("nowhere", -1))):
                    more = True
                    while more:
                        if act := left.pop(engine.next_epoch, None):
                            act(jobs)
                        more = engine.step() is not None
                    engine.runner.checkpoint()
            except kit.Killed:
                assert kill is not None
                kill = None
        assert kill is None, "it was to be killed"

    def content(self) -> dict[str, bytes]:
        return {
            str(file.relative_to(self.out)): file.read_bytes() for file in sorted(self.out.glob("*/*.jsonl"))
        }

    def lines(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for file in sorted(self.out.glob("*/*.jsonl")):
            found.setdefault(file.parent.name, []).extend(file.read_text().splitlines())
        return {name: sorted(lines) for name, lines in found.items()}

    def told(self, name: str) -> list[tuple[int, tuple[Any, ...]]]:
        with running(self.state, given=self._files.stream) as (jobs, _):
            return [
                (answer.epoch, row) for answer in jobs.since(name, 0) for row in sorted(answer.rows.rows())
            ]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("given"), EVENTS)


@pytest.fixture(scope="module")
def straight(files: Files, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """Nobody comes or goes."""
    case = Case(tmp_path_factory.mktemp("straight"), files)
    case.run({})
    assert {name.split("/")[0] for name in case.content()} == {"counts", "sessions", "best", "errors"}
    return case


@pytest.fixture(scope="module")
def changing(files: Files, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[int, tuple[Any, ...]]]:
    """What the job tells that comes and changes, and stays until the end."""
    case = Case(tmp_path_factory.mktemp("changing"), files)
    case.run({at: act for at, act in comings(case).items() if at < 9})
    return case.told("coming")


def comings(case: Case) -> dict[int, Callable[[Program], Any]]:
    """A job comes, changes its code with its state, then to a state of another shape, pauses, and goes."""
    return {
        2: lambda jobs: create(jobs, "coming", case.coming("one")),
        4: lambda jobs: alter(jobs, "coming", case.coming("two")),
        6: lambda jobs: alter(jobs, "coming", case.coming("three", "page"), rebuild=True),
        7: lambda jobs: jobs.execute("PAUSE JOB coming"),
        8: lambda jobs: jobs.execute("RESUME JOB coming"),
        9: lambda jobs: jobs.execute("DROP JOB coming"),
    }


def test_the_others_do_not_notice(straight: Case, files: Files, tmp_path: Path) -> None:
    case = Case(tmp_path, files)
    case.run(comings(case))
    assert case.content() == straight.content()


@pytest.mark.parametrize(("events", "slices"), [(7, 1), (53, 3)])
def test_other_epochs_give_the_others_the_same_rows(
    events: int, slices: int, straight: Case, files: Files, tmp_path: Path
) -> None:
    case = Case(tmp_path, files)
    acts = {epoch * 2 if events == 7 else epoch // 2: act for epoch, act in comings(case).items()}
    case.run(acts, epoch_units=events * EVENT_BYTES, slices=slices)
    assert case.lines() == straight.lines()


@pytest.mark.parametrize("step", ["recorded", "sliced", "gathered", "delivered", "committed"])
@pytest.mark.parametrize("epoch", [4, 6])
def test_a_kill_around_a_command_gives_the_same_bytes(
    step: str,
    epoch: int,
    straight: Case,
    changing: list[tuple[int, tuple[Any, ...]]],
    files: Files,
    tmp_path: Path,
) -> None:
    case = Case(tmp_path, files)
    acts = {at: act for at, act in comings(case).items() if at < 9}
    case.run(acts, (step, epoch), checkpoint_every=2)
    case.coming("never")  # what the file says now is not what the epochs ran
    case.run({at: act for at, act in acts.items() if at > epoch}, slices=3, checkpoint_every=2)
    assert case.content() == straight.content()
    assert case.told("coming") == changing
    assert {row[1] for _, row in changing} == {"one", "two", "three"}


def test_a_repeated_epoch_runs_the_code_it_ran_before(files: Files, tmp_path: Path) -> None:
    whole = Case(tmp_path / "whole", files)
    acts = {
        2: lambda jobs: create(jobs, "coming", whole.coming("old")),
        5: lambda jobs: alter(jobs, "coming", whole.coming("new")),
    }
    whole.run(acts)
    expected = whole.told("coming")
    assert {row[1] for _, row in expected} == {"old", "new"}
    for step in ("recorded", "sliced", "gathered", "delivered", "committed"):
        case = Case(tmp_path / step, files)
        case.run({2: acts[2]}, (step, 4), checkpoint_every=4)
        file = case.coming("new")
        # the new code is taken in before the epoch of the old one is repeated
        with running(case.state, given=files.stream, slices=1, checkpoint_every=4) as (jobs, engine):
            repeats = engine.next_epoch < 5
            alter(jobs, "coming", file)
            file.unlink()
            first = engine.step()
            assert first is not None
            list(engine.steps())
            engine.runner.checkpoint()
        assert repeats or step == "committed"
        told = [one for one in case.told("coming") if one[0] <= 4]
        assert told == [one for one in expected if one[0] <= 4], step
        assert {row[1] for epoch, row in case.told("coming") if epoch > 4} <= {"old", "new"}
        assert sorted(row[0] for _, row in case.told("coming")) == sorted(row[0] for _, row in expected)
