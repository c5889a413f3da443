"""Jobs of Python files that are created while the engine runs: their rows, streams, readers and commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.catalogue.code_requests import create_from
from penstock.catalogue.program import Program
from penstock.errors import UserError
from penstock.testing.inline import InlineEngine
from tests.catalogue import kit
from tests.catalogue.kit import life
from tests.catalogue.python_kit import APP_FILE, ERRORS, WINDOWS, Files, alter, create, own_file, running

EVENTS = kit.events(200)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path / "given", EVENTS)


def test_a_query_of_a_file_becomes_a_job_with_its_stream(files: Files, tmp_path: Path) -> None:
    with running(tmp_path / "s") as (jobs, engine):
        reply = create(jobs, "errors", files.write(ERRORS))
        assert reply.message == (
            "created job errors; it runs from the next epoch on; the stream clicks came with it"
        )
        assert reply.command == 1
        emitted = kit.emitted_rows(list(engine.steps()))
        expected = [(e["page"].upper(), e["user"]) for e in EVENTS if e["status"] >= 400]
        assert emitted["errors"] == expected
        assert expected
        latest = jobs.ask("errors")
        assert latest is not None
        assert latest.rows.rows()[-1] == expected[-1]
        shown = jobs.execute("SHOW JOBS")[0].rows[0]
        assert str(shown["query"]).startswith("app.py:query (")
        assert "emits page String, user String" in jobs.execute("EXPLAIN JOB errors")[0].message
        assert [version.did for _, version in jobs.questions.versions("errors")] == ["created"]
        jobs.execute("DROP JOB errors")
        assert not jobs.catalogue.streams, "the stream is dropped with its last reader"


def test_a_python_job_emits_the_rows_of_the_same_query_in_sql(files: Files, tmp_path: Path) -> None:
    sql = "CREATE JOB sql AS SELECT page, COUNT(*) AS count FROM clicks GROUP BY page WINDOWING 10 SECONDS"
    with running(tmp_path / "s", sql, stream=files.stream) as (jobs, engine):
        create(jobs, "python", files.write(WINDOWS))
        assert len(jobs.epochs.plan(jobs.commands).scans) == 1, "one scan for both"
        emitted = kit.emitted_rows(list(engine.steps()))
        counts = kit.windows(EVENTS, 10, lambda event: event["page"])
        assert sorted((row[0], row[1]) for row in emitted["sql"]) == sorted(
            (page, len(clicks)) for (_, page), clicks in counts.items()
        )
        names = jobs.questions.compiled("python").schema
        pairs = [(dict(zip(names, row, strict=True))) for row in emitted["python"]]
        assert sorted((r["page"], r["count"]) for r in pairs) == sorted((r[0], r[1]) for r in emitted["sql"])


def test_modules_beside_a_file_are_stored_with_it_in_several_versions(files: Files, tmp_path: Path) -> None:
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
        emitted = kit.emitted_rows(list(engine.steps()))
    for mark in "ab":
        assert emitted[f"marked_{mark}"] == [(mark,)] * len(EVENTS)


def test_a_python_job_reads_jobs_and_is_read_by_jobs(files: Files, tmp_path: Path) -> None:
    sql = """
    CREATE JOB slow AS SELECT user, bytes FROM clicks WHERE bytes > 500;
    """
    reader = """
slow = ps.job("slow", {"user": ps.String(), "bytes": ps.Int64()})
query = slow.filter(pl.col("user") == "u1").select("bytes")
"""
    with running(tmp_path / "s", sql, stream=files.stream) as (jobs, engine):
        create(jobs, "mine", files.write(reader))
        jobs.execute("CREATE JOB last AS SELECT bytes FROM mine WHERE bytes > 900")
        with pytest.raises(UserError, match="STILL_READ"):
            jobs.execute("DROP JOB slow")
        with pytest.raises(UserError, match="STILL_READ"):
            jobs.execute("DROP JOB mine")
        emitted = kit.emitted_rows(list(engine.steps()))
    expected = [e["bytes"] for e in EVENTS if (e["bytes"] or 0) > 500 and e["user"] == "u1"]
    assert [row[0] for row in emitted["mine"]] == expected
    assert [row[0] for row in emitted["last"]] == [n for n in expected if n > 900]
    assert emitted["last"]


def test_a_python_job_reads_the_previous_results_of_a_job(files: Files, tmp_path: Path) -> None:
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
        emitted = kit.emitted_rows(list(engine.steps()))
    assert emitted["again"] == emitted["sums"][: len(emitted["again"])]
    assert emitted["again"]
    wrong = reader.replace("ps.Int64()", "ps.String()")
    with running(tmp_path / "t") as (jobs, engine):
        create(jobs, "sums", files.write(feedback))
        with pytest.raises(UserError, match="BAD_PREVIOUS"):
            create(jobs, "again", files.write(wrong))


def test_sql_commands_work_on_a_python_job(files: Files, tmp_path: Path) -> None:
    with running(tmp_path / "s") as (jobs, engine):
        create(jobs, "counts", files.write(WINDOWS))
        engine.step()
        for sql, expected in [
            ("PAUSE JOB counts", "paused"),
            ("RESUME JOB counts", "running"),
            ("EMPTY JOB counts", "running"),
            ("ALTER JOB counts SET RECOVERY gap", "running"),
            ("FLUSH JOB counts", "running"),
        ]:
            jobs.execute(sql)
            assert life(jobs, "counts") == expected
        with pytest.raises(UserError, match="JOB_OF_PYTHON"):
            jobs.execute("ALTER JOB counts SET LIMIT 3")
        assert kit.emitted_rows(list(engine.steps()))["counts"]
        changes = [version.did for _, version in jobs.questions.versions("counts")]
        assert changes == ["created", "paused", "resumed", "emptied", "recovery gap", "flushed"]


def test_an_output_of_a_file_becomes_a_job_with_its_sinks_and_recovery(files: Files, tmp_path: Path) -> None:
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
        emitted = kit.emitted_rows(list(engine.steps()))
    assert [row[0] for row in emitted["all"] if not row[1]] == [e["user"] for e in EVENTS]


def test_a_file_may_be_beside_a_package_of_its_name(tmp_path: Path) -> None:
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
