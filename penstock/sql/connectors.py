"""Build the logs, decoders and sinks that CREATE STREAM and INTO name.

What is wrong raises `UserError` with the position of the name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
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
from penstock.secret_store import is_reference
from penstock.sinks import Console, HttpPush, KafkaTopic, Parquet, Postgres, RedisStream, Sink, Sqlite
from penstock.sinks import JsonLines as JsonLinesSink
from penstock.sql.dialect import Penstock, tokenize
from penstock.sql.errors import format_position, suggest_name
from penstock.sql.query_parser import MOST_PARENTHESES
from penstock.sql.statements import NEVER, Call, CreateStream
from penstock.sql.token_reader import TokenReader, is_keyword
from penstock.sql.types import dtype_of

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
#: what looks up a secret that is its address
_TAKE_SECRETS = (RedisLog, Postgres, RedisStream)
_FORMATS = ("json", "csv", "combined_log", "call_lines")
#: parameters of the Python API that SQL does not have
_PYTHON_ONLY = {"self", "clock", "output", "shape", "settings", "headers"}
_CSV_OPTIONS = {"separator": "separator", "quote": "quote", "header": "has_header"}
_LOG_OPTIONS = ("common", "extra", "cookie")
#: in which generated events may start
_YEARS = 1900, 2200


def build_stream(statement: CreateStream) -> Stream:
    """The stream that a statement declares."""
    with _errors_at(statement.log):
        log = _build_log(statement.log)
    with _errors_at(statement.format):
        decoder = _build_decoder(statement.format)
    more: dict[str, Any] = {}
    if statement.lateness is not None:
        more["lateness"] = timedelta(microseconds=statement.lateness)
    if statement.idle_after is not None:
        never = statement.idle_after == NEVER
        more["idle_after"] = None if never else timedelta(microseconds=statement.idle_after)
    with _errors_at(statement.format):
        return stream(statement.name, log, decoder, time=statement.time, **more)


def build_sinks(calls: Sequence[Call]) -> tuple[Sink, ...]:
    """The sinks that INTO names."""
    sinks = []
    for call in calls:
        with _errors_at(call):
            factory = _SINKS[_check_name(call.name, _SINKS, "sink")]
            if factory is Console and call.arguments:
                raise _syntax_error("console takes options only", "")
            sinks.append(factory(*call.arguments, **_options(call, factory, len(call.arguments))))
    return tuple(sinks)


def _build_log(call: Call) -> Log:
    factory = _LOGS[_check_name(call.name, _LOGS, "log")]
    options = _options(call, factory, 1 if call.arguments else 0)
    if factory is FileLog:
        if not call.arguments or not all(isinstance(glob, str) for glob in call.arguments):
            raise _syntax_error("files needs the glob of its files", "As in files('logs/*.log').")
        return FileLog([str(glob) for glob in call.arguments], **options)
    if factory is SegmentLog:
        return SegmentLog(*map(str, call.arguments), **options)
    if factory in (KafkaLog, RedisLog):
        return factory(*map(str, call.arguments), **options)
    if call.arguments:
        raise _syntax_error(
            f"{call.name} takes options only", f"As in {call.name}(total => 1000, live => FALSE)."
        )
    if "start_time" in options:
        options["start_time"] = _read_time(options["start_time"])
    return factory(**options)


def _read_time(value: object) -> datetime:
    """The start of generated events, in the years that events can have."""
    if isinstance(value, str):
        with suppress(ValueError, OverflowError):
            time = datetime.fromisoformat(value)
            time = time.replace(tzinfo=time.tzinfo or UTC).astimezone(UTC)
            if _YEARS[0] <= time.year <= _YEARS[1]:
                return time
    raise UserError(
        "BAD_ARGUMENT",
        f"{str(value)[:50]!r} is no time to start at",
        hint=f"As in start_time => '2026-01-01T00:00:00Z', in the years {_YEARS[0]} to {_YEARS[1]}.",
    )


def _build_decoder(call: Call) -> Decoder:
    name = _check_name(call.name, _FORMATS, "format")
    if name == "json":
        columns, times = _read_columns(call)
        _check_options(call, ())
        return JsonLines(columns, times)
    if name == "csv":
        columns, times = _read_columns(call)
        _check_options(call, tuple(_CSV_OPTIONS))
        options: dict[str, Any] = {_CSV_OPTIONS[option]: value for option, value in call.options.items()}
        return Delimited(columns, times=times, **options)
    if call.arguments:
        raise _syntax_error(f"{name} has columns of its own", f"Leave them out: FORMAT {name}.")
    if name == "call_lines":
        _check_options(call, ())
        return call_lines()
    _check_options(call, _LOG_OPTIONS)
    extra: list[str | Cookie] = [part.strip() for part in str(call.options.get("extra") or "").split(",")]
    extra = [part for part in extra if part]
    if cookie := call.options.get("cookie"):
        extra.append(Cookie(str(cookie)))
    return combined_log(extra, bool(call.options.get("common", False)))


def _read_columns(call: Call) -> tuple[dict[str, pl.DataType], dict[str, str]]:
    """The columns with their types, and the formats of times."""
    columns: dict[str, pl.DataType] = {}
    times: dict[str, str] = {}
    if not call.arguments:
        raise _syntax_error(
            f"{call.name} needs its columns", f"As in {call.name}(ts TIMESTAMP, path STRING, n BIGINT)."
        )
    for definition in map(str, call.arguments):
        reader = TokenReader(definition, tokenize(definition))
        name = reader.name("the name of a column")
        tokens = list(reader.tokens[reader.at :])
        if len(tokens) > 1 and tokens[-1].token_type == TokenType.STRING:
            times[name] = tokens.pop().text
            if is_keyword(tokens[-1], "FORMAT"):
                tokens.pop()
        depth = _depth(definition)
        if depth > MOST_PARENTHESES:
            raise UserError(
                "QUERY_TOO_DEEP",
                f"the type of {name} has {depth:,} types in one another, and the limit is {MOST_PARENTHESES}",
                hint="Decode the inner parts as STRING, and read them with get_json_object.",
            )
        try:
            (dtype,) = Penstock().parser().parse_into(exp.DataType, tokens, definition) if tokens else [None]
        except ParseError:
            dtype = None
        if dtype is None:
            raise _syntax_error(
                f"{definition!r} is no column", "Write its name and type, as in clicks_count BIGINT."
            )
        if name in columns:
            raise UserError("NAME_TAKEN", f"two columns are called {name!r}")
        columns[name] = dtype_of(dtype)
    return columns, times


def _depth(definition: str) -> int:
    """How many types are in one another, by the brackets of a definition."""
    depth = most = 0
    for character in definition:
        depth += (character in "<([") - (character in ">)]")
        most = max(most, depth)
    return most


def _options(call: Call, factory: Callable[..., Any], positional: int) -> dict[str, Any]:
    """The options of a call, checked against the signature of the class."""
    _check_secrets(call, factory)
    signature = inspect.signature(factory).parameters
    known = [name for name in signature if name not in _PYTHON_ONLY][positional:]
    if "shape" in signature:
        known += list(Shape.__annotations__)
    _check_options(call, known)
    for name, value in call.options.items():
        if name in signature and signature[name].annotation == "bool" and not isinstance(value, bool):
            raise UserError("BAD_ARGUMENT", f"{name} of {call.name} must be TRUE or FALSE")
    needed = [
        name
        for name, parameter in list(signature.items())[len(call.arguments) :]
        if parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    takes = [name for name, one in signature.items() if one.kind is one.POSITIONAL_OR_KEYWORD]
    missing = [name for name in needed if name not in call.options]
    if missing or (factory is not FileLog and len(call.arguments) > len(takes)):
        hint = f"It takes {', '.join(takes) or 'options only'}."
        raise _syntax_error(f"{call.name} has {len(call.arguments)} arguments here", hint)
    return dict(call.options)


def _check_secrets(call: Call, factory: Callable[..., Any]) -> None:
    """Raise for a secret where it is not looked up: its name would be taken for a value."""
    taken = factory in _TAKE_SECRETS
    others = [
        *call.arguments[taken:],
        *(v for name, v in call.options.items() if (taken, name) != (True, "address")),
    ]
    if any(map(is_reference, others)):
        raise UserError(
            "BAD_ARGUMENT",
            f"{call.name} takes no secret here",
            hint="SECRET name stands for the address of postgres or redis, as in postgres(SECRET shop_db, 'sales'). "
            "http_push and kafka take a token_file or settings.",
        )


def _check_options(call: Call, known: Sequence[str]) -> None:
    for option in call.options:
        if option not in known:
            there_are = f"There are {', '.join(known)}." if known else "It has none."
            raise UserError(
                "UNKNOWN_OPTION",
                f"{call.name} has no option {option!r}",
                hint=suggest_name(option, known) or there_are,
            )


def _check_name(name: str, known: Mapping[str, Any] | Sequence[str], what: str) -> str:
    if name not in known:
        raise UserError(
            f"UNKNOWN_{what.upper()}",
            f"there is no {what} {name!r}",
            hint=suggest_name(name, known) or f"There are {', '.join(known)}.",
        )
    return name


def _syntax_error(primary: str, hint: str) -> UserError:
    return UserError("BAD_SQL", primary, hint=hint)


@contextmanager
def _errors_at(call: Call) -> Iterator[None]:
    """Give errors the position of this call."""
    where = format_position(*call.at) if call.at[0] else f"sink {call.at[1]}"
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
