"""Three ways with Python jobs that are created, altered and dropped: the files of the other jobs stay the same to the
byte, and a repeated epoch runs the code that it ran before, also when the file has changed. On Spark an engine is
killed with SIGKILL, and state that an alteration keeps is compared with plain Python."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from itertools import accumulate
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.catalogue.program import Program
from penstock.engine.engine import Engine
from penstock.settings import Settings
from penstock.state.directory import StateDirectory
from penstock.testing.three_ways import call_until_killed
from tests.catalogue import kit
from tests.catalogue.python_kit import (
    EVENT_BYTES,
    Files,
    alter,
    create,
    deploy_file,
    files_of_sinks,
    rows_in_sinks,
    running,
)
from tests.transparency.comparison import sorted_rows

pytestmark = pytest.mark.slow

OTHERS = """
counts = clicks.key_by("page").window("5s").count()
sessions = clicks.key_by("user").session("2s").count()
app = ps.app("others", ps.output("counts", counts, ps.jsonl({out!r} + "/counts")),
             ps.output("sessions", sessions, ps.jsonl({out!r} + "/sessions")))
"""
SQL = """
CREATE JOB best AS SELECT user, SUM(bytes) AS b FROM clicks GROUP BY user ORDER BY b DESC LIMIT 3 WINDOWING 10 SECONDS
    INTO jsonl('{out}/best');
CREATE JOB errors AS SELECT user, page FROM clicks WHERE status >= 400 INTO jsonl('{out}/errors');
CREATE JOB big AS SELECT user, COUNT(*) AS n FROM clicks WHERE bytes > 500 GROUP BY user WINDOWING SESSION 2 SECONDS
    INTO jsonl('{out}/big')
"""
TAGGED = """
class Tagged(ps.CustomOperator):
    def init_state(self):
        return {{"n": 0}}

    def process(self, batch, state, out, context):
        state["n"] += batch.height
        out.emit(batch.select("_time", "user", tag=pl.lit({tag!r})))
        return state

query = clicks.key_by("{key}").apply(Tagged(), {{"user": ps.String(), "tag": ps.String()}})
"""
#: jobs in SQL that keep the state of their open windows when they are altered
WINDOWS = """
CREATE JOB tumbling AS SELECT page, COUNT(*) AS n, window_end FROM clicks WHERE status = 200 GROUP BY page
    WINDOWING 30 SECONDS INTO jsonl('{out}/tumbling');
CREATE JOB sliding AS SELECT page, COUNT(*) AS n, window_end FROM clicks WHERE status = 200 GROUP BY page
    WINDOWING 20 SECONDS EVERY 10 SECONDS INTO jsonl('{out}/sliding');
CREATE JOB spaced AS SELECT page, COUNT(*) AS n, window_end FROM clicks WHERE status = 200 GROUP BY page
    WINDOWING 20 SECONDS EVERY 25 SECONDS INTO jsonl('{out}/spaced')
"""
ALTER_WINDOWS = "; ".join(
    f"ALTER JOB {job} SET WHERE status >= 400" for job in ("tumbling", "sliding", "spaced")
)
#: a Python job that does the same
WEIGHED = """
def add(values):
    return {weight} * len(values)

weighed = ps.aggregate_function("weighed", add=add, merge=lambda a, b: a + b, result=lambda n: n, dtype=ps.Int64)
query = ps.output("weighed", clicks.key_by("user").window("30s").aggregate(weighed("status", "n")),
                  ps.jsonl({out!r} + "/weighed"))
"""
GONE = """
query = ps.output("gone", clicks.key_by("status").window("5s").count(), ps.jsonl({out!r} + "/gone"))
"""
CHANGED = ("tumbling", "sliding", "spaced", "weighed", "gone")


class Case:
    """The same stream and jobs, run in some way into a directory of its own."""

    def __init__(self, folder: Path, files: Files) -> None:
        self.state, self.out, self._files = folder / "state", folder / "out", files

    def create_others(self, jobs: Program) -> None:
        if not jobs.catalogue.jobs:
            file = self._files.write(OTHERS.format(out=str(self.out)), f"{self.state.parent.name}.py")
            deploy_file(jobs, file)
            jobs.execute(SQL.format(out=self.out))

    def write_job(self, tag: str, key: str = "user") -> Path:
        """Write the file of the job `tagged`."""
        return self._files.write(TAGGED.format(tag=tag, key=key), "tagged.py")

    def run(
        self,
        actions: Mapping[int, kit.Action],
        kill: tuple[str, int] = kit.NEVER,
        **options: Any,
    ) -> None:
        """Run until everything is read, or until the kill; each action is executed before its epoch."""
        with running(self.state, stream=self._files.stream, **options) as (jobs, engine):
            self.create_others(jobs)
            assert kit.run_epochs((jobs, engine), dict(actions), kill) == (kill != kit.NEVER)

    def run_on_spark(
        self,
        actions: Mapping[int, kit.Action],
        spark: SparkSession | None = None,
        *,
        events: int = 20,
        slices: int = 2,
    ) -> None:
        """The same on Spark, in a session that is given or started."""
        jobs = Program("test", self.state, streams={"clicks": self._files.stream})
        settings = Settings(
            state=self.state,
            master="local[2]",
            most_epoch_units=events * EVENT_BYTES,
            epoch_seconds=60.0,  # nothing that takes long cuts an epoch otherwise
            epoch_interval_seconds=0.0,
            slices=slices,
            drain=True,
            warm_up=False,
            checkpoint_every=2,
            small_epoch_bytes=0,
            job_seconds=0.0,
            job_share=0.0,
        )

        def execute_before(epoch: int) -> None:
            action = actions.get(epoch)
            if isinstance(action, str):
                jobs.execute(action)
            elif action is not None:
                action(jobs)

        def start(phase: str) -> None:
            if phase == "running":
                self.create_others(jobs)
                execute_before(0)

        engine = Engine(jobs, settings, spark)
        engine.run(lambda report: execute_before(report.epoch + 1), on_phase=start)

    def write_weighed(self, weight: int) -> Path:
        """Write the file of the job `weighed`."""
        return self._files.write(WEIGHED.format(weight=weight, out=str(self.out)), "weighed.py")

    def write_gone(self) -> Path:
        """Write the file of the job `gone`."""
        return self._files.write(GONE.format(out=str(self.out)), "gone.py")

    def events(self) -> list[kit.Event]:
        """All events, each with the number of the epoch that read it."""
        records = StateDirectory(self.state).records
        ends = [
            sum(end.at["clicks"].values())
            for epoch in range(records.newest_epoch() + 1)
            if (end := records.read_end(epoch))
        ]
        lines = Path(self._files.glob).read_bytes().splitlines(keepends=True)
        positions = accumulate(map(len, lines))
        return [
            json.loads(line) | {"epoch": bisect_left(ends, position)}
            for line, position in zip(lines, positions, strict=True)
        ]

    def content(self, *without: str) -> dict[str, bytes]:
        return files_of_sinks(self.out, *without)

    def rows(self, name: str) -> list[tuple[int, tuple[Any, ...]]]:
        """The rows that a job emitted, with their epochs."""
        with running(self.state, stream=self._files.stream) as (jobs, _):
            return sorted(kit.retained_rows(jobs, name))


@pytest.fixture(scope="module")
def undisturbed(files: Files, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """The other jobs alone."""
    case = Case(tmp_path_factory.mktemp("undisturbed"), files)
    case.run({})
    assert {name.split("/")[0] for name in case.content()} == {"counts", "sessions", "best", "errors", "big"}
    return case


@pytest.fixture(scope="module")
def tagged_rows(files: Files, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[int, tuple[Any, ...]]]:
    """The rows of the job that is created and altered, where it stays until the end and no engine is killed."""
    case = Case(tmp_path_factory.mktemp("altered"), files)
    case.run({epoch: action for epoch, action in job_changes(case).items() if epoch < 9})
    return case.rows("tagged")


def job_changes(case: Case) -> dict[int, kit.Action]:
    """Create a job, alter its code with its state kept, then to a state of another shape, pause, resume and drop it."""
    return {
        2: lambda jobs: create(jobs, "tagged", case.write_job("one")),
        4: lambda jobs: alter(jobs, "tagged", case.write_job("two")),
        6: lambda jobs: alter(jobs, "tagged", case.write_job("three", "page"), rebuild=True),
        7: "PAUSE JOB tagged",
        8: "RESUME JOB tagged",
        9: "DROP JOB tagged",
    }


def changes_on_spark(case: Case) -> dict[int, kit.Action]:
    """The same but for the drop, and jobs in between: some keep their state while windows are open, one is dropped."""

    def alter_open_windows(jobs: Program) -> None:
        replies = [*jobs.execute(ALTER_WINDOWS), alter(jobs, "weighed", case.write_weighed(1000))]
        assert {reply.state for reply in replies} == {"kept"}

    return job_changes(case) | {
        0: WINDOWS.format(out=case.out),
        1: lambda jobs: create(jobs, "weighed", case.write_weighed(1)),
        3: lambda jobs: create(jobs, "gone", case.write_gone()),
        5: alter_open_windows,
        7: "PAUSE JOB tagged; DROP JOB gone",
        9: "SHOW JOBS",
    }


def check_altered_jobs(case: Case) -> None:
    """Compare the rows of the jobs of `changes_on_spark` with what each event counts by their code at its epoch."""
    events = case.events()

    def is_counted(event: kit.Event) -> bool:
        return bool(event["status"] == 200 if event["epoch"] < 5 else event["status"] >= 400)

    def weight(event: kit.Event) -> int:
        return 0 if event["epoch"] < 1 else 1 if event["epoch"] < 5 else 1000

    for job, key, size, every, count in (
        ("tumbling", "page", 30, 30, is_counted),
        ("sliding", "page", 20, 10, is_counted),
        ("spaced", "page", 20, 25, is_counted),
        ("weighed", "user", 30, 30, weight),
    ):
        windows = kit.windows(
            events, size, itemgetter(key), lambda event, count=count: count(event) > 0, every
        )
        expected = [
            {
                key: name,
                "n": sum(map(count, inside)),
                "window_end": datetime.fromtimestamp(start + size, UTC),
            }
            for (start, name), inside in windows.items()
        ]
        assert any(inside[0]["epoch"] < 5 <= inside[-1]["epoch"] for inside in windows.values())
        rows = [json.loads(line) for line in rows_in_sinks(case.out)[job]]
        assert sorted_rows({name: row[name] for name in expected[0]} for row in rows) == sorted_rows(expected)
    epochs = {int(file.stem.removeprefix("epoch-")) for file in (case.out / "gone").glob("*.jsonl")}
    assert epochs
    assert epochs <= {3, 4, 5, 6}


def test_the_other_jobs_write_the_same_files(undisturbed: Case, files: Files, tmp_path: Path) -> None:
    case = Case(tmp_path, files)
    case.run(job_changes(case))
    assert case.content() == undisturbed.content()


@pytest.mark.parametrize(("events", "slices"), [(7, 1), (53, 3)])
def test_the_other_jobs_emit_the_same_rows_with_other_epochs_and_slices(
    events: int, slices: int, undisturbed: Case, files: Files, tmp_path: Path
) -> None:
    case = Case(tmp_path, files)
    actions = {
        epoch * 2 if events == 7 else epoch // 2: action for epoch, action in job_changes(case).items()
    }
    case.run(actions, epoch_units=events * EVENT_BYTES, slices=slices)
    assert rows_in_sinks(case.out) == rows_in_sinks(undisturbed.out)


@pytest.mark.parametrize("step", ["recorded", "sliced", "gathered", "emitted", "committed"])
@pytest.mark.parametrize("epoch", [4, 6])
def test_a_kill_around_a_command_gives_the_same_bytes(
    step: str,
    epoch: int,
    undisturbed: Case,
    tagged_rows: list[tuple[int, tuple[Any, ...]]],
    files: Files,
    tmp_path: Path,
) -> None:
    case = Case(tmp_path, files)
    actions = {at: action for at, action in job_changes(case).items() if at < 9}
    case.run(actions, (step, epoch), checkpoint_every=2)
    case.write_job("never")  # the file no longer holds the code that the epochs ran
    case.run({at: action for at, action in actions.items() if at > epoch}, slices=3, checkpoint_every=2)
    assert case.content() == undisturbed.content()
    assert case.rows("tagged") == tagged_rows
    assert {row[1] for _, row in tagged_rows} == {"one", "two", "three"}


def test_a_repeated_epoch_runs_the_code_it_ran_before(files: Files, tmp_path: Path) -> None:
    whole = Case(tmp_path / "whole", files)
    actions = {
        2: lambda jobs: create(jobs, "tagged", whole.write_job("old")),
        5: lambda jobs: alter(jobs, "tagged", whole.write_job("new")),
    }
    whole.run(actions)
    expected = whole.rows("tagged")
    assert {row[1] for _, row in expected} == {"old", "new"}
    for step in ("recorded", "sliced", "gathered", "emitted", "committed"):
        case = Case(tmp_path / step, files)
        case.run({2: actions[2]}, (step, 4), checkpoint_every=4)
        file = case.write_job("new")
        # the new code is accepted before the epoch with the old code is repeated
        with running(case.state, stream=files.stream, slices=1, checkpoint_every=4) as (jobs, engine):
            repeats = engine.next_epoch < 5
            alter(jobs, "tagged", file)
            file.unlink()
            first = engine.step()
            assert first is not None
            list(engine.steps())
            engine.runner.checkpoint()
        assert repeats or step == "committed"
        rows = [one for one in case.rows("tagged") if one[0] <= 4]
        assert rows == [one for one in expected if one[0] <= 4], step
        assert {row[1] for epoch, row in case.rows("tagged") if epoch > 4} <= {"old", "new"}
        assert sorted(row[0] for _, row in case.rows("tagged")) == sorted(row[0] for _, row in expected)


@pytest.mark.spark
@pytest.mark.kill
@pytest.mark.timeout(400)
def test_an_engine_that_is_killed_on_spark_writes_the_same_files(
    undisturbed: Case,
    tagged_rows: list[tuple[int, tuple[Any, ...]]],
    files: Files,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    """It is killed in the epoch in which windows are altered; the files of the jobs hold other code afterwards."""
    case = Case(tmp_path, files)
    changes = changes_on_spark(case)
    assert call_until_killed(
        partial(case.run_on_spark, {at: change for at, change in changes.items() if at <= 5}),
        tmp_path,
        "sliced",
        5,
    )
    case.write_job("never")
    case.write_weighed(0)
    case.run_on_spark({at: change for at, change in changes.items() if at > 5}, spark, slices=3)
    assert case.content(*CHANGED) == undisturbed.content()
    assert case.rows("tagged") == tagged_rows
    check_altered_jobs(case)


@pytest.mark.spark
def test_other_epochs_on_spark_change_no_row(
    undisturbed: Case, files: Files, spark: SparkSession, tmp_path: Path
) -> None:
    case = Case(tmp_path, files)
    case.run_on_spark(changes_on_spark(case), spark, events=31, slices=3)
    rows = rows_in_sinks(case.out)
    assert {name: lines for name, lines in rows.items() if name not in CHANGED} == rows_in_sinks(
        undisturbed.out
    )
    check_altered_jobs(case)
