"""From structured bodies to SQL: one door for everything that is said.

Receives bodies that pydantic has checked; hands the text of one statement. The text is parsed again and must say
exactly what the body said, so nothing in a body can become a statement of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from penstock.duration import microseconds
from penstock.errors import UserError
from penstock.server.request_bodies import Change, Made, NewJob, NewStream
from penstock.server.security import check_name
from penstock.sql.parse import parse
from penstock.sql.statements import AlterJob, Call, CreateJob, CreateStream, Scalar, SetRecovery

Said = TypeVar("Said", CreateStream, CreateJob, AlterJob, SetRecovery)
_PLACE = re.compile(r"line (\d+), column (\d+)")


def create_stream(body: NewStream) -> str:
    """CREATE STREAM of a body."""
    columns = [f"{_name(name)} {kind}" for name, kind in body.format.columns.items()]
    options = _options(body.format.options)
    text = f"CREATE STREAM {_named(body.name, 'stream')} FROM {_call(body.log)}\nFORMAT {body.format.kind}"
    text += f"({', '.join([*columns, *options])})" if columns or options else ""
    text += f" EVENT TIME {_name(body.time)}" if body.time is not None else ""
    lengths = {"LATENESS": body.lateness, "IDLE AFTER": body.idle_after}
    text += "".join(f" {word} {_value(given)}" for word, given in lengths.items() if given is not None)
    said = _only(text, CreateStream)
    same = (
        said.name == body.name
        and _same(said.log, body.log)
        and said.format.name == body.format.kind.lower()
        and list(said.format.arguments) == columns
        and dict(said.format.options) == _lower(body.format.options)
        and said.time == body.time
        and (body.lateness is None or said.lateness == microseconds(body.lateness.lower()))
        and (body.idle_after is None or said.idle_after == microseconds(body.idle_after.lower()))
    )
    return _checked(text, same)


def create_job(body: NewJob) -> str:
    """CREATE JOB of a body; its query, which may say INTO itself, begins on the second line."""
    recovery = "" if body.recovery is None else f" RECOVERY {body.recovery}"
    text = f"CREATE JOB {_named(body.name, 'job')}{recovery} AS\n{body.query}"
    text += f"\nINTO {', '.join(map(_call, body.into))}" if body.into else ""
    text += f"\nWITH ({_assigned(body.parameters)})" if body.parameters else ""
    said = _only(text, CreateJob)
    same = (
        said.name == body.name
        and (not body.into or _all_same(said.sinks, body.into))
        and (not body.parameters or dict(said.parameters) == body.parameters)
        and (body.recovery is None or said.recovery is body.recovery)
    )
    return _checked(text, same)


def alter_job(name: str, body: Change) -> str:
    """ALTER JOB of a body."""
    parts = ("query", "where", "limit", "parameters", "recovery")
    given = [part for part in parts if getattr(body, part) not in (None, {})]
    if len(given) != 1 or (body.recovery is not None and body.rebuild):
        raise UserError(
            "BAD_CHANGE",
            "a change is one of query, where, limit, parameters and recovery",
            detail=f"this one has {', '.join([*given, *['rebuild'] * body.rebuild]) or 'none of them'}",
        )
    text = f"ALTER JOB {_name(name)} "
    if body.recovery is not None:
        text += f"SET RECOVERY {body.recovery}"
        return _checked(text, _only(text, SetRecovery).name == name)
    if body.query is not None:
        text += f"AS\n{body.query}"
    elif body.where is not None:
        text += f"SET WHERE\n{body.where}"
    elif body.limit is not None:
        text += f"SET LIMIT {body.limit}"
    else:
        text += f"SET {_assigned(body.parameters)}"
    text += "\nREBUILD" if body.rebuild else ""
    with in_query():
        said = _only(text, AlterJob)
    same = (
        said.name == name
        and (said.select is not None) == (body.query is not None)
        and (said.where is not None) == (body.where is not None)
        and said.limit == body.limit
        and dict(said.parameters) == body.parameters
    )
    return _checked(text, same)


def change(verb: str, name: str, what: str = "JOB") -> str:
    """PAUSE JOB and the like."""
    return f"{verb.upper()} {what} {_name(name)}"


# -- parts ---------------------------------------------------------------------------------------


def _named(name: str, what: str) -> str:
    return _name(check_name(name, what))


def _name(name: str) -> str:
    if not name or "`" in name or "'" in name or "\n" in name:
        raise UserError("BAD_NAME", f"{name[:100]!r} cannot be a name")
    return f"`{name}`"


def _call(made: Made) -> str:
    return f"{made.kind}({', '.join([*map(_value, made.arguments), *_options(made.options)])})"


def _options(options: Mapping[str, Scalar]) -> list[str]:
    return [f"{name} => {_value(value)}" for name, value in options.items()]


def _assigned(parameters: Mapping[str, Scalar]) -> str:
    return ", ".join(f"${name} = {_value(value)}" for name, value in parameters.items())


def _value(value: Scalar) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return repr(value)


def _only(text: str, kind: type[Said]) -> Said:
    said = parse(text)
    if len(said) != 1 or not isinstance(said[0], kind):
        raise UserError("BAD_SQL", "there is more than one statement here", hint="POST /sql takes several.")
    return said[0]


def _same(said: Call, made: Made) -> bool:
    return (said.name, list(said.arguments), dict(said.options)) == (
        made.kind.lower(),
        made.arguments,
        _lower(made.options),
    )


def _all_same(said: Sequence[Call], made: Sequence[Made]) -> bool:
    return len(said) == len(made) and all(map(_same, said, made))


def _lower(options: Mapping[str, Scalar]) -> dict[str, Scalar]:
    return {name.lower(): value for name, value in options.items()}


def _checked(text: str, same: bool) -> str:
    if not same:
        raise UserError(
            "BAD_SQL",
            "this does not come out as it was said",
            detail=text,
            hint="Say it in SQL, to POST /sql.",
        )
    return text


@contextmanager
def in_query() -> Iterator[None]:
    """Let an error name its place in the query, which begins on the second line."""
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
