"""Deploying a file: missing jobs are created, different ones altered, equal ones left, and removed ones pruned."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import UserError
from tests.catalogue import kit
from tests.catalogue.python_kit import Files, create, deploy_file, running

EVENTS = kit.events(160)
APP = """
def loud(rows):
    return rows.with_columns(pl.col("page").str.to_uppercase())

errors = clicks.filter(pl.col("status") >= 400).map_batches(loud).select("page", "user")
counts = clicks.key_by("page").window("10s").count()
app = ps.app("shop", ps.output("errors", errors), ps.output("counts", counts))
"""
JOBS = """
calls = {"louder": lambda column: column.map_batches(lambda v: v.str.to_uppercase(), return_dtype=ps.String)}
sums = clicks.key_by("page").window("10s").aggregate(ps.sum_("bytes", "b"))
app = ps.jobs_app("shop", '''
    CREATE JOB loud AS SELECT louder(page) AS page FROM clicks WHERE status >= 400;
    CREATE JOB most AS SELECT page, MAX(b) AS b FROM sums GROUP BY page WINDOWING 30 SECONDS;
    CREATE JOB plain AS SELECT user FROM clicks WHERE status = 500
''', streams={"clicks": clicks}, queries={"sums": sums}, functions=calls)
"""


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path / "given", EVENTS)


def test_only_jobs_that_differ_are_altered(files: Files, tmp_path: Path) -> None:
    with running(tmp_path / "s") as (jobs, engine):
        assert deploy_file(jobs, files.write(APP)) == [
            "created job errors; it runs from the next epoch on; the stream clicks came with it",
            "created job counts; it runs from the next epoch on",
        ]
        engine.step()
        before = jobs.commands
        same = [
            "job errors is unchanged; its state is kept",
            "job counts is unchanged; its state is kept",
        ]
        assert deploy_file(jobs, files.write(APP)) == same
        assert deploy_file(jobs, files.write("# moved by a line\n\n" + APP)) == same
        assert jobs.commands == before, "nothing was written"
        louder = APP.replace("to_uppercase", "to_lowercase")
        assert deploy_file(jobs, files.write(louder)) == [
            "altered job errors; it needs no state",
            "job counts is unchanged; its state is kept",
        ]
        wider = louder.replace('"page").window("10s")', '"user").window("10s")')
        assert deploy_file(jobs, files.write(wider)) == [
            "job errors is unchanged; its state is kept",
            "altered job counts; its state needs another shape and starts empty, with the next epoch",
        ]
        emitted = kit.emitted_rows(list(engine.steps()))
        assert {row[0] for row in emitted["errors"]} <= {"/a", "/b", "/c", "/d"}


def test_pruning_drops_only_the_jobs_that_the_file_no_longer_has(files: Files, tmp_path: Path) -> None:
    with running(tmp_path / "s", stream=files.stream) as (jobs, _):
        create(jobs, "by_hand", files.write(APP), "counts")
        jobs.execute("CREATE JOB sql AS SELECT page FROM clicks")
        other = files.write(APP.replace('"errors"', '"o_e"').replace('"counts"', '"o_c"'), "other.py")
        deploy_file(jobs, other)
        deploy_file(jobs, files.write(APP))
        less = APP.replace(', ps.output("counts", counts)', "")
        assert deploy_file(jobs, files.write(less)) == ["job errors is unchanged; its state is kept"]
        before = jobs.commands
        replies = [
            "job errors is unchanged; its state is kept",
            "dropped job counts, which the file no longer has, with its state",
        ]
        assert deploy_file(jobs, files.write(less), prune=True, check=True) == replies
        assert jobs.commands == before, "a check changes nothing"
        assert deploy_file(jobs, files.write(less), prune=True) == replies
        assert jobs.catalogue.jobs.keys() == {"by_hand", "sql", "o_e", "o_c", "errors"}


def test_a_deploy_is_accepted_as_a_whole_or_not_at_all(files: Files, tmp_path: Path) -> None:
    with running(tmp_path / "s", stream=files.stream) as (jobs, _):
        jobs.execute("CREATE JOB counts AS SELECT page FROM clicks")
        with pytest.raises(UserError, match="JOB_OF_SQL"):
            deploy_file(jobs, files.write(APP))
        jobs.execute("DROP JOB counts")
        deploy_file(jobs, files.write(APP))
        with pytest.raises(UserError, match="NAME_TAKEN"):
            deploy_file(jobs, files.write(APP, "copy.py"))
        jobs.execute("CREATE JOB reader AS SELECT page FROM counts")
        with pytest.raises(UserError, match="STILL_READ"):
            deploy_file(jobs, files.write(APP.replace(', ps.output("counts", counts)', "")), prune=True)
        with pytest.raises(UserError, match="the job reader"):
            deploy_file(
                jobs,
                files.write(APP.replace('counts = clicks.key_by("page")', 'counts = clicks.key_by("user")')),
            )
        assert jobs.catalogue.jobs.keys() == {"errors", "counts", "reader"}


def test_outputs_of_a_file_read_each_other_in_any_order(files: Files, tmp_path: Path) -> None:
    text = """
base = clicks.select("page", n=pl.col("bytes"))
reader = ps.job("base", {"page": ps.String(), "n": ps.Int64()}).filter(pl.col("n") > 900)
app = ps.app("chain", ps.output("reader", reader), ps.output("base", base))
"""
    with running(tmp_path / "s") as (jobs, engine):
        assert [reply.split(";")[0] for reply in deploy_file(jobs, files.write(text))] == [
            "created job base",
            "created job reader",
        ]
        both = text.replace('n=pl.col("bytes")', 'm=pl.col("bytes")').replace('"n"', '"m"')
        assert [reply.split(";")[0] for reply in deploy_file(jobs, files.write(both))] == [
            "altered job base",
            "altered job reader",
        ]
        emitted = kit.emitted_rows(list(engine.steps()))
        assert emitted["reader"] == [(e["page"], e["bytes"]) for e in EVENTS if (e["bytes"] or 0) > 900]
        nobody = text.replace('ps.job("base"', 'ps.job("reader"')
        with pytest.raises(UserError, match="JOB_CYCLE"):
            deploy_file(jobs, files.write(nobody))
        gone = 'app = ps.app("chain", ps.output("other", clicks.select("page")))\n'
        replies = deploy_file(jobs, files.write(gone), prune=True)
        assert [reply.split(",")[0].split(";")[0] for reply in replies] == [
            "created job other",
            "dropped job reader",
            "dropped job base",
        ]


def test_a_jobs_app_brings_its_sql_and_the_functions_that_it_calls(files: Files, tmp_path: Path) -> None:
    with running(tmp_path / "s") as (jobs, engine):
        replies = deploy_file(jobs, files.write(JOBS))
        assert [reply.split(";")[0] for reply in replies] == [
            "created job sums",
            "created job loud",
            "created job most",
            "created job plain",
        ]
        first = engine.step()
        assert first is not None
        assert {row[0] for row in first.rows["loud"].rows()} <= {"/A", "/B", "/C", "/D"}
        quiet = deploy_file(jobs, files.write(JOBS.replace("to_uppercase", "to_titlecase")))
        assert [reply.split(";")[0] for reply in quiet] == [
            "job sums is unchanged",
            "altered job loud",
            "job most is unchanged",
            "job plain is unchanged",
        ]
        jobs.execute("ALTER JOB plain SET WHERE status = 404")
        again = deploy_file(jobs, files.write(JOBS.replace("to_uppercase", "to_titlecase")))
        assert all("is unchanged" in one for one in again)
        emitted = kit.emitted_rows(list(engine.steps()))
        assert emitted["most"]
    with running(tmp_path / "s") as (jobs, _):
        assert {kit.life(jobs, name) for name in jobs.catalogue.jobs} == {"running"}
        less = JOBS.replace("CREATE JOB plain AS SELECT user FROM clicks WHERE status = 500", "")
        assert "dropped job plain" in deploy_file(jobs, files.write(less), prune=True)[-1]


def test_a_jobs_app_must_declare_the_streams_that_the_engine_has(files: Files, tmp_path: Path) -> None:
    other = 'other = ps.stream("clicks", ps.generated(), ps.combined_log(), time="time")\nsums = '
    text = JOBS.replace('streams={"clicks": clicks}', 'streams={"clicks": other}').replace("sums = ", other)
    with running(tmp_path / "s", stream=files.stream) as (jobs, _):
        with pytest.raises(UserError, match="STREAM_DIFFERS"):
            deploy_file(jobs, files.write(text))
        assert not jobs.catalogue.jobs


CHANGES = {
    "a constant that a function names": ("LIMIT = 900", "LIMIT = 901", True),
    "a table that a function names": ('{"k": [1, 2]}', '{"k": [1, 3]}', True),
    "an array that a function names": (
        "np.arange(5000)",
        "(np.arange(5000) != 2500) * np.arange(5000)",
        True,
    ),
    "a helper of a helper": ("return n + 1", "return n + 2", True),
    "a default": ("def keep(rows, low=0)", "def keep(rows, low=1)", True),
    "a pattern": ('re.compile("a+")', 're.compile("b+")', True),
    "a comment": ("# nothing", "# nothing at all\n", False),
    "a constant that no query names": ("UNUSED = 1", "UNUSED = 2", False),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_deploy_compares_all_code_that_a_job_calls(change: str, files: Files, tmp_path: Path) -> None:
    text = """
# nothing
import re
import numpy as np

UNUSED = 1
LIMIT = 900
TABLE = pl.DataFrame({"k": [1, 2]})
ARRAY = np.arange(5000)
PATTERN = re.compile("a+")

def more(n):
    return n + 1

def limit():
    return more(LIMIT)

def keep(rows, low=0):
    assert TABLE.height and ARRAY.size and PATTERN.pattern
    return rows.filter(pl.col("bytes") > limit() + low)

app = ps.app("a", ps.output("kept", clicks.map_batches(keep).select("bytes")))
"""
    old, new, altered = CHANGES[change]
    assert old in text
    with running(tmp_path / "s") as (jobs, _):
        deploy_file(jobs, files.write(text))
        (reply,) = deploy_file(jobs, files.write(text.replace(old, new)))
        assert reply.startswith("altered" if altered else "job kept is unchanged"), reply


def test_a_deploy_alters_a_job_that_was_declared_at_the_start(files: Files, tmp_path: Path) -> None:
    from penstock.catalogue.program import Program
    from penstock.testing.inline import InlineEngine

    stream = files.stream
    rows = stream.key_by("page").window("10s").count()
    jobs = Program("test", tmp_path / "s", streams={"clicks": stream}, queries={"counts": rows})
    engine = InlineEngine(jobs, tmp_path / "s", epoch_units=1800)
    engine.step()
    text = 'counts = clicks.key_by("page").window("10s").count()\napp = ps.jobs_app("x", queries={"counts": counts})\n'
    (reply,) = deploy_file(jobs, files.write(text))
    assert reply == "altered job counts; its state is kept"
    engine.close()
    with running(tmp_path / "s", stream=files.stream) as (
        later,
        engine,
    ):  # without the declaration of the start
        assert kit.life(later, "counts") == "running"
        assert kit.emitted_rows(list(engine.steps()))["counts"]
