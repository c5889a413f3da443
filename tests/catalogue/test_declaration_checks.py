"""Declarations that contradict a job's query are refused: unknown parameters, and columns that it does not emit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.catalogue.program import Program
from tests.catalogue import kit
from tests.catalogue.kit import refusal

SQL = """
CREATE JOB few AS SELECT page, bytes FROM clicks WHERE bytes < $lim WITH ($lim = 3);
CREATE JOB counts AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page WINDOWING 10 SECONDS
"""
JOIN = "SELECT c.user FROM clicks c JOIN LATEST(PREVIOUS({})) p ON c.page = p.page"


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Program]:
    with kit.running(tmp_path, kit.clicks(kit.events(10), finished=False), SQL) as (jobs, _):
        yield jobs


@pytest.mark.parametrize(
    ("sql", "hint"),
    [
        ("ALTER JOB few SET $limm = 100", "Did you mean $lim?"),
        ("ALTER JOB few SET $lim = 100, $other = 'x'", "It has $lim."),
        ("CREATE JOB more AS SELECT page FROM clicks WITH ($lim = 3)", "It has none."),
        ("CREATE JOB more AS SELECT page FROM few WHERE bytes > $low WITH ($low = 1, $lov = 3)", "$low?"),
        ("ALTER JOB few AS SELECT page FROM clicks WHERE bytes < $most WITH ($mos = 9, $most = 9)", "$most?"),
    ],
)
def test_a_parameter_that_the_query_lacks_is_refused(jobs: Program, sql: str, hint: str) -> None:
    error = refusal(jobs, sql)
    assert error.condition == "UNKNOWN_PARAMETER"
    assert hint in str(error.hint)


def test_a_new_query_or_filter_can_bring_its_parameters(jobs: Program) -> None:
    jobs.execute("ALTER JOB few SET WHERE bytes < $lim AND status = $status WITH ($status = 200)")
    assert jobs.catalogue.jobs["few"].parameters == {"lim": 3, "status": 200}
    jobs.execute("ALTER JOB few AS SELECT page FROM clicks WHERE bytes > $more WITH ($more = 9) REBUILD")
    assert jobs.catalogue.jobs["few"].parameters["more"] == 9
    jobs.execute("ALTER JOB few SET $more = 10")


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ("counts, 'page BIGINT'", "counts emits page as String, not as Int64"),
        ("counts, 'page STRING, zz BIGINT'", "counts has no column zz"),
        ("counts, 'page STRING, n STRING'", "counts emits n as Int64, not as String"),
    ],
)
def test_declared_columns_that_a_job_does_not_emit_are_refused(
    jobs: Program, declared: str, message: str
) -> None:
    error = refusal(jobs, f"CREATE JOB j AS {JOIN.format(declared).replace('c.page = p.page', 'TRUE')}")
    assert error.condition == "BAD_PREVIOUS"
    assert message in error.primary


def test_a_new_job_must_emit_the_columns_that_a_reader_declared_before(jobs: Program) -> None:
    jobs.execute("CREATE JOB j AS " + JOIN.format("later, 'page STRING, n DOUBLE'"))
    error = refusal(jobs, "CREATE JOB later AS SELECT page, user FROM clicks")
    assert (error.condition, "j declares" in error.primary) == ("BAD_PREVIOUS", True)
    jobs.execute("CREATE JOB later AS SELECT page, bytes AS n, user FROM clicks")
    assert refusal(jobs, "ALTER JOB later AS SELECT page, user AS n FROM clicks").condition == "BAD_PREVIOUS"
    jobs.execute("DROP JOB j; ALTER JOB later AS SELECT page, user AS n FROM clicks")


def test_a_job_that_reads_itself_must_emit_the_columns_that_it_declares(jobs: Program) -> None:
    text = (
        "CREATE JOB me AS SELECT c.page, c.bytes FROM clicks c LEFT JOIN LATEST(PREVIOUS(me, '{}')) m ON TRUE"
    )
    error = refusal(jobs, text.format("page BIGINT"))
    assert "me emits page as String, not as Int64" in error.primary
    jobs.execute(text.format("page STRING, bytes BIGINT"))


def test_a_job_that_reads_itself_without_declared_columns_gets_a_hint(jobs: Program) -> None:
    error = refusal(jobs, "CREATE JOB me AS SELECT c.page FROM clicks c JOIN LATEST(PREVIOUS(me)) m ON TRUE")
    assert error.condition == "JOB_CYCLE"
    assert "declare their columns: FROM PREVIOUS(me, '" in str(error.hint)


def test_if_exists_and_if_not_exists_leave_the_catalogue_as_it_is(jobs: Program) -> None:
    number, before = jobs.commands, jobs.catalogue
    stream = "CREATE STREAM IF NOT EXISTS {} FROM files('none/*') FORMAT combined_log EVENT TIME time"
    for sql, message in {
        "CREATE JOB IF NOT EXISTS few AS SELECT page FROM clicks": "there is a job few already",
        stream.format("clicks"): "there is a stream clicks already",
        "DROP JOB IF EXISTS nobody": "there is no job nobody",
        "DROP STREAM IF EXISTS nowhere": "there is no stream nowhere",
    }.items():
        (reply,) = jobs.execute(sql)
        assert message in reply.message
        assert reply.command is None
    assert (jobs.commands, jobs.catalogue) == (number, before)
    jobs.execute(f"CREATE JOB IF NOT EXISTS new AS SELECT page FROM clicks; {stream.format('other')}")
    assert "new" in jobs.catalogue.jobs
    assert "other" in jobs.catalogue.streams
    jobs.execute("DROP JOB IF EXISTS new; DROP STREAM IF EXISTS other")
    assert jobs.catalogue.jobs == before.jobs
    assert (
        refusal(jobs, "CREATE JOB IF NOT EXISTS clicks AS SELECT page FROM clicks").condition == "NAME_TAKEN"
    )
    assert refusal(jobs, "PAUSE JOB IF EXISTS few").condition == "BAD_SQL"


def test_a_script_with_if_not_exists_leaves_an_existing_job_at_the_restart(tmp_path: Path) -> None:
    text = "CREATE JOB IF NOT EXISTS some AS SELECT page FROM clicks WHERE status = {}"
    for status in (200, 404):
        with kit.running(tmp_path, kit.clicks(kit.events(10)), text.format(status)) as (jobs, engine):
            list(engine.steps())
            assert "status = 200" in jobs.catalogue.jobs["some"].select
