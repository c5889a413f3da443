"""`app` and `output`: an application is named outputs over streams. Building it runs nothing."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from penstock.errors import UserError
from penstock.ha.schemes import Semantics
from penstock.origin import Origin, here
from penstock.query import logical
from penstock.query.rows import require_stream
from penstock.sinks.contract import Sink

if TYPE_CHECKING:
    from penstock.query.stream import Stream


def output(name: str, rows: Stream, *sinks: Sink, recovery: Semantics | str | None = None) -> logical.Output:
    """A named result and its sinks. `recovery`: what it may lose or repeat after a crash (precise, rollback, gap or
    amnesia); if not given, what the engine's settings say."""
    origin = here()
    if not isinstance(name, str) or not name.replace("_", "").replace("-", "").isalnum():
        raise UserError(
            "BAD_NAME",
            f"{name!r} cannot name an output",
            where=str(origin),
            hint='Use letters, digits, - and _, as in ps.output("top_pages", rows, ps.jsonl("out/top")).',
        )
    node = require_stream(rows, origin, f"the output {name!r}").node
    for sink in sinks:
        if not isinstance(sink, Sink):
            raise UserError(
                "NOT_A_SINK",
                f"{sink!r} is not a sink",
                where=str(origin),
                hint=_sink_hint(sink),
            )
    semantics = None if recovery is None else _semantics(recovery, origin)
    return logical.Output(name, node, sinks, origin, semantics)


def app(name: str, *outputs: logical.Output) -> logical.App:
    """An application: everything that one engine runs."""
    origin = here()
    for one in outputs:
        if not isinstance(one, logical.Output):
            raise UserError(
                "NOT_AN_OUTPUT",
                f"an app is made of outputs, but this is a {type(one).__name__}",
                where=str(origin),
                hint=f'Name each result and its sinks: ps.app({name!r}, ps.output("rows", ..., ps.console())).',
            )
    _check_output_names([out.name for out in outputs], origin)
    return logical.App(name, outputs)


def _semantics(value: object, origin: Origin) -> Semantics:
    if isinstance(value, str) and value in list(Semantics):
        return Semantics(value)
    near = get_close_matches(str(value), list(Semantics), 1)
    raise UserError(
        "UNKNOWN_RECOVERY",
        f"there is no recovery {value!r}",
        where=str(origin),
        hint=f"Did you mean {near[0]}?" if near else f"There are {', '.join(Semantics)}.",
    )


def _check_output_names(names: list[str], origin: Origin) -> None:
    doubled = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if not names or doubled:
        raise UserError(
            "BAD_APP",
            f"two outputs are called {doubled[0]!r}" if doubled else "an app needs at least one output",
            where=str(origin),
            hint="Give each a name of its own."
            if doubled
            else 'As in ps.app("pages", ps.output("top", rows, ps.console())).',
        )


def _sink_hint(thing: object) -> str:
    if isinstance(thing, str) and thing.endswith((".db", ".sqlite")):
        return f"Use ps.sqlite({thing!r})."
    if isinstance(thing, str):
        return f"Use ps.jsonl({thing!r}), ps.parquet({thing!r}) or ps.sqlite({thing!r})."
    return "Use ps.jsonl(...), ps.parquet(...), ps.sqlite(...) or ps.console()."
