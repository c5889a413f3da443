"""Checks of statements: the process lives, others do not wait, and what was checked fits the catalogue it changes."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.catalogue.command import PauseJob
from penstock.catalogue.program import Program
from penstock.errors import PenstockError, UserError
from penstock.query.limits import CheckLimits, cancel_when
from tests.catalogue import kit

DEADLINE_SECONDS = 60
STREAM = (
    "CREATE STREAM clicks FROM files('clicks/*.log') "
    "FORMAT json(ts TIMESTAMP, page STRING, n BIGINT, bytes INT) EVENT TIME ts"
)


class Gate:
    """A function of the user's that returns once it may. It has a lock, so it is not sent to another process."""

    def __init__(self) -> None:
        self.entered, self.open = threading.Event(), threading.Event()
        self.calls = 0

    def __call__(self, column: pl.Expr) -> pl.Expr:
        self.calls += 1
        self.entered.set()
        assert self.open.wait(DEADLINE_SECONDS)
        return column.str.to_uppercase()


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def program(tmp_path: Path, gate: Gate) -> Program:
    program = Program("test", tmp_path, functions={"gate": gate})
    program.execute(STREAM)
    program.execute("CREATE JOB older AS SELECT page FROM clicks")
    return program


def _create(program: Program, replies: list[object]) -> threading.Thread:
    def create() -> None:
        try:
            replies.extend(program.execute("CREATE JOB new AS SELECT gate(page) AS page FROM clicks"))
        except PenstockError as error:
            replies.append(error)

    thread = threading.Thread(target=create, daemon=True)
    thread.start()
    return thread


def test_the_engine_reads_the_catalogue_while_a_statement_is_checked(program: Program, gate: Gate) -> None:
    replies: list[object] = []
    creating = _create(program, replies)
    assert gate.entered.wait(DEADLINE_SECONDS)
    counted: list[int] = []
    counting = threading.Thread(target=lambda: counted.append(program.commands), daemon=True)
    counting.start()
    counting.join(DEADLINE_SECONDS)
    assert counted == [2]
    gate.open.set()
    creating.join(DEADLINE_SECONDS)
    assert len(replies) == 1
    assert "new" in program.catalogue.jobs


def test_a_check_is_repeated_when_a_command_came_in_between(program: Program, gate: Gate) -> None:
    replies: list[object] = []
    creating = _create(program, replies)
    assert gate.entered.wait(DEADLINE_SECONDS)
    program._intake.decide(lambda now: [PauseJob("older")])
    gate.open.set()
    creating.join(DEADLINE_SECONDS)
    assert gate.calls >= 2
    jobs = program.catalogue.jobs
    assert (jobs["older"].master.life, "new" in jobs) == ("paused", True)
    assert jobs["new"].number not in (jobs["older"].number,)


def test_a_check_that_waits_for_another_ends_when_its_caller_leaves(program: Program, gate: Gate) -> None:
    creating = _create(program, [])
    assert gate.entered.wait(DEADLINE_SECONDS)
    with cancel_when(lambda: True), pytest.raises(UserError, match="CHECK_CANCELLED"):
        program.check("SHOW JOBS")
    gate.open.set()
    creating.join(DEADLINE_SECONDS)


def test_a_check_that_takes_too_long_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    limits = CheckLimits(seconds=-1)
    program = Program("test", tmp_path, check_limits=limits)
    with pytest.raises(UserError, match="CHECK_TOO_LONG"):
        program.execute(f"{STREAM}; CREATE JOB new AS SELECT page FROM clicks")
    assert not program.catalogue.streams


# -- what a check executes --------------------------------------------------------------------------


def _hoard(column: pl.Expr) -> pl.Expr:
    return column.head(len(bytearray(1 << 40)))


def _double_often(column: pl.Expr) -> pl.Expr:
    return column.repeat_by(2_000_000_000).list.join("")


@pytest.fixture(scope="module")
def living(tmp_path_factory: pytest.TempPathFactory) -> Program:
    functions = {"hoard": _hoard, "double_often": _double_often}
    state = tmp_path_factory.mktemp("state")
    program = Program("test", state, functions=functions, check_limits=CheckLimits(seconds=20))
    program.execute(STREAM)
    return program


@pytest.mark.process
@pytest.mark.parametrize(
    ("expression", "condition"),
    [
        ("hoard(page)", "USER_FUNCTION_FAILED"),
        ("double_often(page)", "TRIAL_TOO_EXPENSIVE"),
    ],
)
def test_what_takes_too_much_memory_ends_the_child_alone(
    living: Program, expression: str, condition: str
) -> None:
    error = kit.refusal(living, f"CREATE JOB x AS SELECT {expression} AS v FROM clicks")
    assert error.condition == condition
    assert living.check("SHOW JOBS")


@pytest.mark.process
def test_constants_that_functions_make_longer_and_longer_end_the_child_alone(living: Program) -> None:
    text = "'a'"
    for _ in range(10):
        text = f"replace({text}, 'a', 'aaaaaaaaaa')"
    error = kit.refusal(living, f"CREATE JOB x AS SELECT {text} AS v FROM clicks")
    assert error.condition == "TRIAL_TOO_EXPENSIVE"
    assert living.check("SHOW JOBS")


NUMBERS = st.sampled_from(
    ["0", "-1", "3", "99999", "2000000000", "9" * 40, "1e308", "n", "bytes", "'7'", "NULL"]
)
TEXTS = st.sampled_from(["page", "'a'", "''", "'%999999999d'", "'((a{999}){999}){999}'", "NULL", "'$[0][0]'"])
CALLS = (
    "repeat({0}, {2})", "lpad({0}, {2}, {1})", "rpad({0}, {2})", "space({2})", "format_string({1}, {0}, {2})",
    "replace({0}, {1}, {0})", "concat({0}, {0}, {1})", "{0} || {1}", "substring({0}, {2}, {2})", "hex({0})",
    "substring_index({0}, {1}, {2})", "regexp_replace({0}, {1}, {0})", "regexp_like({0}, {1})", "split({0}, {1}, {2})",
    "CASE WHEN {0} = {1} THEN {0} ELSE {1} END", "date_format(ts, {1})", "to_timestamp({0}, {1})",
    "date_add({0}, {2})", "add_months(ts, {2})", "round({2}, {2})", "get_json_object({0}, {1})", "array({0}, {0})",
    "array_join(array({0}, {0}), {0})", "CAST({0} AS DECIMAL(38, 38))", "({0} IN ({1}, {0}))", "pow({2}, {2})",
    "url_encode({0})", "initcap({0})", "translate({0}, {1}, {1})", "locate({1}, {0}, {2})", "NOT ({0} LIKE {1})",
    "timestamp_micros({2})", "make_date({2}, {2}, {2})", "chr({2})", "width_bucket({2}, {2}, {2}, {2})",
)  # fmt: skip
EXPRESSIONS = st.recursive(
    TEXTS,
    lambda inner: st.builds(str.format, st.sampled_from(CALLS), inner, inner | TEXTS, NUMBERS | inner),
    max_leaves=25,
)


@pytest.mark.process
@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(expression=EXPRESSIONS, levels=st.integers(0, 12), grouped=st.booleans())
def test_whatever_is_checked_the_process_lives_and_answers(
    living: Program, expression: str, levels: int, grouped: bool
) -> None:
    parts = ["p0 AS (SELECT * FROM clicks)"]
    parts += [f"p{n} AS (SELECT * FROM p{n - 1} UNION ALL SELECT * FROM p{n - 1})" for n in range(1, levels)]
    window = "GROUP BY page WINDOWING 10 SECONDS" if grouped else ""
    column = f"max({expression})" if grouped else expression
    with suppress(PenstockError):
        living.check(
            f"CREATE JOB x AS WITH {', '.join(parts)} SELECT {column} AS v FROM p{max(levels, 1) - 1} {window}"
        )
    assert living.check("SHOW JOBS")
