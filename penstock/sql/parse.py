"""Parse a text of one or several statements. Queries go through sqlglot, the rest is read token by token.

Raises `UserError` BAD_SQL (with the position), QUERY_TOO_LONG or QUERY_TOO_DEEP.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.tokenizer_core import Token, TokenType

from penstock.ha.schemes import Semantics
from penstock.sql.parsed_texts import find_parsed, remember_parsed
from penstock.sql.query_parser import check_condition, read_select, read_tokens
from penstock.sql.statements import (
    NEVER,
    AlterJob,
    Call,
    Change,
    CreateJob,
    CreateStream,
    DropStream,
    Explain,
    Scalar,
    Select,
    SetRecovery,
    Show,
    Statement,
    Verb,
)
from penstock.sql.token_reader import RESERVED, TokenReader, is_keyword, nesting_depths

_VERBS: dict[str, Verb] = {
    "PAUSE": "pause",
    "RESUME": "resume",
    "FLUSH": "flush",
    "EMPTY": "empty",
    "DROP": "drop",
}
_STATEMENTS = (
    "a statement starts with SELECT, WITH, CREATE, ALTER, DROP, PAUSE, RESUME, FLUSH, EMPTY, SHOW or EXPLAIN"
)


def parse(text: str) -> tuple[Statement, ...]:
    """The statements of a text, in order; they are separated by semicolons."""
    if (parsed := find_parsed(text)) is not None:
        return parsed
    statements = tuple(
        _read_statement(TokenReader(text, tokens)) for tokens in _split_statements(read_tokens(text))
    )
    remember_parsed(text, statements)
    return statements


def _split_statements(tokens: Sequence[Token]) -> list[list[Token]]:
    statements: list[list[Token]] = [[]]
    for token in tokens:
        if token.token_type == TokenType.SEMICOLON:
            statements.append([])
        else:
            statements[-1].append(token)
    return [statement for statement in statements if statement]


def _read_statement(reader: TokenReader) -> Statement:
    if reader.next_is("SELECT") or reader.next_is("WITH") or reader.next_is("("):
        return read_select(reader)
    if reader.accept("CREATE"):
        if reader.accept("STREAM"):
            return _create_stream(reader)
        reader.expect("JOB")
        return _create_job(reader)
    if reader.accept("ALTER"):
        reader.expect("JOB")
        return _alter_job(reader)
    if reader.accept("SHOW"):
        streams = reader.accept("STREAMS")
        if not streams and not reader.accept("JOBS"):
            reader.fail("JOBS or STREAMS was expected here")
        reader.end()
        return Show("streams" if streams else "jobs", reader.text)
    if reader.accept("EXPLAIN"):
        if reader.accept("JOB"):
            job = reader.name("the name of a job")
            reader.end()
            return Explain(job, reader.text)
        return Explain(read_select(reader), reader.text)
    if reader.accept("DROP", "STREAM"):
        if_exists = reader.accept("IF", "EXISTS")
        name = reader.name("the name of a stream")
        reader.end()
        return DropStream(name, reader.text, if_exists)
    for word, verb in _VERBS.items():
        if reader.accept(word):
            if_exists = reader.accept("JOB") and verb == "drop" and reader.accept("IF", "EXISTS")
            name = reader.name("the name of a job")
            reader.end()
            return Change(verb, name, reader.text, if_exists)
    reader.fail(_STATEMENTS)


def _create_stream(reader: TokenReader) -> CreateStream:
    if_not_exists = reader.accept("IF", "NOT", "EXISTS")
    name = reader.name("the name of the stream")
    reader.expect("FROM")
    log = reader.call("a log, such as files('logs/*.log'),")
    reader.expect("FORMAT")
    format_ = reader.call("a format, such as combined_log or json(...),", columns=True)
    time: str | None = None
    lengths: dict[str, int] = {}
    while not reader.at_end:
        if time is None and reader.accept("EVENT", "TIME"):
            time = reader.name("the column of the event time")
        elif "lateness" not in lengths and reader.accept("LATENESS"):
            lengths["lateness"] = reader.duration()
        elif "idle" not in lengths and reader.accept("IDLE", "AFTER"):
            lengths["idle"] = NEVER if reader.accept("NEVER") else reader.duration()
        else:
            reader.fail("EVENT TIME, LATENESS, IDLE AFTER or the end of the statement was expected here")
    return CreateStream(
        name, log, format_, time, lengths.get("lateness"), lengths.get("idle"), reader.text, if_not_exists
    )


def _create_job(reader: TokenReader) -> CreateJob:
    if_not_exists = reader.accept("IF", "NOT", "EXISTS")
    name = reader.name("the name of the job")
    recovery = _read_recovery(reader) if reader.accept("RECOVERY") else None
    reader.expect("AS")
    select = read_select(reader, _query_end(reader, recovery is None))
    if recovery is None and reader.accept("RECOVERY"):
        recovery = _read_recovery(reader)
    sinks: list[Call] = []
    while reader.accept("," if sinks else "INTO"):
        sinks.append(reader.call("a sink, such as jsonl('out/top'),"))
    parameters = _read_parameters(reader)
    if recovery is None and reader.accept("RECOVERY"):
        recovery = _read_recovery(reader)
    reader.end()
    return CreateJob(name, select, tuple(sinks), parameters, reader.text, recovery, if_not_exists)


def _read_recovery(reader: TokenReader) -> Semantics:
    """Read what a job may lose or repeat: `gap`."""
    for one in Semantics:
        if reader.accept(one.upper()):
            return one
    reader.fail(f"a job's recovery is one of {', '.join(Semantics)}")


def _query_end(reader: TokenReader, may_recover: bool) -> int:
    """The token after a job's query: INTO, WITH ($..., RECOVERY, or the end of the statement."""
    tokens, opened = reader.tokens, nesting_depths(reader.tokens)
    for at in range(reader.at, len(tokens)):
        if opened[at] == 0 and is_keyword(tokens[at], "INTO"):
            return at
        follows = tokens[at + 1 : at + 3]
        if opened[at] == 0 and is_keyword(tokens[at], "WITH") and [one.text for one in follows] == ["(", "$"]:
            return at
        if (
            may_recover
            and opened[at] == 0
            and is_keyword(tokens[at], "RECOVERY")
            and _is_query_end(tokens, at)
        ):
            return at
    return len(tokens)


def _is_query_end(tokens: Sequence[Token], at: int) -> bool:
    """Whether the query ends before RECOVERY, which could be the name of a column.

    It does if an operand or the last word of a clause precedes it, and one more word follows, or one more word and the
    next clause.
    """
    before = tokens[at - 1]
    operand = before.token_type in (
        TokenType.NUMBER,
        TokenType.STRING,
        TokenType.IDENTIFIER,
        TokenType.R_PAREN,
    )
    named = before.text.isidentifier() and before.text.upper() not in RESERVED
    follows = tokens[at + 1 : at + 3]
    if not (operand or named or is_keyword(before, "ASC", "DESC", "END", "NULL", "TRUE", "FALSE")):
        return False
    if len(follows) == 2:
        return is_keyword(follows[1], "INTO", "WITH")
    return not follows or not is_keyword(follows[0], "ASC", "DESC")


def _read_parameters(reader: TokenReader) -> dict[str, Scalar]:
    """Read `WITH ($name = value, ...)`, if it is there."""
    if not reader.accept("WITH"):
        return {}
    reader.expect("(")
    parameters = _read_assignments(reader)
    reader.expect(")")
    return parameters


def _read_assignments(reader: TokenReader) -> dict[str, Scalar]:
    """Read `$name = value, ...`."""
    parameters: dict[str, Scalar] = {}
    while True:
        reader.expect("$")
        name = reader.name("the name of a parameter", reserved=True)
        if not (reader.accept("=") or reader.accept("==")):
            reader.fail("= was expected here")
        parameters[name] = reader.value()
        if not reader.accept(","):
            return parameters


def _alter_job(reader: TokenReader) -> AlterJob | SetRecovery:
    name = reader.name("the name of the job")
    if reader.accept("SET", "RECOVERY"):
        recovery = None if reader.accept("DEFAULT") else _read_recovery(reader)
        reader.end()
        return SetRecovery(name, recovery, reader.text)
    rebuild = is_keyword(reader.tokens[-1], "REBUILD")
    select: Select | None = None
    where: str | None = None
    limit: int | None = None
    parameters: dict[str, Scalar] = {}
    end = len(reader.tokens) - rebuild
    if reader.accept("AS"):
        end = min(_query_end(reader, False), end)
        select = read_select(reader, end)
        parameters = _read_parameters(reader)
    else:
        reader.expect("SET")
        if reader.accept("WHERE"):
            if reader.at >= end:
                reader.fail("a condition was expected here")
            end = min(_query_end(reader, False), end)
            check_condition(reader, end)
            where = reader.slice(reader.at, end)
            reader.at = end
            parameters = _read_parameters(reader)
        elif reader.accept("LIMIT"):
            count = reader.value()
            if not isinstance(count, int) or isinstance(count, bool) or count < 1:
                reader.fail("a whole number of at least 1 was expected here", at=reader.at - 1)
            limit = count
        elif reader.next_is("$"):
            parameters = _read_assignments(reader)
        else:
            reader.fail("WHERE, LIMIT, RECOVERY or a $parameter was expected here")
    reader.accept("REBUILD")
    reader.end()
    return AlterJob(name, select, where, limit, parameters, rebuild, reader.text)
