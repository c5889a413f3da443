"""An application: named outputs over streams, everything one engine runs. Building it runs nothing."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from penstock.errors import UserError
from penstock.ha.schemes import Semantics
from penstock.origin import Origin, here
from penstock.query import logical
from penstock.query.rows import stream_given
from penstock.sinks.contract import Sink

if TYPE_CHECKING:
    from penstock.query.stream import Stream


def output(name: str, rows: Stream, *sinks: Sink, recovery: Semantics | str | None = None) -> logical.Output:
    """A named result and where it goes. `recovery`: what it may lose or repeat when the engine comes back after a loss
    (precise, rollback, gap or amnesia); as the engine's settings say where it is left out."""
    origin = here()
    if not isinstance(name, str) or not name.replace("_", "").replace("-", "").isalnum():
        raise UserError(
            "BAD_NAME",
            f"{name!r} cannot name an output",
            where=str(origin),
            hint='Use letters, digits, - and _, as in ps.output("top_pages", rows, ps.jsonl("out/top")).',
        )
    node = stream_given(rows, origin, f"the output {name!r}").node
    for sink in sinks:
        if not isinstance(sink, Sink):
            raise UserError(
                "NOT_A_SINK",
                f"{sink!r} is nowhere rows can go",
                where=str(origin),
                hint=_sink_for(sink),
            )
    kept = None if recovery is None else _semantics(recovery, origin)
    return logical.Output(name, node, sinks, origin, kept)


def app(name: str, *outputs: logical.Output) -> logical.App:
    """Everything one engine runs."""
    origin = here()
    for one in outputs:
        if not isinstance(one, logical.Output):
            raise UserError(
                "NOT_AN_OUTPUT",
                f"an app is made of outputs, but this is a {type(one).__name__}",
                where=str(origin),
                hint=f'Name each result and say where it goes: ps.app({name!r}, ps.output("rows", ..., ps.console())).',
            )
    _named_once([out.name for out in outputs], origin)
    return logical.App(name, outputs)


def _semantics(given: object, origin: Origin) -> Semantics:
    if isinstance(given, str) and given in list(Semantics):
        return Semantics(given)
    near = get_close_matches(str(given), list(Semantics), 1)
    raise UserError(
        "UNKNOWN_RECOVERY",
        f"there is no recovery {given!r}",
        where=str(origin),
        hint=f"Did you mean {near[0]}?" if near else f"There are {', '.join(Semantics)}.",
    )


def _named_once(names: list[str], origin: Origin) -> None:
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


def _sink_for(given: object) -> str:
    """What the user may have meant."""
    if isinstance(given, str) and given.endswith((".db", ".sqlite")):
        return f"Say what is written there: ps.sqlite({given!r})."
    if isinstance(given, str):
        return (
            f"Say what is written there: ps.jsonl({given!r}), ps.parquet({given!r}) or ps.sqlite({given!r})."
        )
    return "Use ps.jsonl(...), ps.parquet(...), ps.sqlite(...) or ps.console()."
