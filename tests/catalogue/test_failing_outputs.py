"""An output of an app whose code raises fails alone: the others get the rows that they get without it."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cloudpickle
import polars as pl
import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.catalogue.app_plan import AppPlan
from penstock.catalogue.program import Program
from penstock.engine.engine import Engine
from penstock.epoch.kill_points import STEPS
from penstock.errors import ExternalError, PenstockError, UserError
from penstock.query.stream import Stream
from penstock.settings import INLINE, Settings
from penstock.testing.inline import InlineEngine
from tests.catalogue import kit
from tests.catalogue.app_kit import EVENTS, SQL
from tests.catalogue.python_kit import EVENT_BYTES, Files, files_of_sinks

cloudpickle.register_pickle_by_value(sys.modules[__name__])
#: the outputs that share no code with those that fail
STEADY = {"counts", "errors", "sessions"}


@dataclass
class Poison:
    """A function of a user's that raises for one user, unless its file says that it is fixed."""

    switch: Path
    act: str = "raise"

    def __call__(self, rows: pl.DataFrame) -> pl.DataFrame:
        if (rows["user"] == "u5").any() and not self.switch.exists():
            if self.act == "wait":
                time.sleep(30)
            if self.act == "die":
                os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does where memory runs out
            raise ValueError("u5 is not welcome")
        return rows


@dataclass
class Fragile:
    """A user's own operator that raises for one user."""

    switch: Path

    def __call__(self, count: int, row: dict[str, Any], emit: Callable[[dict[str, Any]], None]) -> int:
        if row["user"] == "u5" and not self.switch.exists():
            raise ValueError("u5 is not welcome")
        emit({"user": row["user"], "n": count + 1})
        return count + 1


@dataclass
class Case:
    """An app of steady outputs and of some that may fail, on a directory of its own."""

    folder: Path
    files: Files
    #: the outputs that fail, by name, made of the clicks and of the switch that fixes their code
    bad: dict[str, Callable[[Stream, Path], Stream]] = field(default_factory=dict)
    steady: set[str] = field(default_factory=lambda: set(STEADY))

    @property
    def switch(self) -> Path:
        return self.folder / "fixed"

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def app(self) -> ps.App:
        clicks = self.files.stream
        rows: dict[str, Stream] = {
            "counts": clicks.key_by("page").window("5s").count(),
            "errors": clicks.filter(ps.col("status") >= 400).select("user", "page"),
            "sessions": clicks.key_by("user").session("2s").count(),
        }
        rows = {name: made for name, made in rows.items() if name in self.steady}
        rows |= {name: make(clicks, self.switch) for name, make in self.bad.items()}
        return ps.app(
            "shop", *(ps.output(name, one, ps.jsonl(self.out / name)) for name, one in rows.items())
        )

    def start(self, **options: Any) -> tuple[Program, InlineEngine]:
        self.folder.mkdir(exist_ok=True)
        options.setdefault("epoch_units", 20 * EVENT_BYTES)
        program = Program("shop", self.state, app=AppPlan.of(self.app()))
        return program, InlineEngine(program, self.state, **options)

    def run(
        self, actions: dict[int, kit.Action] | None = None, kill: tuple[str, int] = kit.NEVER, **options: Any
    ) -> None:
        """Run until everything is read, or until the kill."""
        program, engine = self.start(**options)
        try:
            assert kit.run_epochs((program, engine), actions or {}, kill) == (kill != kit.NEVER)
        finally:
            engine.close()

    def lives(self) -> dict[str, str]:
        program, engine = self.start()
        engine.close()
        return {name: entry.master.life for name, entry in program.catalogue.jobs.items()}

    def steady_content(self) -> dict[str, bytes]:
        return files_of_sinks(self.out, *self.bad)

    def content(self) -> dict[str, bytes]:
        return files_of_sinks(self.out)


def function_step(clicks: Stream, switch: Path) -> Stream:
    return clicks.map_batches(Poison(switch)).select("user", "page")


def after_a_window(clicks: Stream, switch: Path) -> Stream:
    return clicks.key_by("user").window("5s").count().map_batches(Poison(switch))


def before_a_window(clicks: Stream, switch: Path) -> Stream:
    return clicks.map_batches(Poison(switch)).key_by("user").window("5s").count()


def own_operator(clicks: Stream, switch: Path) -> Stream:
    return clicks.key_by("user").apply_rows(Fragile(switch), {"user": ps.String(), "n": ps.Int64()}, 0)


def after_a_shared_stage(clicks: Stream, switch: Path) -> Stream:
    """The stage is that of `sessions`, the function is its own."""
    return clicks.key_by("user").session("2s").count().map_batches(Poison(switch))


def after_a_ranking(clicks: Stream, switch: Path) -> Stream:
    top = clicks.key_by("user").window("5s").count().top(9, by="count")
    return top.map_batches(Poison(switch))


PLACES: dict[str, Callable[[Stream, Path], Stream]] = {
    "function": function_step,
    "after-a-window": after_a_window,
    "before-a-window": before_a_window,
    "own-operator": own_operator,
    "after-a-shared-stage": after_a_shared_stage,
    "after-a-ranking": after_a_ranking,
}


@pytest.fixture(scope="module")
def alone(files: Files, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What the steady outputs emit if there are no others."""
    case = Case(tmp_path_factory.mktemp("alone"), files)
    case.run()
    assert {name.split("/")[0] for name in case.content()} == STEADY
    return case.content()


def failing_epoch(case: Case) -> int:
    """The epoch in which the output `bad` fails, of a run to its end."""
    program, engine = case.start()
    try:
        while True:
            report = engine.step()
            assert report is not None
            if kit.life(program, "bad") == "failed":
                list(engine.steps())
                engine.runner.checkpoint()
                return report.epoch
    finally:
        engine.close()


@pytest.mark.parametrize("place", PLACES)
def test_an_output_that_raises_fails_and_the_others_continue(
    place: str, alone: dict[str, bytes], files: Files, tmp_path: Path
) -> None:
    case = Case(tmp_path, files, {"bad": PLACES[place]})
    failing_epoch(case)
    assert case.steady_content() == alone
    program, engine = case.start()
    assert kit.life(program, "bad") == "failed", "also after a restart"
    error = str(program.catalogue.jobs["bad"].master.error)
    assert "u5 is not welcome" in error
    assert "RESUME JOB bad" in error
    assert {kit.life(program, name) for name in STEADY} == {"running"}
    engine.close()


@pytest.mark.parametrize("place", ["function", "own-operator", "after-a-ranking"])
@pytest.mark.parametrize("slices", [1, 5])
def test_it_does_not_depend_on_the_parallelism(
    place: str, slices: int, alone: dict[str, bytes], files: Files, tmp_path: Path
) -> None:
    case, other = (
        Case(tmp_path / "a", files, {"bad": PLACES[place]}),
        Case(tmp_path / "b", files, {"bad": PLACES[place]}),
    )
    case.run(slices=2)
    other.run(slices=slices)
    assert other.content() == case.content()
    assert other.steady_content() == alone


@pytest.mark.slow
@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize(
    "step", [step for step in STEPS if step != "delivered"]
)  # another thread reaches that
def test_a_kill_in_the_epoch_of_the_failure_changes_nothing(
    step: str, every: int, alone: dict[str, bytes], files: Files, tmp_path: Path
) -> None:
    straight, case = (
        Case(tmp_path / "a", files, {"bad": after_a_window}),
        Case(tmp_path / "b", files, {"bad": after_a_window}),
    )
    epoch = failing_epoch(straight)
    case.run(kill=(step, epoch), checkpoint_every=every)
    case.run(slices=random.Random(step).randrange(1, 5), checkpoint_every=every)
    assert case.steady_content() == alone
    assert case.content() == straight.content()
    assert case.lives()["bad"] == "failed"


def test_a_repetition_leaves_the_output_out_although_its_code_is_fixed(files: Files, tmp_path: Path) -> None:
    straight, case = (
        Case(tmp_path / "a", files, {"bad": function_step}),
        Case(tmp_path / "b", files, {"bad": function_step}),
    )
    epoch = failing_epoch(straight)
    case.run(kill=("gathered", epoch))
    case.switch.touch()
    # the app has got another output meanwhile, before the one that failed: their numbers are others
    case.bad = {"new": lambda clicks, _: clicks.select("page"), **case.bad}
    program, engine = case.start(drop_state=True)
    report = engine.step()
    assert report is not None
    assert report.epoch == epoch
    assert "bad" not in report.rows
    assert kit.life(program, "bad") == "failed"
    assert kit.life(program, "new") == "running"
    engine.close()


def test_an_output_resumes_with_its_state(files: Files, tmp_path: Path) -> None:
    """The events before the epoch in which it failed count, those until it is resumed do not."""

    def totals(clicks: Stream, switch: Path) -> Stream:
        return clicks.map_batches(Poison(switch)).key_by("page").window("1h").count()

    late = [{**event, "user": "u1"} if number < 60 else event for number, event in enumerate(EVENTS)]
    files = Files(tmp_path / "given", late)
    case = Case(tmp_path / "case", files, {"bad": totals})
    program, engine = case.start()
    reports = [engine.step()]
    while kit.life(program, "bad") == "running":
        reports.append(engine.step())
    failed = len(reports) - 1
    reports.append(engine.step())
    case.switch.touch()
    (reply,) = program.execute("RESUME JOB bad")
    assert reply.state == "kept"
    reports += list(engine.steps())
    engine.close()
    ends, read = [], 0
    for report in reports:
        assert report is not None
        read += report.events
        ends.append(read)
    counted = late[: ends[failed - 1]] + late[ends[failed + 1] :]
    expected: dict[str, int] = {}
    for event in counted:
        expected[event["page"]] = expected.get(event["page"], 0) + 1
    lines = [
        line for file in sorted((case.out / "bad").glob("*.jsonl")) for line in file.read_text().splitlines()
    ]
    assert {row["page"]: row["count"] for row in map(json.loads, lines)} == expected
    assert failed >= 1


def test_an_output_that_fails_by_time_alone_starts_empty_once_it_is_resumed(
    alone: dict[str, bytes], files: Files, tmp_path: Path
) -> None:
    """It fails as its inner windows close, with events or without."""

    def nested(clicks: Stream, switch: Path) -> Stream:
        users = clicks.key_by("user").window("5s").count()
        return users.map_batches(Poison(switch)).key_by("user").window("20s").count("n")

    case = Case(tmp_path, files, {"bad": nested})
    program, engine = case.start()
    while kit.life(program, "bad") == "running":
        assert engine.step() is not None
    assert program.catalogue.jobs["bad"].lost
    engine.close()
    case.switch.touch()
    program, engine = case.start()
    (reply,) = program.execute("RESUME JOB bad")
    assert reply.state == "anew"
    list(engine.steps())
    assert kit.life(program, "bad") == "running"
    engine.close()
    assert case.steady_content() == alone
    assert list((case.out / "bad").glob("*.jsonl"))


def test_an_error_of_a_shared_stage_fails_the_outputs_that_share_it(
    alone: dict[str, bytes], files: Files, tmp_path: Path
) -> None:
    def filtered(clicks: Stream, switch: Path) -> Stream:
        return own_operator(clicks, switch).filter(ps.col("n") > 1)

    case = Case(tmp_path, files, {"bad": own_operator, "worse": filtered})
    case.run()
    lives = case.lives()
    assert (lives.pop("bad"), lives.pop("worse")) == ("failed", "failed")
    assert set(lives.values()) == {"running"}
    assert case.steady_content() == alone


@pytest.mark.parametrize("shared", [False, True], ids=["one-output", "all-outputs"])
def test_the_error_of_what_runs_last_ends_the_engine_and_the_next_start_tries_again(
    shared: bool, files: Files, tmp_path: Path
) -> None:
    case = Case(tmp_path, files, {"bad": own_operator}, set())
    if shared:
        case.bad["worse"] = lambda clicks, switch: own_operator(clicks, switch).filter(ps.col("n") > 1)
    for _ in range(2):
        _, engine = case.start()
        with pytest.raises(UserError, match="u5 is not welcome") as ended:
            list(engine.steps())
        assert "start again with the same state directory" in str(ended.value.hint)
        engine.close()
        assert set(case.lives().values()) == {"running"}
    case.switch.touch()
    case.run()
    whole = Case(tmp_path / "whole", files, case.bad, set())
    whole.folder.mkdir()
    whole.switch.touch()
    whole.run()
    assert case.content() == whole.content()


def test_outputs_that_fail_at_once_and_are_all_end_the_engine(files: Files, tmp_path: Path) -> None:
    case = Case(tmp_path, files, {"bad": function_step, "worse": after_a_window}, set())
    case.files = Files(tmp_path / "given", [{**event, "user": "u5"} for event in EVENTS[:20]])
    _, engine = case.start(epoch_units=1 << 30)
    with pytest.raises(UserError, match="u5 is not welcome"):
        list(engine.steps())
    engine.close()
    assert set(case.lives().values()) == {"running"}


def test_an_output_fails_alone_beside_a_job(files: Files, tmp_path: Path) -> None:
    case = Case(tmp_path, files, {"bad": function_step}, set())
    program, engine = case.start()
    program.execute(SQL.format("by_sql"))
    list(engine.steps())
    assert (kit.life(program, "bad"), kit.life(program, "by_sql")) == ("failed", "running")
    assert program.ask("by_sql") is not None
    engine.close()


@pytest.mark.slow
def test_an_output_that_takes_too_long_or_emits_too_much_fails(
    alone: dict[str, bytes], files: Files, tmp_path: Path
) -> None:
    slow = Case(tmp_path / "slow", files, {"bad": lambda clicks, to: clicks.map_batches(Poison(to, "wait"))})
    slow.run(job_seconds=0.3)
    large = Case(tmp_path / "large", files, {"bad": lambda clicks, _: clicks.filter(ps.col("status") > 0)})
    large.run(job_result_bytes=600)
    assert large.steady_content() == alone
    for case, condition in ((slow, "JOB_TOO_SLOW"), (large, "JOB_RESULT_TOO_LARGE")):
        program, engine = case.start()
        assert condition in str(program.catalogue.jobs["bad"].master.error)
        engine.close()


def test_what_is_away_fails_no_output(files: Files, tmp_path: Path) -> None:
    """An error that is not of the output's code is everybody's, as before."""

    def away(rows: pl.DataFrame) -> pl.DataFrame:
        raise ExternalError("STATE_AWAY", "the disk is away", is_transient=True)

    case = Case(tmp_path, files, {"bad": lambda clicks, _: clicks.map_batches(away).select("user")})
    _, engine = case.start()
    with pytest.raises(ExternalError, match="STATE_AWAY"):
        list(engine.steps())
    engine.close()
    assert set(case.lives().values()) == {"running"}


def test_a_run_that_reads_all_ends_with_the_error_and_so_does_the_next(
    alone: dict[str, bytes], files: Files, tmp_path: Path
) -> None:
    case = Case(tmp_path, files, {"bad": function_step})

    def run() -> None:
        Engine(case.app(), Settings(state=case.state, master=INLINE, drain=True)).run()

    with pytest.raises(UserError, match="u5 is not welcome"):
        run()
    with pytest.raises(PenstockError, match="OUTPUT_FAILED"):
        run()
    program, engine = case.start()
    program.execute("RESUME JOB bad")
    list(engine.steps())
    engine.close()
    run()


@pytest.mark.spark
@pytest.mark.parametrize(
    ("act", "condition"), [("raise", "USER_FUNCTION_FAILED"), ("die", "JOB_ENDED_WORKER")]
)
def test_an_output_fails_alone_on_spark(
    act: str, condition: str, spark: SparkSession, alone: dict[str, bytes], files: Files, tmp_path: Path
) -> None:
    case = Case(tmp_path, files, {"bad": lambda clicks, switch: clicks.map_batches(Poison(switch, act))})
    settings = Settings(
        master="local[2]",
        state=case.state,
        drain=True,
        cache_root=tmp_path / "cache",
        most_epoch_units=20 * EVENT_BYTES,
        slices=2,
        small_epoch_bytes=0,
        warm_up=False,
    )
    with pytest.raises(UserError, match=condition):
        Engine(case.app(), settings, spark).run()
    lives = case.lives()
    assert lives.pop("bad") == "failed"
    assert set(lives.values()) == {"running"}
    assert sorted_lines(case.steady_content()) == sorted_lines(alone)


def sorted_lines(content: dict[str, bytes]) -> dict[str, list[bytes]]:
    """The lines of each output."""
    lines: dict[str, list[bytes]] = {}
    for name, data in content.items():
        lines.setdefault(name.split("/")[0], []).extend(data.splitlines())
    return {name: sorted(ones) for name, ones in lines.items()}


def test_a_follower_leaves_out_what_the_leader_recorded(files: Files, tmp_path: Path) -> None:
    case = Case(tmp_path, files, {"bad": function_step})
    program, engine = case.start()
    while kit.life(program, "bad") == "running":
        assert engine.step() is not None
    epoch = engine.next_epoch - 1
    before = program.commands - 1
    follower = Program("shop", case.state, app=AppPlan.of(case.app()))
    follower.start(follows=True)
    number = follower.catalogue.jobs["bad"].number
    assert follower.epochs.isolates_failures(before)
    assert follower.epochs.failures(epoch, before) == {number: False}
    assert "bad" not in follower.epochs.plan(before, {number: False}).outputs
    error = UserError("X", "fails here alone")
    for _ in range(2):
        follower.epochs.record_failures(epoch + 1, before, {follower.catalogue.jobs["counts"].number: error})
    with pytest.raises(ExternalError, match="FOLLOWS_OTHERWISE"):
        follower.epochs.record_failures(epoch + 1, before, {follower.catalogue.jobs["counts"].number: error})
    engine.close()


def test_the_only_output_of_an_app_does_not_have_a_follower_wait(files: Files, tmp_path: Path) -> None:
    program, engine = Case(tmp_path, files, {"bad": function_step}, set()).start()
    assert not program.epochs.isolates_failures(program.commands)
    engine.close()
