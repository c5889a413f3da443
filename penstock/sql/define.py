"""CREATE STREAM and INTO: from names with arguments to logs, decoders and sinks.

Receives statements; hands a `Stream` or sinks, or raises `UserError` at the name that is wrong.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import polars as pl
from sqlglot import exp
from sqlglot.errors import ParseError
from sqlglot.tokenizer_core import TokenType

from penstock.decode import Cookie, Decoder, Delimited, JsonLines, call_lines, combined_log
from penstock.errors import UserError
from penstock.ingest.segment_log import SegmentLog
from penstock.logs import CallLog, FileLog, GeneratedLog, KafkaLog, Log, RedisLog
from penstock.logs.rates import Shape
from penstock.query.stream import Stream, stream
from penstock.sinks import Console, HttpPush, KafkaTopic, Parquet, Postgres, RedisStream, Sink, Sqlite
from penstock.sinks import JsonLines as JsonLinesSink
from penstock.sql.dialect import Penstock, tokens_of
from penstock.sql.places import nearest, said
from penstock.sql.statements import NEVER, Call, CreateStream
from penstock.sql.types import dtype_of
from penstock.sql.words import Words, is_word

_LOGS: Mapping[str, Callable[..., Log]] = {
    "files": FileLog,
    "segments": SegmentLog,
    "generated": GeneratedLog,
    "call_records": CallLog,
    "kafka": KafkaLog,
    "redis": RedisLog,
}
_SINKS: Mapping[str, Callable[..., Sink]] = {
    "jsonl": JsonLinesSink,
    "parquet": Parquet,
    "sqlite": Sqlite,
    "console": Console,
    "postgres": Postgres,
    "kafka": KafkaTopic,
    "redis": RedisStream,
    "http_push": HttpPush,
}
_FORMATS = ("json", "csv", "combined_log", "call_lines")
#: what cannot be said in SQL
_NOT_SAID = {"self", "clock", "output", "shape", "settings", "headers"}
_CSV_OPTIONS = {"separator": "separator", "quote": "quote", "header": "has_header"}
_LOG_OPTIONS = ("common", "extra", "cookie")


def stream_of(statement: CreateStream) -> Stream:
    """The stream that a statement defines."""
    with _at(statement.log):
        log = _log(statement.log)
    with _at(statement.format):
        decoder = _decoder(statement.format)
    more: dict[str, Any] = {}
    if statement.lateness is not None:
        more["lateness"] = timedelta(microseconds=statement.lateness)
    if statement.idle_after is not None:
        never = statement.idle_after == NEVER
        more["idle_after"] = None if never else timedelta(microseconds=statement.idle_after)
    with _at(statement.format):
        return stream(statement.name, log, decoder, time=statement.time, **more)


def sinks_of(calls: Sequence[Call]) -> tuple[Sink, ...]:
    """The sinks that INTO names."""
    made = []
    for call in calls:
        with _at(call):
            maker = _known(call.name, _SINKS, "sink")
            made.append(_SINKS[maker](*call.arguments, **_options(call, _SINKS[maker], len(call.arguments))))
    return tuple(made)


def _log(call: Call) -> Log:
    maker = _LOGS[_known(call.name, _LOGS, "log")]
    options = _options(call, maker, 1 if call.arguments else 0)
    if maker is FileLog:
        if not call.arguments or not all(isinstance(glob, str) for glob in call.arguments):
            raise _bad("files needs the glob of its files", "As in files('logs/*.log').")
        return FileLog([str(glob) for glob in call.arguments], **options)
    if maker is SegmentLog:
        return SegmentLog(*map(str, call.arguments), **options)
    if maker in (KafkaLog, RedisLog):
        return maker(*map(str, call.arguments), **options)
    if call.arguments:
        raise _bad(f"{call.name} takes options only", f"As in {call.name}(total => 1000, live => FALSE).")
    if isinstance(options.get("start_time"), str):
        options["start_time"] = datetime.fromisoformat(options["start_time"])
    return maker(**options)


def _decoder(call: Call) -> Decoder:
    name = _known(call.name, _FORMATS, "format")
    if name == "json":
        columns, times = _columns(call)
        _none_but(call, ())
        return JsonLines(columns, times)
    if name == "csv":
        columns, times = _columns(call)
        _none_but(call, tuple(_CSV_OPTIONS))
        options: dict[str, Any] = {_CSV_OPTIONS[option]: value for option, value in call.options.items()}
        return Delimited(columns, times=times, **options)
    if call.arguments:
        raise _bad(f"{name} has columns of its own", f"Leave them out: FORMAT {name}.")
    if name == "call_lines":
        _none_but(call, ())
        return call_lines()
    _none_but(call, _LOG_OPTIONS)
    extra: list[str | Cookie] = [part.strip() for part in str(call.options.get("extra") or "").split(",")]
    extra = [part for part in extra if part]
    if cookie := call.options.get("cookie"):
        extra.append(Cookie(str(cookie)))
    return combined_log(extra, bool(call.options.get("common", False)))


def _columns(call: Call) -> tuple[dict[str, pl.DataType], dict[str, str]]:
    """The columns with their types, and the formats of times."""
    columns: dict[str, pl.DataType] = {}
    times: dict[str, str] = {}
    if not call.arguments:
        raise _bad(
            f"{call.name} needs its columns", f"As in {call.name}(ts TIMESTAMP, path STRING, n BIGINT)."
        )
    for definition in map(str, call.arguments):
        words = Words(definition, tokens_of(definition))
        name = words.name("the name of a column")
        tokens = list(words.tokens[words.at :])
        if len(tokens) > 1 and tokens[-1].token_type == TokenType.STRING:
            times[name] = tokens.pop().text
            if is_word(tokens[-1], "FORMAT"):
                tokens.pop()
        try:
            found = Penstock().parser().parse_into(exp.DataType, tokens, definition) if tokens else []
            kind = found[0] if found else None
        except ParseError:
            kind = None
        if kind is None:
            raise _bad(f"{definition!r} is no column", "Write its name and type, as in clicks_count BIGINT.")
        if name in columns:
            raise UserError("NAME_TAKEN", f"two columns are called {name!r}")
        columns[name] = dtype_of(kind)
    return columns, times


def _options(call: Call, maker: Callable[..., Any], positional: int) -> dict[str, Any]:
    """The options of a call that its maker knows."""
    signature = inspect.signature(maker).parameters
    known = [name for name in signature if name not in _NOT_SAID][positional:]
    if "shape" in signature:
        known += list(Shape.__annotations__)
    _none_but(call, known)
    needed = [
        name
        for name, parameter in list(signature.items())[len(call.arguments) :]
        if parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    takes = [name for name, one in signature.items() if one.kind is one.POSITIONAL_OR_KEYWORD]
    missing = [name for name in needed if name not in call.options]
    if missing or (maker is not FileLog and len(call.arguments) > len(takes)):
        told = ", ".join(takes) or "options only"
        raise _bad(f"{call.name} has {len(call.arguments)} arguments here", f"It takes {told}.")
    return dict(call.options)


def _none_but(call: Call, known: Sequence[str]) -> None:
    for option in call.options:
        if option not in known:
            there_are = f"There are {', '.join(known)}." if known else "It has none."
            raise UserError(
                "UNKNOWN_OPTION",
                f"{call.name} has no option {option!r}",
                hint=nearest(option, known) or there_are,
            )


def _known(name: str, known: Mapping[str, Any] | Sequence[str], what: str) -> str:
    if name not in known:
        raise UserError(
            f"UNKNOWN_{what.upper()}",
            f"there is no {what} {name!r}",
            hint=nearest(name, known) or f"There are {', '.join(known)}.",
        )
    return name


def _bad(primary: str, hint: str) -> UserError:
    return UserError("BAD_SQL", primary, hint=hint)


@contextmanager
def _at(call: Call) -> Iterator[None]:
    """What is wrong in here is wrong at this call."""
    where = said(*call.at) if call.at[0] else f"sink {call.at[1]}"
    try:
        yield
    except UserError as error:
        raise UserError(
            error.condition, error.primary, where=where, detail=error.detail, hint=error.hint
        ) from None
    except (TypeError, ValueError) as error:
        raise UserError(
            "BAD_ARGUMENT", f"{call.name} cannot be made of this", where=where, detail=str(error)
        ) from None
