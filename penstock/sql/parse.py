"""Text to statements. The parts that are queries go through sqlglot, the rest is read word by word.

Receives a text of one or several statements; hands them with their own slices of it, or raises `UserError` with
BAD_SQL (and the place), QUERY_TOO_LONG or QUERY_TOO_DEEP.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.tokenizer_core import Token, TokenType

from penstock.ha.schemes import Semantics
from penstock.sql.alter import altered
from penstock.sql.queries import check_condition, select_of, tokenized
from penstock.sql.statements import (
    NEVER,
    AlterJob,
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
from penstock.sql.words import RESERVED, Words, depths, is_word

__all__ = ["altered", "parse"]

_VERBS: dict[str, Verb] = {
    "PAUSE": "pause",
    "RESUME": "resume",
    "FLUSH": "flush",
    "EMPTY": "empty",
    "DROP": "drop",
}
_STATEMENTS = (
    "a statement begins with SELECT, WITH, CREATE, ALTER, DROP, PAUSE, RESUME, FLUSH, EMPTY, SHOW or EXPLAIN"
)


def parse(text: str) -> tuple[Statement, ...]:
    """The statements of a text, in order; they are separated by semicolons."""
    return tuple(_statement(Words(text, tokens)) for tokens in _separated(tokenized(text)))


def _separated(tokens: Sequence[Token]) -> list[list[Token]]:
    found: list[list[Token]] = [[]]
    for token in tokens:
        if token.token_type == TokenType.SEMICOLON:
            found.append([])
        else:
            found[-1].append(token)
    return [statement for statement in found if statement]


def _statement(words: Words) -> Statement:
    if words.next_is("SELECT") or words.next_is("WITH") or words.next_is("("):
        return select_of(words)
    if words.accept("CREATE"):
        if words.accept("STREAM"):
            return _create_stream(words)
        words.expect("JOB")
        return _create_job(words)
    if words.accept("ALTER"):
        words.expect("JOB")
        return _alter_job(words)
    if words.accept("SHOW"):
        what = "streams" if words.accept("STREAMS") else "jobs" if words.accept("JOBS") else None
        if what is None:
            words.refuse("JOBS or STREAMS was expected here")
        words.end()
        return Show("streams" if what == "streams" else "jobs", words.text)
    if words.accept("EXPLAIN"):
        if words.accept("JOB"):
            job = words.name("the name of a job")
            words.end()
            return Explain(job, words.text)
        return Explain(select_of(words), words.text)
    if words.accept("DROP", "STREAM"):
        if_there = words.accept("IF", "EXISTS")
        name = words.name("the name of a stream")
        words.end()
        return DropStream(name, words.text, if_there)
    for word, verb in _VERBS.items():
        if words.accept(word):
            if_there = words.accept("JOB") and verb == "drop" and words.accept("IF", "EXISTS")
            name = words.name("the name of a job")
            words.end()
            return Change(verb, name, words.text, if_there)
    words.refuse(_STATEMENTS)


def _create_stream(words: Words) -> CreateStream:
    if_missing = words.accept("IF", "NOT", "EXISTS")
    name = words.name("the name of the stream")
    words.expect("FROM")
    log = words.call("a log, such as files('logs/*.log'),")
    words.expect("FORMAT")
    form = words.call("a format, such as combined_log or json(...),", columns=True)
    time: str | None = None
    lengths: dict[str, int] = {}
    while not words.done:
        if time is None and words.accept("EVENT", "TIME"):
            time = words.name("the column of the event time")
        elif "lateness" not in lengths and words.accept("LATENESS"):
            lengths["lateness"] = words.length()
        elif "idle" not in lengths and words.accept("IDLE", "AFTER"):
            lengths["idle"] = NEVER if words.accept("NEVER") else words.length()
        else:
            words.refuse("EVENT TIME, LATENESS, IDLE AFTER or the end of the statement was expected here")
    kept = lengths.get("lateness"), lengths.get("idle")
    return CreateStream(name, log, form, time, *kept, words.text, if_missing)


def _create_job(words: Words) -> CreateJob:
    if_missing = words.accept("IF", "NOT", "EXISTS")
    name = words.name("the name of the job")
    recovery = _recovery(words) if words.accept("RECOVERY") else None
    words.expect("AS")
    select = select_of(words, _query_end(words, recovery is None))
    if recovery is None and words.accept("RECOVERY"):
        recovery = _recovery(words)
    sinks = []
    if words.accept("INTO"):
        sinks.append(words.call("a sink, such as jsonl('out/top'),"))
        while words.accept(","):
            sinks.append(words.call("a sink, such as jsonl('out/top'),"))
    parameters = _values(words)
    if recovery is None and words.accept("RECOVERY"):
        recovery = _recovery(words)
    words.end()
    return CreateJob(name, select, tuple(sinks), parameters, words.text, recovery, if_missing)


def _recovery(words: Words) -> Semantics:
    """Read what a job may lose or repeat: `gap`."""
    for one in Semantics:
        if words.accept(one.upper()):
            return one
    words.refuse(f"a job's recovery is one of {', '.join(Semantics)}")


def _query_end(words: Words, may_recover: bool) -> int:
    """Where a job's query ends: before INTO, before its parameters, before its recovery, or with the statement."""
    tokens, opened = words.tokens, depths(words.tokens)
    for at in range(words.at, len(tokens)):
        if opened[at] == 0 and is_word(tokens[at], "INTO"):
            return at
        follows = tokens[at + 1 : at + 3]
        if opened[at] == 0 and is_word(tokens[at], "WITH") and [one.text for one in follows] == ["(", "$"]:
            return at
        if may_recover and opened[at] == 0 and is_word(tokens[at], "RECOVERY") and _ends(tokens, at):
            return at
    return len(tokens)


def _ends(tokens: Sequence[Token], at: int) -> bool:
    """Whether the query is over before RECOVERY, which might be a column's name: what comes before it ends something,
    and one more word comes, or the next clause after that."""
    before = tokens[at - 1]
    operand = before.token_type in (
        TokenType.NUMBER,
        TokenType.STRING,
        TokenType.IDENTIFIER,
        TokenType.R_PAREN,
    )
    named = before.text.isidentifier() and before.text.upper() not in RESERVED
    follows = tokens[at + 1 : at + 3]
    if not (operand or named or is_word(before, "ASC", "DESC", "END", "NULL", "TRUE", "FALSE")):
        return False
    if len(follows) == 2:
        return is_word(follows[1], "INTO", "WITH")
    return not follows or not is_word(follows[0], "ASC", "DESC")


def _values(words: Words) -> dict[str, Scalar]:
    """Read `WITH ($name = value, ...)`, if it is there."""
    if not words.accept("WITH"):
        return {}
    words.expect("(")
    found = _assignments(words)
    words.expect(")")
    return found


def _assignments(words: Words) -> dict[str, Scalar]:
    """Read `$name = value, ...`."""
    found: dict[str, Scalar] = {}
    while True:
        words.expect("$")
        name = words.name("the name of a parameter", reserved=True)
        if not (words.accept("=") or words.accept("==")):
            words.refuse("= was expected here")
        found[name] = words.value()
        if not words.accept(","):
            return found


def _alter_job(words: Words) -> AlterJob | SetRecovery:
    name = words.name("the name of the job")
    if words.accept("SET", "RECOVERY"):
        recovery = None if words.accept("DEFAULT") else _recovery(words)
        words.end()
        return SetRecovery(name, recovery, words.text)
    rebuild = is_word(words.tokens[-1], "REBUILD")
    select: Select | None = None
    where: str | None = None
    limit: int | None = None
    parameters: dict[str, Scalar] = {}
    end = len(words.tokens) - rebuild
    if words.accept("AS"):
        end = min(_query_end(words, False), end)
        select = select_of(words, end)
        parameters = _values(words)
    else:
        words.expect("SET")
        if words.accept("WHERE"):
            if words.at >= end:
                words.refuse("a condition was expected here")
            end = min(_query_end(words, False), end)
            check_condition(words, end)
            where = words.slice(words.at, end)
            words.at = end
            parameters = _values(words)
        elif words.accept("LIMIT"):
            given = words.value()
            if not isinstance(given, int) or isinstance(given, bool) or given < 1:
                words.refuse("a whole number of at least 1 was expected here", at=words.at - 1)
            limit = given
        elif words.next_is("$"):
            parameters = _assignments(words)
        else:
            words.refuse("WHERE, LIMIT, RECOVERY or a $parameter was expected here")
    words.accept("REBUILD")
    words.end()
    return AlterJob(name, select, where, limit, parameters, rebuild, words.text)
