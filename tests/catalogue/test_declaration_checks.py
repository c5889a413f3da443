"""A declaration about a job that contradicts its query is refused: parameters it has not, columns it does not emit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.catalogue.program import Program
from penstock.errors import PenstockError
from tests.catalogue import kit

SQL = """
CREATE JOB few AS SELECT page, bytes FROM clicks WHERE bytes < $lim WITH ($lim = 3);
CREATE JOB counts AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page WINDOWING 10 SECONDS
"""
JOIN = "SELECT c.user FROM clicks c JOIN LATEST(PREVIOUS({})) p ON c.page = p.page"


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Program]:
    with kit.running(tmp_path, kit.clicks(kit.events(10), finished=False), SQL) as (jobs, _):
        yield jobs


def refused(jobs: Program, sql: str) -> PenstockError:
    before = jobs.catalogue
    with pytest.raises(PenstockError) as caught:
        jobs.execute(sql)
    assert jobs.catalogue == before
    return caught.value


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
def test_a_parameter_that_the_query_has_not_is_refused(jobs: Program, sql: str, hint: str) -> None:
    error = refused(jobs, sql)
    assert error.condition == "UNKNOWN_PARAMETER"
    assert hint in str(error.hint)


def test_a_new_query_or_filter_can_bring_its_parameters(jobs: Program) -> None:
    jobs.execute("ALTER JOB few SET WHERE bytes < $lim AND status = $status WITH ($status = 200)")
    assert jobs.catalogue.jobs["few"].parameters == {"lim": 3, "status": 200}
    jobs.execute("ALTER JOB few AS SELECT page FROM clicks WHERE bytes > $more WITH ($more = 9) REBUILD")
    assert jobs.catalogue.jobs["few"].parameters["more"] == 9
    jobs.execute("ALTER JOB few SET $more = 10")


@pytest.mark.parametrize(
    ("declared", "told"),
    [
        ("counts, 'page BIGINT'", "counts emits page as String, not as Int64"),
        ("counts, 'page STRING, zz BIGINT'", "counts has no column zz"),
        ("counts, 'page STRING, n STRING'", "counts emits n as Int64, not as String"),
    ],
)
def test_columns_that_a_job_does_not_tell_are_refused(jobs: Program, declared: str, told: str) -> None:
    error = refused(jobs, f"CREATE JOB j AS {JOIN.format(declared).replace('c.page = p.page', 'TRUE')}")
    assert error.condition == "BAD_PREVIOUS"
    assert told in error.primary


def test_a_job_is_held_to_what_was_declared_before_it_was_there(jobs: Program) -> None:
    jobs.execute("CREATE JOB j AS " + JOIN.format("later, 'page STRING, n DOUBLE'"))
    error = refused(jobs, "CREATE JOB later AS SELECT page, user FROM clicks")
    assert (error.condition, "j declares" in error.primary) == ("BAD_PREVIOUS", True)
    jobs.execute("CREATE JOB later AS SELECT page, bytes AS n, user FROM clicks")
    assert refused(jobs, "ALTER JOB later AS SELECT page, user AS n FROM clicks").condition == "BAD_PREVIOUS"
    jobs.execute("DROP JOB j; ALTER JOB later AS SELECT page, user AS n FROM clicks")


def test_so_is_one_that_reads_itself(jobs: Program) -> None:
    text = (
        "CREATE JOB me AS SELECT c.page, c.bytes FROM clicks c LEFT JOIN LATEST(PREVIOUS(me, '{}')) m ON TRUE"
    )
    error = refused(jobs, text.format("page BIGINT"))
    assert "me emits page as String, not as Int64" in error.primary
    jobs.execute(text.format("page STRING, bytes BIGINT"))


def test_whoever_reads_himself_is_told_to_declare_the_columns(jobs: Program) -> None:
    error = refused(jobs, "CREATE JOB me AS SELECT c.page FROM clicks c JOIN LATEST(PREVIOUS(me)) m ON TRUE")
    assert error.condition == "JOB_CYCLE"
    assert "declare their columns: FROM PREVIOUS(me, '" in str(error.hint)


def test_what_is_there_already_or_not_at_all_is_left_where_that_is_said(jobs: Program) -> None:
    number, before = jobs.commands, jobs.catalogue
    stream = "CREATE STREAM IF NOT EXISTS {} FROM files('none/*') FORMAT combined_log EVENT TIME time"
    for sql, says in {
        "CREATE JOB IF NOT EXISTS few AS SELECT page FROM clicks": "there is a job few already",
        stream.format("clicks"): "there is a stream clicks already",
        "DROP JOB IF EXISTS nobody": "there is no job nobody",
        "DROP STREAM IF EXISTS nowhere": "there is no stream nowhere",
    }.items():
        (answer,) = jobs.execute(sql)
        assert says in answer.message
        assert answer.command is None
    assert (jobs.commands, jobs.catalogue) == (number, before)
    jobs.execute(f"CREATE JOB IF NOT EXISTS new AS SELECT page FROM clicks; {stream.format('other')}")
    assert "new" in jobs.catalogue.jobs
    assert "other" in jobs.catalogue.streams
    jobs.execute("DROP JOB IF EXISTS new; DROP STREAM IF EXISTS other")
    assert jobs.catalogue.jobs == before.jobs
    assert (
        refused(jobs, "CREATE JOB IF NOT EXISTS clicks AS SELECT page FROM clicks").condition == "NAME_TAKEN"
    )
    assert refused(jobs, "PAUSE JOB IF EXISTS few").condition == "BAD_SQL"


def test_a_text_that_begins_with_it_leaves_what_is_there(tmp_path: Path) -> None:
    text = "CREATE JOB IF NOT EXISTS some AS SELECT page FROM clicks WHERE status = {}"
    for status in (200, 404):
        with kit.running(tmp_path, kit.clicks(kit.events(10)), text.format(status)) as (jobs, engine):
            list(engine.steps())
            assert "status = 200" in jobs.catalogue.jobs["some"].select
