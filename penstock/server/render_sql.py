"""Renders the structured bodies of requests as SQL, so that every change goes through the checks of SQL.

Guarantees: the text is one statement. It is parsed again and must mean exactly what the body means, so no part of
a body can become a statement of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from penstock.duration import microseconds
from penstock.errors import UserError
from penstock.server.request_bodies import Connector, JobChange, NewJob, NewStream
from penstock.server.statement_guard import check_name
from penstock.sql.parse import parse
from penstock.sql.statements import AlterJob, Call, CreateJob, CreateStream, Scalar, SetRecovery

Parsed = TypeVar("Parsed", CreateStream, CreateJob, AlterJob, SetRecovery)
_PLACE = re.compile(r"line (\d+), column (\d+)")


def render_create_stream(body: NewStream) -> str:
    """Render CREATE STREAM."""
    columns = [f"{_quote_name(name)} {kind}" for name, kind in body.format.columns.items()]
    options = _render_options(body.format.options)
    name = _quote_name(check_name(body.name, "stream"))
    text = f"CREATE STREAM {name} FROM {_render_connector(body.log)}\nFORMAT {body.format.kind}"
    text += f"({', '.join([*columns, *options])})" if columns or options else ""
    text += f" EVENT TIME {_quote_name(body.time)}" if body.time is not None else ""
    lengths = {"LATENESS": body.lateness, "IDLE AFTER": body.idle_after}
    text += "".join(f" {word} {_render_value(value)}" for word, value in lengths.items() if value is not None)
    parsed = _parse_one(text, CreateStream)
    is_same = (
        parsed.name == body.name
        and _is_same(parsed.log, body.log)
        and parsed.format.name == body.format.kind.lower()
        and list(parsed.format.arguments) == columns
        and dict(parsed.format.options) == _lower(body.format.options)
        and parsed.time == body.time
        and (body.lateness is None or parsed.lateness == microseconds(body.lateness.lower()))
        and (body.idle_after is None or parsed.idle_after == microseconds(body.idle_after.lower()))
    )
    return _checked(text, is_same)


def render_create_job(body: NewJob) -> str:
    """Render CREATE JOB; its query, which may have INTO itself, starts on the second line."""
    recovery = "" if body.recovery is None else f" RECOVERY {body.recovery}"
    text = f"CREATE JOB {_quote_name(check_name(body.name, 'job'))}{recovery} AS\n{body.query}"
    text += f"\nINTO {', '.join(map(_render_connector, body.into))}" if body.into else ""
    text += f"\nWITH ({_render_parameters(body.parameters)})" if body.parameters else ""
    parsed = _parse_one(text, CreateJob)
    is_same = (
        parsed.name == body.name
        and (not body.into or _are_same(parsed.sinks, body.into))
        and (not body.parameters or dict(parsed.parameters) == body.parameters)
        and (body.recovery is None or parsed.recovery is body.recovery)
    )
    return _checked(text, is_same)


def render_alter_job(name: str, body: JobChange) -> str:
    """Render ALTER JOB."""
    parts = ("query", "where", "limit", "parameters", "recovery")
    present = [part for part in parts if getattr(body, part) not in (None, {})]
    if len(present) != 1 or (body.recovery is not None and body.rebuild):
        raise UserError(
            "BAD_CHANGE",
            "a change is one of query, where, limit, parameters and recovery",
            detail=f"this one has {', '.join([*present, *['rebuild'] * body.rebuild]) or 'none of them'}",
        )
    text = f"ALTER JOB {_quote_name(name)} "
    if body.recovery is not None:
        text += f"SET RECOVERY {body.recovery}"
        return _checked(text, _parse_one(text, SetRecovery).name == name)
    if body.query is not None:
        text += f"AS\n{body.query}"
    elif body.where is not None:
        text += f"SET WHERE\n{body.where}"
    elif body.limit is not None:
        text += f"SET LIMIT {body.limit}"
    else:
        text += f"SET {_render_parameters(body.parameters)}"
    text += "\nREBUILD" if body.rebuild else ""
    with place_in_query():
        parsed = _parse_one(text, AlterJob)
    is_same = (
        parsed.name == name
        and (parsed.select is not None) == (body.query is not None)
        and (parsed.where is not None) == (body.where is not None)
        and parsed.limit == body.limit
        and dict(parsed.parameters) == body.parameters
    )
    return _checked(text, is_same)


def render_command(verb: str, name: str, what: str = "JOB") -> str:
    """Render PAUSE JOB, DROP STREAM and the like."""
    return f"{verb.upper()} {what} {_quote_name(name)}"


@contextmanager
def place_in_query() -> Iterator[None]:
    """Shift the place that an error names from the statement to the query, which starts on the second line."""
    try:
        yield
    except UserError as error:
        place = _PLACE.fullmatch(error.where or "")
        if place is None or int(place[1]) < 2:
            raise
        raise UserError(
            error.condition,
            error.primary,
            detail=error.detail,
            hint=error.hint,
            where=f"line {int(place[1]) - 1}, column {place[2]}",
        ) from error


# -- parts ---------------------------------------------------------------------------------------


def _quote_name(name: str) -> str:
    if not name or "`" in name or "'" in name or "\n" in name:
        raise UserError("BAD_NAME", f"{name[:100]!r} cannot be a name")
    return f"`{name}`"


def _render_connector(connector: Connector) -> str:
    arguments = [*map(_render_value, connector.arguments), *_render_options(connector.options)]
    return f"{connector.kind}({', '.join(arguments)})"


def _render_options(options: Mapping[str, Scalar]) -> list[str]:
    return [f"{name} => {_render_value(value)}" for name, value in options.items()]


def _render_parameters(parameters: Mapping[str, Scalar]) -> str:
    return ", ".join(f"${name} = {_render_value(value)}" for name, value in parameters.items())


def _render_value(value: Scalar) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return repr(value)


def _parse_one(text: str, kind: type[Parsed]) -> Parsed:
    statements = parse(text)
    if len(statements) != 1 or not isinstance(statements[0], kind):
        raise UserError("BAD_SQL", "there is more than one statement here", hint="POST /sql takes several.")
    return statements[0]


def _is_same(call: Call, connector: Connector) -> bool:
    return (call.name, list(call.arguments), dict(call.options)) == (
        connector.kind.lower(),
        connector.arguments,
        _lower(connector.options),
    )


def _are_same(calls: Sequence[Call], connectors: Sequence[Connector]) -> bool:
    return len(calls) == len(connectors) and all(map(_is_same, calls, connectors))


def _lower(options: Mapping[str, Scalar]) -> dict[str, Scalar]:
    return {name.lower(): value for name, value in options.items()}


def _checked(text: str, is_same: bool) -> str:
    if not is_same:
        raise UserError(
            "BAD_SQL",
            "the statement rendered from this body does not mean the same as the body",
            detail=text,
            hint="Send the statement as SQL, to POST /sql.",
        )
    return text
