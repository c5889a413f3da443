"""An application: named outputs over streams, everything one engine runs. Building it runs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.query import logical
from penstock.query.origin import here
from penstock.sinks.contract import Sink
from penstock.words.errors import UserError

if TYPE_CHECKING:
    from penstock.query.stream import Stream


def output(name: str, rows: Stream, *sinks: Sink) -> logical.Output:
    """A named result and where it goes."""
    if not name.replace("_", "").replace("-", "").isalnum():
        raise UserError(
            "BAD_NAME",
            f"{name!r} cannot name an output",
            where=str(here()),
            hint="Use letters, digits, - and _.",
        )
    return logical.Output(name, rows.node, sinks, here())


def app(name: str, *outputs: logical.Output) -> logical.App:
    """Everything one engine runs."""
    names: Sequence[str] = [out.name for out in outputs]
    if not outputs or len(set(names)) < len(names):
        raise UserError(
            "BAD_APP",
            "an app needs at least one output, each with its own name",
            where=str(here()),
        )
    return logical.App(name, outputs)
