"""Statements are parsed to data with their own part of the text; an invalid text is refused with its position."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import UserError
from penstock.ha.schemes import Semantics
from penstock.sql.parse import parse
from penstock.sql.replace_clauses import replace_clauses
from penstock.sql.statements import (
    AlterJob,
    Call,
    Change,
    CreateJob,
    CreateStream,
    DropStream,
    Explain,
    Select,
    SetRecovery,
    Show,
)


def parse_one(text: str) -> object:
    (statement,) = parse(text)
    return statement


def test_create_stream() -> None:
    text = (
        "CREATE STREAM clicks FROM files('logs/*.log', finished => TRUE)\n"
        "  FORMAT json(ts TIMESTAMP 's', user STRUCT<id: BIGINT, tags: ARRAY<STRING>>, n BIGINT)\n"
        "  EVENT TIME ts LATENESS 5 SECONDS IDLE AFTER '1m 30s'"
    )
    assert parse_one(f"{text} ;") == CreateStream(
        "clicks",
        Call("files", ("logs/*.log",), {"finished": True}, (1, 27)),
        Call(
            "json",
            ("ts TIMESTAMP 's'", "user STRUCT<id: BIGINT, tags: ARRAY<STRING>>", "n BIGINT"),
            {},
            (2, 10),
        ),
        "ts",
        5_000_000,
        90_000_000,
        text,
    )


def test_create_stream_without_options() -> None:
    statement = parse_one("create stream calls from call_records(rate => 5.5, total => -1) format call_lines")
    assert isinstance(statement, CreateStream)
    assert statement.log.options == {"rate": 5.5, "total": -1}
    assert (statement.format.name, statement.time, statement.lateness, statement.idle_after) == (
        "call_lines",
        None,
        None,
        None,
    )


def test_create_job() -> None:
    text = (
        "CREATE JOB hot AS WITH a AS (SELECT b FROM c) SELECT b FROM a -- so far\n"
        "INTO jsonl('out/hot'), sqlite('x.db', 't') WITH ($least = -2, $store = 'books', $on = FALSE, $x = NULL)"
    )
    statement = parse_one(text)
    assert isinstance(statement, CreateJob)
    assert statement.name == "hot"
    assert statement.select.text == "WITH a AS (SELECT b FROM c) SELECT b FROM a"
    assert [(sink.name, sink.arguments) for sink in statement.sinks] == [
        ("jsonl", ("out/hot",)),
        ("sqlite", ("x.db", "t")),
    ]
    assert statement.parameters == {"least": -2, "store": "books", "on": False, "x": None}
    assert statement.text == text


def test_create_job_without_sinks() -> None:
    statement = parse_one("CREATE JOB `select` AS SELECT b FROM c WITH ($n = 1)")
    assert isinstance(statement, CreateJob)
    assert (statement.name, statement.sinks, statement.parameters) == ("select", (), {"n": 1})
    assert statement.select.text == "SELECT b FROM c"


@pytest.mark.parametrize(
    "text",
    [
        "CREATE JOB x RECOVERY gap AS SELECT a FROM b WINDOWING 30 SECONDS INTO console()",
        "CREATE JOB x AS SELECT a FROM b WINDOWING 30 SECONDS RECOVERY GAP",
        "CREATE JOB x AS SELECT a FROM b WINDOWING 30 SECONDS recovery gap INTO console() WITH ($n = 1)",
        "CREATE JOB x AS SELECT a FROM b WINDOWING 30 SECONDS INTO console() RECOVERY gap",
        "CREATE JOB x AS SELECT a FROM b WINDOWING 30 SECONDS WITH ($n = 1)\n  RECOVERY gap",
    ],
)
def test_create_job_with_recovery(text: str) -> None:
    statement = parse_one(text)
    assert isinstance(statement, CreateJob)
    assert statement.recovery is Semantics.gap
    assert statement.select.text == "SELECT a FROM b WINDOWING 30 SECONDS"


@pytest.mark.parametrize(
    "query",
    [
        "SELECT recovery FROM b",
        "SELECT b.recovery FROM b",
        "SELECT a AS recovery FROM b",
        "SELECT a FROM b ORDER BY recovery DESC LIMIT 5",
        "SELECT recovery, COUNT(*) AS n FROM b WHERE recovery IS NULL GROUP BY recovery WINDOWING 5 SECONDS",
        "SELECT a FROM recovery WHERE a = recovery",
    ],
)
def test_a_column_may_be_called_recovery(query: str) -> None:
    statement = parse_one(f"CREATE JOB recovery AS {query}")
    assert isinstance(statement, CreateJob)
    assert (statement.recovery, statement.select.text) == (None, query)


def test_alter_the_recovery_of_a_job() -> None:
    text = "ALTER JOB hot SET RECOVERY Rollback"
    assert parse_one(text) == SetRecovery("hot", Semantics.rollback, text)
    assert parse_one("ALTER JOB hot SET RECOVERY DEFAULT").recovery is None  # type: ignore[attr-defined]


@pytest.mark.parametrize("rebuild", [False, True])
def test_alter_job(rebuild: bool) -> None:
    tail = " REBUILD" if rebuild else ""
    whole = parse_one(f"ALTER JOB hot AS SELECT a FROM b{tail}")
    assert isinstance(whole, AlterJob)
    assert whole.select is not None
    assert whole.select.text == "SELECT a FROM b"
    parts = [
        parse_one(f"ALTER JOB hot SET WHERE a > 5 AND b == `x'{tail}"),
        parse_one(f"ALTER JOB hot SET LIMIT 7{tail}"),
        parse_one(f"ALTER JOB hot SET $p = 1, $q = 'z'{tail}"),
    ]
    assert all(isinstance(part, AlterJob) and part.rebuild is rebuild for part in [whole, *parts])
    parsed = [(p.where, p.limit, p.parameters) for p in parts if isinstance(p, AlterJob)]
    assert parsed == [("a > 5 AND b == `x'", None, {}), (None, 7, {}), (None, None, {"p": 1, "q": "z"})]


def test_statements_without_a_query() -> None:
    text = """
        PAUSE JOB hot; resume hot; FLUSH hot; EMPTY JOB hot; DROP hot; DROP JOB hot;
        DROP STREAM clicks; SHOW JOBS; SHOW STREAMS; /* two ways */ EXPLAIN JOB hot; EXPLAIN SELECT a FROM b;;
    """
    statements = parse(text)
    assert [(one.verb, one.name) for one in statements if isinstance(one, Change)] == [
        ("pause", "hot"),
        ("resume", "hot"),
        ("flush", "hot"),
        ("empty", "hot"),
        ("drop", "hot"),
        ("drop", "hot"),
    ]
    assert statements[6:9] == (
        DropStream("clicks", "DROP STREAM clicks"),
        Show("jobs", "SHOW JOBS"),
        Show("streams", "SHOW STREAMS"),
    )
    assert statements[9] == Explain("hot", "EXPLAIN JOB hot")
    last = statements[10]
    assert isinstance(last, Explain)
    assert isinstance(last.what, Select)
    assert last.what.text == "SELECT a FROM b"


def test_a_text_of_comments_has_no_statements() -> None:
    assert parse(" ;; -- nothing\n /* at all */ ;") == ()


def test_semicolons_in_literals_and_comments_separate_no_statements() -> None:
    statements = parse("SELECT ';' AS a FROM b -- ; no\n WHERE c = 'it''s; so'; SHOW JOBS")
    assert [statement.text for statement in statements] == [
        "SELECT ';' AS a FROM b -- ; no\n WHERE c = 'it''s; so'",
        "SHOW JOBS",
    ]


@pytest.mark.parametrize(
    ("text", "where", "hint"),
    [
        ("SELEC a FROM b", "line 1, column 1", "starts with SELECT"),
        ("SELECT a\nFROM b\nWHERE (a = 1", "line 3, column 12", ")"),
        ("SELECT a b c FROM d", "line 1, column 12", "expected"),
        ("SELECT 'abc FROM d", "line 1, column 8", "closed"),
        ("SELECT a FROM d WINDOWING", "line 1, column 17", "30 SECONDS"),
        ("SELECT a FROM d WINDOWING 5", "line 1, column 27", "unit"),
        ("SELECT a FROM b JOIN c ON b.x = c.x WITHIN", "line 1, column 37", "30 SECONDS"),
        ("SELECT a FROM b) ", "line 1, column 16", "Leave it out"),
        ("CREATE STREAM select FROM files('x') FORMAT combined_log", "line 1, column 15", "`select`"),
        ("CREATE STREAM x FORMAT combined_log", "line 1, column 17", "FROM"),
        ("CREATE STREAM x FROM files('a') FORMAT combined_log EVENT ts", "line 1, column 53", "EVENT TIME"),
        ("CREATE STREAM x FROM files('a') FORMAT csv(a INT) LATENESS 5 PARSECS", "line 1, column 60", "unit"),
        ("CREATE STREAM x FROM files(a) FORMAT csv(a INT)", "line 1, column 28", "value"),
        ("CREATE STREAM x FROM files('a'", "line 1, column 31", ","),
        ("CREATE TABLE x", "line 1, column 8", "JOB"),
        ("CREATE JOB x AS SELECT a FROM b INTO", "line 1, column 37", "sink"),
        ("CREATE JOB x AS DROP y", "line 1, column 17", "query"),
        ("CREATE JOB x AS", "line 1, column 16", "query"),
        ("ALTER JOB x SET", "line 1, column 16", "WHERE"),
        ("ALTER JOB x SET WHERE", "line 1, column 22", "condition"),
        ("ALTER JOB x SET WHERE a >", "line 1, column 25", ""),
        ("ALTER JOB x SET LIMIT 0", "line 1, column 23", "at least 1"),
        ("ALTER JOB x SET $p 5", "line 1, column 20", "="),
        ("PAUSE JOB", "line 1, column 10", "name of a job"),
        ("PAUSE JOB a b", "line 1, column 13", "end"),
        ("SHOW TABLES", "line 1, column 6", "JOBS"),
        ("DROP TABLE x", "line 1, column 6", "word of the language"),
    ],
)
def test_an_invalid_statement_is_refused_with_its_position_and_a_hint(
    text: str, where: str, hint: str
) -> None:
    with pytest.raises(UserError) as caught:
        parse(text)
    error = caught.value
    assert (error.condition, error.where) == ("BAD_SQL", where)
    assert error.hint is not None
    assert hint in error.hint
    assert error.detail is not None
    line, caret = error.detail.split("\n")[1:]
    assert line.strip() in text
    assert caret.strip() == "^"


def test_the_caret_is_under_the_position_in_a_long_line() -> None:
    with pytest.raises(UserError) as caught:
        parse(f"SELECT {'a, ' * 500} a b c FROM d")
    assert caught.value.detail is not None
    line, caret = caught.value.detail.split("\n")[1:]
    assert line[caret.index("^")] == "c"
    assert len(line) < 140


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "SELECT " + "(" * 2000 + "1" + ")" * 2000,
        "SELECT " + "NOT " * 5000 + "a FROM b",
        "SELECT " + "CASE WHEN a THEN " * 400 + "1" + " END" * 400 + " FROM b",
        "SELECT " + "1 + " * 3000 + "1 FROM b",
        "SELECT " + "- " * 3000 + "1 FROM b",
        "SELECT a FROM " + "(SELECT a FROM " * 300 + "b" + ")" * 300,
        "ALTER JOB x SET WHERE " + "NOT " * 5000 + "a",
    ],
)
def test_a_query_that_is_nested_too_deeply_is_refused(text: str) -> None:
    with pytest.raises(UserError) as caught:
        parse(text)
    assert caught.value.condition == "QUERY_TOO_DEEP"


def test_long_chains_of_conditions_are_not_deep() -> None:
    parse("SELECT a FROM b WHERE " + " OR ".join(["a = 1"] * 3000))


def test_a_text_that_is_too_long_is_refused_at_once() -> None:
    with pytest.raises(UserError) as caught:
        parse("SELECT " + "a" * 1_000_001)
    assert caught.value.condition == "QUERY_TOO_LONG"


@pytest.mark.parametrize(
    ("text", "where", "limit", "expected"),
    [
        ("SELECT a FROM b", "c = 1", None, "SELECT a FROM b WHERE c = 1"),
        ("SELECT a FROM b WHERE x LIMIT 3", None, 5, "SELECT a FROM b WHERE x LIMIT 5"),
        (
            "SELECT a, '(WHERE' FROM b WHERE x = `y' -- now\nGROUP BY a WINDOWING 5 SECONDS",
            "z OR y",
            2,
            "SELECT a, '(WHERE' FROM b WHERE z OR y -- now\nGROUP BY a LIMIT 2 WINDOWING 5 SECONDS",
        ),
        (
            "WITH q AS (SELECT a FROM b WHERE t LIMIT 1) SELECT a FROM q JOIN r ON q.a = r.a WITHIN 5 SECONDS",
            "u",
            None,
            "WITH q AS (SELECT a FROM b WHERE t LIMIT 1) SELECT a FROM q JOIN r ON q.a = r.a WITHIN 5 SECONDS WHERE u",
        ),
        ("SELECT a FROM b", None, None, "SELECT a FROM b"),
    ],
)
def test_replacing_the_filter_or_limit_of_a_query(
    text: str, where: str | None, limit: int | None, expected: str
) -> None:
    query = parse_one(text)
    assert isinstance(query, Select)
    changed = replace_clauses(query, where, limit)
    assert changed.text == expected
    assert replace_clauses(changed, where, limit) == changed
    assert parse_one(changed.text) == changed


def test_a_union_has_no_filter_to_change() -> None:
    query = parse_one("SELECT a FROM b UNION ALL SELECT c FROM d")
    assert isinstance(query, Select)
    with pytest.raises(UserError) as caught:
        replace_clauses(query, "a = 1", None)
    assert caught.value.condition == "BAD_ALTER"


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="SELECT FROMWHR'`\"();,*$=<>-/\\\n\tab1.é", max_size=60))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    assert condition_of(text) in (None, "BAD_SQL", "QUERY_TOO_DEEP")


def condition_of(text: str) -> str | None:
    """The condition with which a text is refused; None if it is parsed."""
    try:
        parse(text)
    except UserError as error:
        return error.condition
    return None


WORDS = "SELECT FROM WHERE GROUP BY ORDER LIMIT JOIN ON WITHIN WINDOWING SECONDS a b , ( ) * = 'x' 5 $ AS CASE END ."


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(WORDS.split()), max_size=14))
def test_any_words_are_parsed_or_refused(words: list[str]) -> None:
    assert condition_of("SELECT " + " ".join(words)) in (None, "BAD_SQL")
