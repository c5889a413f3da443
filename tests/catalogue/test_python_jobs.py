"""Jobs of Python that come, change their code and go while the engine runs; their rows, worked out event by event."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

import pytest

from penstock.catalogue.code_requests import alter_from, create_from
from penstock.catalogue.program import Program
from penstock.cli.state import remove_state_directory
from penstock.errors import PenstockError, UserError
from penstock.testing.inline import InlineEngine
from tests.catalogue import kit
from tests.catalogue.python_kit import Files, alter, create, life, running

EVENTS = kit.events(200)
ERRORS = """
def shouted(rows):
    return rows.with_columns(pl.col("page").str.to_uppercase())

query = clicks.filter(pl.col("status") >= 400).map_batches(shouted).select("page", "user")
"""
WINDOWS = 'query = clicks.key_by("page").window("10s").count()\n'


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path / "given", EVENTS)


def test_a_query_of_a_file_becomes_a_job_and_brings_its_stream(files: Files, tmp_path: Path) -> None:
    with running(tmp_path / "s") as (jobs, engine):
        answer = create(jobs, "errors", files.write(ERRORS))
        assert answer.message == (
            "created job errors; it runs from the next epoch on; the stream clicks came with it"
        )
        assert answer.command == 1
        told = kit.told(list(engine.steps()))
        expected = [(e["page"].upper(), e["user"]) for e in EVENTS if e["status"] >= 400]
        assert told["errors"] == expected
        assert expected
        latest = jobs.ask("errors")
        assert latest is not None
        assert latest.rows.rows()[-1] == expected[-1]
        shown = jobs.execute("SHOW JOBS")[0].rows[0]
        assert str(shown["query"]).startswith("app.py:query (")
        assert "emits page String, user String" in jobs.execute("EXPLAIN JOB errors")[0].message
        assert [one.did for _, one in jobs.questions.versions("errors")] == ["created"]
        jobs.execute("DROP JOB errors")
        assert not jobs.catalogue.streams, "the stream went with the last that read it"


def test_the_rows_are_those_of_the_same_query_in_sql(files: Files, tmp_path: Path) -> None:
    sql = "CREATE JOB sql AS SELECT page, COUNT(*) AS count FROM clicks GROUP BY page WINDOWING 10 SECONDS"
    with running(tmp_path / "s", sql, given=files.stream) as (jobs, engine):
        create(jobs, "python", files.write(WINDOWS))
        assert len(jobs.epochs.plan(jobs.commands).scans) == 1, "one scan for both"
        told = kit.told(list(engine.steps()))
        counts = kit.windows(EVENTS, 10, lambda event: event["page"])
        assert sorted((row[0], row[1]) for row in told["sql"]) == sorted(
            (page, len(them)) for (_, page), them in counts.items()
        )
        names = jobs.questions.compiled("python").schema
        pairs = [(dict(zip(names, row, strict=True))) for row in told["python"]]
        assert sorted((r["page"], r["count"]) for r in pairs) == sorted((r[0], r[1]) for r in told["sql"])


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


def in_order(found: list[kit.Event]) -> list[kit.Event]:
    """Events as strict order has them: by time; at one instant as they lie in the file."""
    return sorted(found, key=lambda event: datetime.fromisoformat(event["ts"]))


def test_another_version_of_an_operator_goes_on_with_the_state(files: Files, tmp_path: Path) -> None:
    stay = "CREATE JOB stay AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page WINDOWING 5 SECONDS"
    alone = kit.run_all(tmp_path / "alone", files.stream, stay, epoch_units=1800)
    with running(tmp_path / "s", stay, given=files.stream) as (jobs, engine):
        create(jobs, "counted", files.write(COUNTING.format(step=1)))
        reports = [report for report in (engine.step(), engine.step(), engine.step()) if report]
        before = kit.told(reports).get("counted", [])
        answer = alter(jobs, "counted", files.write(COUNTING.format(step=1000)))
        assert (answer.state, answer.message) == ("kept", "altered job counted; its state is kept")
        rest = list(engine.steps())
        told = kit.told([*reports, *rest])
    sums: dict[str, int] = {}
    expected = []
    for number, event in enumerate(in_order(EVENTS)):
        sums[event["user"]] = sums.get(event["user"], 0) + (1 if number < len(before) else 1000)
        expected.append((event["user"], sums[event["user"]]))
    assert sorted(told["counted"]) == sorted(expected)
    assert 0 < len(before) < len(expected)
    assert told["stay"] == alone["stay"], "the other job has not noticed"


@pytest.mark.parametrize("rebuild", [False, True])
def test_a_state_of_another_shape_begins_anew_or_is_rebuilt(
    rebuild: bool, files: Files, tmp_path: Path
) -> None:
    with running(tmp_path / "s") as (jobs, engine):
        create(jobs, "counts", files.write(WINDOWS))
        for _ in range(3):
            engine.step()
        other = WINDOWS.replace('"page"', '"user"')
        answer = alter(jobs, "counts", files.write(other), rebuild=rebuild)
        assert answer.state == ("rebuilt" if rebuild else "anew")
        assert jobs.questions.versions("counts")[-1][1].state == answer.state
        told = kit.told(list(engine.steps()))["counts"]
        counts = kit.windows(EVENTS, 10, lambda event: event["user"])
        number = list(jobs.questions.compiled("counts").schema).index("count")
        total = sum(row[number] for row in told)
        assert total == len(EVENTS) if rebuild else 0 < total < len(EVENTS)
        if rebuild:
            assert len(told) == len(counts)


def test_modules_beside_a_file_come_with_it_and_versions_live_side_by_side(
    files: Files, tmp_path: Path
) -> None:
    lib = "def mark(rows):\n    return rows.with_columns(pl.lit({mark!r}).alias('mark'))\n"
    use = """
import texts.marks
from texts import marks as again
assert again is texts.marks
OUT = {**COLUMNS, "mark": ps.String()}
query = clicks.map_batches(texts.marks.mark, OUT).select("mark")
"""
    with running(tmp_path / "s") as (jobs, engine):
        for mark in "ab":
            files.write("import polars as pl\n" + lib.format(mark=mark), "texts/marks.py", head=False)
            create(jobs, f"marked_{mark}", files.write(use))
        told = kit.told(list(engine.steps()))
    for mark in "ab":
        assert told[f"marked_{mark}"] == [(mark,)] * len(EVENTS)


def test_a_job_of_python_reads_jobs_and_is_read(files: Files, tmp_path: Path) -> None:
    sql = """
    CREATE JOB slow AS SELECT user, bytes FROM clicks WHERE bytes > 500;
    """
    reader = """
slow = ps.job("slow", {"user": ps.String(), "bytes": ps.Int64()})
query = slow.filter(pl.col("user") == "u1").select("bytes")
"""
    with running(tmp_path / "s", sql, given=files.stream) as (jobs, engine):
        create(jobs, "mine", files.write(reader))
        jobs.execute("CREATE JOB last AS SELECT bytes FROM mine WHERE bytes > 900")
        with pytest.raises(UserError, match="STILL_READ"):
            jobs.execute("DROP JOB slow")
        with pytest.raises(UserError, match="STILL_READ"):
            jobs.execute("DROP JOB mine")
        told = kit.told(list(engine.steps()))
    expected = [e["bytes"] for e in EVENTS if (e["bytes"] or 0) > 500 and e["user"] == "u1"]
    assert [row[0] for row in told["mine"]] == expected
    assert [row[0] for row in told["last"]] == [n for n in expected if n > 900]
    assert told["last"]


def test_what_a_job_emitted_an_epoch_before_comes_back(files: Files, tmp_path: Path) -> None:
    feedback = """
before = ps.previous("sums", {"page": ps.String(), "n": ps.Int64()})
query = clicks.key_by("page").window("5s").count().select("page", n=pl.col("count").cast(pl.Int64))
"""
    reader = """
before = ps.previous("sums", {"page": ps.String(), "n": ps.Int64()})
query = before.select("page", "n")
"""
    with running(tmp_path / "s") as (jobs, engine):
        create(jobs, "sums", files.write(feedback))
        create(jobs, "again", files.write(reader))
        told = kit.told(list(engine.steps()))
    assert told["again"] == told["sums"][: len(told["again"])]
    assert told["again"]
    wrong = reader.replace("ps.Int64()", "ps.String()")
    with running(tmp_path / "t") as (jobs, engine):
        create(jobs, "sums", files.write(feedback))
        with pytest.raises(UserError, match="BAD_PREVIOUS"):
            create(jobs, "again", files.write(wrong))


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
    with running(tmp_path / "s", stay, given=files.stream) as (jobs, engine):
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
    told = kit.told(reports)
    assert told["stay"] == alone["stay"]
    assert told["mine"][-1] == (EVENTS[-1]["status"],)


def test_the_commands_of_sql_work_on_it(files: Files, tmp_path: Path) -> None:
    with running(tmp_path / "s") as (jobs, engine):
        create(jobs, "counts", files.write(WINDOWS))
        engine.step()
        for text, then in [
            ("PAUSE JOB counts", "paused"),
            ("RESUME JOB counts", "running"),
            ("EMPTY JOB counts", "running"),
            ("ALTER JOB counts SET RECOVERY gap", "running"),
            ("FLUSH JOB counts", "running"),
        ]:
            jobs.execute(text)
            assert life(jobs, "counts") == then
        with pytest.raises(UserError, match="JOB_OF_PYTHON"):
            jobs.execute("ALTER JOB counts SET LIMIT 3")
        assert kit.told(list(engine.steps()))["counts"]
        dids = [one.did for _, one in jobs.questions.versions("counts")]
        assert dids == ["created", "paused", "resumed", "emptied", "recovery gap", "flushed"]


def test_an_output_brings_its_sinks_and_its_recovery(files: Files, tmp_path: Path) -> None:
    out = tmp_path / "out"
    text = f"""
rows = clicks.filter(pl.col("status") == 500).select("page")
query = ps.output("any", rows, ps.jsonl({str(out)!r}), recovery="rollback")
"""
    with running(tmp_path / "s") as (jobs, engine):
        create(jobs, "failures", files.write(text))
        assert jobs.catalogue.jobs["failures"].recovery == "rollback"
        shown = jobs.execute("SHOW JOBS")[0].rows[0]
        assert str(out) in shown["into"][0]
        engine.step()
        alter(jobs, "failures", files.write(text.replace("500", "404")))
        list(engine.steps())
        with pytest.raises(UserError, match="SINKS_CHANGED") as refused:
            alter(jobs, "failures", files.write(text.replace("/out", "/elsewhere")))
        assert "elsewhere" in str(refused.value.detail)
    rows = sum(len(file.read_text().splitlines()) for file in out.glob("*.jsonl"))
    first = [e for e in EVENTS if e["status"] == 500]
    assert rows > 0
    assert first


def test_a_restart_goes_on_with_the_code_that_was_kept(files: Files, tmp_path: Path) -> None:
    file = files.write(COUNTING.format(step=1))
    with running(tmp_path / "s") as (jobs, engine):
        create(jobs, "counted", file)
        first = kit.told([r for r in (engine.step(), engine.step()) if r]).get("counted", [])
    file.unlink()
    with running(tmp_path / "s") as (jobs, engine):
        rest = kit.told(list(engine.steps()))["counted"]
    sums: dict[str, int] = {}
    expected = []
    for event in in_order(EVENTS):
        sums[event["user"]] = sums.get(event["user"], 0) + 1
        expected.append((event["user"], sums[event["user"]]))
    assert sorted(first + rest) == sorted(expected)
    assert first


def test_code_that_is_damaged_fails_its_job_alone(files: Files, tmp_path: Path) -> None:
    stay = "CREATE JOB stay AS SELECT page FROM clicks"
    with running(tmp_path / "s", stay, given=files.stream) as (jobs, engine):
        create(jobs, "errors", files.write(ERRORS))
        engine.step()
    (kept,) = (tmp_path / "s" / "code").glob("*/app.py")
    kept.write_text(kept.read_text().replace("400", "200"))
    with running(tmp_path / "s", stay, given=files.stream) as (jobs, engine):
        assert life(jobs, "errors") == "failed"
        assert "STATE_DAMAGED" in str(jobs.catalogue.jobs["errors"].master.error)
        assert kit.told(list(engine.steps())).keys() == {"stay"}


def test_code_that_nothing_needs_goes_when_the_log_is_folded(files: Files, tmp_path: Path) -> None:
    code = tmp_path / "s" / "code"

    def kept() -> set[str]:
        return {place.name for place in code.iterdir() if place.is_dir()}

    with running(tmp_path / "s", given=files.stream, fold_after=1) as (jobs, engine):
        create(jobs, "errors", files.write(ERRORS))
        alter(jobs, "errors", files.write(ERRORS.replace("400", "500")))
        create(jobs, "gone", files.write(WINDOWS))
        jobs.execute("DROP JOB gone")
        assert len(kept()) == 3
        for _ in range(3):
            engine.step()
        engine.recycle(1)
        assert len(kept()) == 3, "a command that needs it may be on its way"
        for place in [*code.glob("*/*"), *code.iterdir()]:
            os.utime(place, (0, 0))
        jobs.execute("PAUSE JOB errors; RESUME JOB errors")
        create(jobs, "later", files.write(WINDOWS))
        needed = jobs.catalogue.code
        list(engine.steps())
        engine.recycle(1)
        assert kept() == needed
        assert len(needed) == 2
    with running(tmp_path / "s", given=files.stream) as (jobs, _):
        assert life(jobs, "errors") == "running"


def test_a_function_that_builds_the_query_is_called_once_for_each_version(
    files: Files, tmp_path: Path
) -> None:
    text = """
CALLS = []

def query():
    CALLS.append(1)
    assert CALLS == [1], "it was called again"
    late = clicks.late().select("user", late=pl.lit(True))
    return ps.output("any", clicks.select("user", late=pl.lit(False)).union(late))
"""
    with running(tmp_path / "s") as (jobs, engine):
        create(jobs, "all", files.write(text))
        told = kit.told(list(engine.steps()))
    assert [row[0] for row in told["all"] if not row[1]] == [e["user"] for e in EVENTS]


KINDS = {
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


@pytest.mark.parametrize("kind", KINDS)
def test_functions_of_the_users_own_are_swapped_with_their_state(
    kind: str, files: Files, tmp_path: Path
) -> None:
    with running(tmp_path / "s") as (jobs, engine):
        create(jobs, "counted", files.write(KINDS[kind].format(step=1)))
        for _ in range(3):
            engine.step()
        assert alter(jobs, "counted", files.write(KINDS[kind].format(step=1000))).state == "kept"
        rows = kit.told(list(engine.steps()))["counted"]
    column = [row[-1] for row in rows]
    mixed = [n for n in column if n % 1000 and n > 1000]
    assert mixed, "ones and thousands in one state"
    if kind == "aggregate":
        (whole,) = column
        assert whole // 1000 + whole % 1000 == len(EVENTS)


# ---------------------------------------------------------------- around an engine


APP_FILE = """
import polars as pl
import penstock as ps
lines = ps.json_lines({{"ts": pl.Datetime("us", "UTC"), "user": pl.String()}})
events = ps.stream("events", ps.files("{log}"), lines, time="ts")
hits = events.key_by("user").window("1h").aggregate(ps.count())
"""


def own_file(folder: Path, text: str = APP_FILE, name: str = "app.py") -> Path:
    """A file of code that nobody else can write."""
    folder.chmod(0o700)
    log = folder / "events.jsonl"
    log.write_text('{"ts": "2026-03-01T12:00:00+00:00", "user": "a"}\n')
    file = folder / name
    file.write_text(text.format(log=log))
    file.chmod(0o600)
    return file


def test_code_that_comes_before_the_first_engine_keeps_nobody_out(tmp_path: Path) -> None:
    state, file = tmp_path / "state", own_file(tmp_path)
    first = Program("shop", state, shared=True)
    first.join(begin=True)
    first.submit(create_from("hits", file, "hits"))
    engine = InlineEngine(Program("shop", state, shared=True), state)
    assert sum(report.events for report in engine.steps()) == 1
    engine.close()
    remove_state_directory(state)
    assert not state.exists()


def test_stored_code_that_others_can_write_stops_the_start_and_costs_no_state(tmp_path: Path) -> None:
    state, file = tmp_path / "state", own_file(tmp_path)
    jobs = Program("shop", state)
    engine = InlineEngine(jobs, state)
    jobs.submit(create_from("hits", file, "hits"))
    assert sum(report.events for report in engine.steps()) == 1
    engine.close()
    (stored,) = (state / "code").glob("*/*.py")
    stored.chmod(0o664)
    with pytest.raises(PenstockError) as refused:
        InlineEngine(Program("shop", state), state)
    assert refused.value.condition == "CODE_NOT_TRUSTED"
    stored.chmod(0o600)
    again = Program("shop", state)
    engine = InlineEngine(again, state)
    assert (again.catalogue.jobs["hits"].master.life, again.catalogue.jobs["hits"].lost) == ("running", False)
    engine.close()


def test_a_file_may_lie_beside_a_package_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir(mode=0o700)
    (tmp_path / "shop" / "__init__.py").write_text("SPAN = '1h'\n")
    (tmp_path / "shop" / "__init__.py").chmod(0o600)
    text = APP_FILE.replace("import polars", "from shop import SPAN\nimport polars").replace('"1h"', "SPAN")
    state = tmp_path / "state"
    jobs = Program("shop", state)
    engine = InlineEngine(jobs, state)
    jobs.submit(create_from("hits", own_file(tmp_path, text, "shop.py"), "hits"))
    assert sum(report.events for report in engine.steps()) == 1
    engine.close()


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
    ids=["other form", "readable"],
)
def test_state_of_a_form_that_the_altered_operator_cannot_read_is_not_kept(
    readable: str, state: str, tmp_path: Path
) -> None:
    jobs = Program("shop", tmp_path / "state")
    engine = InlineEngine(jobs, tmp_path / "state")
    jobs.submit(create_from("hits", own_file(tmp_path, VERSIONED), "hits"))
    assert sum(report.events for report in engine.steps()) == 1
    changed = VERSIONED.replace("state_version = 1", "state_version = 2").replace("frozenset()", readable)
    (answer,) = jobs.submit(alter_from("hits", own_file(tmp_path, changed), "hits"))
    assert answer.state == state
    engine.close()
