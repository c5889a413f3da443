"""Python jobs whose code is altered while the engine runs: what becomes of their state, worked out event by event."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from penstock.catalogue.code_requests import alter_from, create_from
from penstock.catalogue.program import Program
from penstock.testing.inline import InlineEngine
from tests.catalogue import kit
from tests.catalogue.kit import life
from tests.catalogue.python_kit import WINDOWS, Files, alter, create, own_file, running

EVENTS = kit.events(200)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path / "given", EVENTS)


COUNTING = """
class Counting(ps.CustomOperator):
    commutative = False

    def init_state(self):
        return {{}}

    def process(self, batch, state, out, context):
        rows = []
        for row in batch.iter_rows(named=True):
            state[row["user"]] = state.get(row["user"], 0) + {step}
            rows.append({{"_time": row["_time"], "user": row["user"], "n": state[row["user"]]}})
        out.emit(rows)
        return state

query = clicks.key_by("user").apply(Counting(), {{"user": ps.String(), "n": ps.Int64()}})
"""


def in_order(events: list[kit.Event]) -> list[kit.Event]:
    """Events in strict order: by event time, and at one instant as in the file."""
    return sorted(events, key=lambda event: datetime.fromisoformat(event["ts"]))


def test_altered_code_of_an_operator_continues_with_the_state(files: Files, tmp_path: Path) -> None:
    stay = "CREATE JOB stay AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page WINDOWING 5 SECONDS"
    alone = kit.run_all(tmp_path / "alone", files.stream, stay, epoch_units=1800)
    with running(tmp_path / "s", stay, stream=files.stream) as (jobs, engine):
        create(jobs, "counted", files.write(COUNTING.format(step=1)))
        reports = [report for report in (engine.step(), engine.step(), engine.step()) if report]
        before = kit.emitted_rows(reports).get("counted", [])
        reply = alter(jobs, "counted", files.write(COUNTING.format(step=1000)))
        assert (reply.state, reply.message) == ("kept", "altered job counted; its state is kept")
        rest = list(engine.steps())
        emitted = kit.emitted_rows([*reports, *rest])
    sums: dict[str, int] = {}
    expected = []
    for number, event in enumerate(in_order(EVENTS)):
        sums[event["user"]] = sums.get(event["user"], 0) + (1 if number < len(before) else 1000)
        expected.append((event["user"], sums[event["user"]]))
    assert sorted(emitted["counted"]) == sorted(expected)
    assert 0 < len(before) < len(expected)
    assert emitted["stay"] == alone["stay"], "the rows of the other job are the same"


@pytest.mark.parametrize("rebuild", [False, True])
def test_a_state_of_another_shape_starts_empty_or_is_rebuilt(
    rebuild: bool, files: Files, tmp_path: Path
) -> None:
    with running(tmp_path / "s") as (jobs, engine):
        create(jobs, "counts", files.write(WINDOWS))
        for _ in range(3):
            engine.step()
        other = WINDOWS.replace('"page"', '"user"')
        reply = alter(jobs, "counts", files.write(other), rebuild=rebuild)
        assert reply.state == ("rebuilt" if rebuild else "anew")
        assert jobs.questions.versions("counts")[-1][1].state == reply.state
        emitted = kit.emitted_rows(list(engine.steps()))["counts"]
        counts = kit.windows(EVENTS, 10, lambda event: event["user"])
        number = list(jobs.questions.compiled("counts").schema).index("count")
        total = sum(row[number] for row in emitted)
        assert total == len(EVENTS) if rebuild else 0 < total < len(EVENTS)
        if rebuild:
            assert len(emitted) == len(counts)


def test_a_job_whose_function_raises_is_paused_alone_and_resumes_with_other_code(
    files: Files, tmp_path: Path
) -> None:
    bad = """
def sometimes(rows):
    if (rows["status"] == 500).any():
        raise ValueError("five hundred")
    return rows

query = clicks.map_batches(sometimes).select("status")
"""
    stay = "CREATE JOB stay AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page WINDOWING 5 SECONDS"
    alone = kit.run_all(tmp_path / "alone", files.stream, stay, epoch_units=1800)
    with running(tmp_path / "s", stay, stream=files.stream) as (jobs, engine):
        create(jobs, "mine", files.write(bad))
        reports = []
        while life(jobs, "mine") == "running":
            report = engine.step()
            assert report is not None
            reports.append(report)
        error = jobs.execute("SHOW JOBS")[0].rows[1]["error"]
        assert "five hundred" in error
        assert "app.py" in error
        alter(jobs, "mine", files.write(bad.replace("raise ValueError", "print")))
        assert life(jobs, "mine") == "running"
        reports += list(engine.steps())
    emitted = kit.emitted_rows(reports)
    assert emitted["stay"] == alone["stay"]
    assert emitted["mine"][-1] == (EVENTS[-1]["status"],)


def test_a_restart_continues_with_the_stored_code(files: Files, tmp_path: Path) -> None:
    file = files.write(COUNTING.format(step=1))
    with running(tmp_path / "s") as (jobs, engine):
        create(jobs, "counted", file)
        first = kit.emitted_rows([r for r in (engine.step(), engine.step()) if r]).get("counted", [])
    file.unlink()
    with running(tmp_path / "s") as (jobs, engine):
        rest = kit.emitted_rows(list(engine.steps()))["counted"]
    sums: dict[str, int] = {}
    expected = []
    for event in in_order(EVENTS):
        sums[event["user"]] = sums.get(event["user"], 0) + 1
        expected.append((event["user"], sums[event["user"]]))
    assert sorted(first + rest) == sorted(expected)
    assert first


FUNCTIONS = {
    "rows": """
def count(last, row, emit):
    emit({{"n": (last or 0) + {step}}})
    return (last or 0) + {step}

query = clicks.key_by("user").apply_rows(count, {{"n": ps.Int64}}, forget_after="1d")
""",
    "aggregate": """
add = lambda values: {step} * len(values)
made = ps.aggregate_function("made", add=add, merge=lambda a, b: a + b, result=lambda n: n, dtype=ps.Int64)
query = clicks.window("1h").aggregate(made("status", "n"))
""",
}


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_altered_user_functions_continue_with_the_state(kind: str, files: Files, tmp_path: Path) -> None:
    with running(tmp_path / "s") as (jobs, engine):
        create(jobs, "counted", files.write(FUNCTIONS[kind].format(step=1)))
        for _ in range(3):
            engine.step()
        assert alter(jobs, "counted", files.write(FUNCTIONS[kind].format(step=1000))).state == "kept"
        rows = kit.emitted_rows(list(engine.steps()))["counted"]
    column = [row[-1] for row in rows]
    mixed = [n for n in column if n % 1000 and n > 1000]
    assert mixed, "ones and thousands in one state"
    if kind == "aggregate":
        (whole,) = column
        assert whole // 1000 + whole % 1000 == len(EVENTS)


VERSIONED = """
import polars as pl
import penstock as ps
lines = ps.json_lines({{"ts": pl.Datetime("us", "UTC"), "user": pl.String()}})
events = ps.stream("events", ps.files("{log}"), lines, time="ts")


class Counts(ps.CustomOperator):
    state_version = 1
    reads_versions = frozenset()

    def init_state(self):
        return {{}}

    def process(self, batch, state, out, context):
        for at, user in batch.select("_time", "user").iter_rows():
            state[user] = state.get(user, 0) + 1
            out.emit([{{"_time": at, "user": user, "n": state[user]}}])


hits = events.key_by("user").apply(Counts(), {{"user": ps.String, "n": ps.Int64}})
"""


@pytest.mark.parametrize(
    ("readable", "state"),
    [("frozenset()", "anew"), ("frozenset({{1}})", "kept")],
    ids=["unreadable", "readable"],
)
def test_state_of_a_version_that_the_altered_operator_cannot_read_is_reset(
    readable: str, state: str, tmp_path: Path
) -> None:
    jobs = Program("shop", tmp_path / "state")
    engine = InlineEngine(jobs, tmp_path / "state")
    jobs.submit(create_from("hits", own_file(tmp_path, VERSIONED), "hits"))
    assert sum(report.events for report in engine.steps()) == 1
    changed = VERSIONED.replace("state_version = 1", "state_version = 2").replace("frozenset()", readable)
    (reply,) = jobs.submit(alter_from("hits", own_file(tmp_path, changed), "hits"))
    assert reply.state == state
    engine.close()
