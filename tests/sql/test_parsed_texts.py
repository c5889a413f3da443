"""A request is parsed once, whoever reads it; positions in a query count from its first word."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlglot import exp

from penstock.catalogue.program import Program
from penstock.errors import UserError
from penstock.server.statement_guard import StatementGuard
from penstock.sql import query_parser
from penstock.sql.parse import parse
from penstock.sql.parsed_texts import parse_once
from penstock.sql.statements import CreateJob, Select

STREAM = (
    "CREATE STREAM clicks FROM files('clicks/*.log') "
    "FORMAT json(ts TIMESTAMP, page STRING, n BIGINT) EVENT TIME ts"
)
QUERIES = [
    "SELECT page, n FROM clicks WHERE n > 3",
    "SELECT page,\n  COUNT(*) AS `a\nb`, 'a\n  text' AS t\n\tFROM clicks -- why\nGROUP BY page\nWINDOWING 5 SECONDS",
    "WITH a AS (\n SELECT page FROM clicks /* one\n two */ WHERE page LIKE 'ä%')\nSELECT page FROM a UNION ALL "
    "SELECT page FROM a",
    "(SELECT page FROM clicks)",
]


def _positions(tree: exp.Expr) -> list[tuple[str, object]]:
    return [(type(node).__name__, dict(node.meta)) for node in tree.walk()]


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("before", ["", "SHOW JOBS;\n\n  SHOW JOBS; ", "SHOW JOBS; /* a\nb */"])
def test_the_tree_of_a_jobs_query_is_that_of_its_text_alone(query: str, before: str) -> None:
    (*_, job) = parse(f"{before}CREATE JOB x AS {query}\n INTO console() ;SHOW JOBS")[:-1]
    (alone,) = parse(query)
    assert isinstance(job, CreateJob)
    assert isinstance(alone, Select)
    assert job.select == alone
    assert _positions(job.select.tree) == _positions(alone.tree)


@pytest.mark.parametrize("line", ["SELECT page FRM clicks", "SELECT page FROM clicks WHERE ) 1"])
def test_what_cannot_be_parsed_is_found_in_the_whole_text(line: str) -> None:
    with pytest.raises(UserError, match="BAD_SQL") as error:
        parse(f"SHOW JOBS;\nCREATE JOB x AS\n   {line}")
    assert error.value.where is not None
    assert error.value.where.startswith("line 3, column ")
    assert line in error.value.text()


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The first words of the texts that are parsed to trees."""
    texts: list[str] = []
    real = query_parser._parse

    def count(text: str, tokens: list[object], kind: type[exp.Expr]) -> exp.Expr:
        texts.append(text)
        return real(text, tokens, kind)  # type: ignore[arg-type]

    monkeypatch.setattr(query_parser, "_parse", count)
    return texts


def test_a_statement_is_parsed_once_to_be_guarded_checked_and_compiled(
    tmp_path: Path, parsed: list[str]
) -> None:
    program, text = (
        Program("test", tmp_path),
        "CREATE JOB x AS SELECT page, $p AS p FROM clicks WITH ($p = 1)",
    )
    program.execute(STREAM)
    with parse_once():
        StatementGuard([], tmp_path).check(parse(text))
        program.execute(text)
    assert parsed == [text]
    program.execute("ALTER JOB x AS SELECT page FROM clicks")
    assert len(parsed) == 2


def test_nothing_is_remembered_after_a_request(parsed: list[str]) -> None:
    with parse_once(), parse_once():
        assert parse("SELECT a FROM b") is parse("SELECT a FROM b")
    assert parse("SELECT a FROM b") == parse("SELECT a FROM b")
    assert len(parsed) == 3
