"""The method `pattern` of keyed streams: sequences of events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import polars as pl

from penstock.duration import Duration, microseconds
from penstock.errors import UserError
from penstock.operators.pattern import Pattern
from penstock.operators.pattern_steps import PatternStep
from penstock.origin import Origin, here
from penstock.query import check
from penstock.query.rows import KeyedRows, stateful

if TYPE_CHECKING:
    from penstock.query.stream import Stream


@dataclass(frozen=True, eq=False)
class KeyedPatterns(KeyedRows):
    """Keyed rows in which sequences of events can be found."""

    def pattern(
        self,
        *steps: PatternStep,
        within: Duration,
        matching: Literal["next", "contiguous"] = "next",
        after: Literal["overlap", "skip"] = "overlap",
        timeouts: bool = False,
        columns: Sequence[str] | None = None,
    ) -> Stream:
        """Sequences of events of one key, one event a step, from first to last in at most `within`.

            requests.key_by("id").pattern(
                ps.step("start", col("kind") == "start"), ps.step("end", col("kind") == "end", absent=True), within="2s"
            )

        Events are processed in strict order. Every event that fits the first step starts a match, which then takes the
        first later event that fits the second step, and so on (`matching="next"`), without backtracking; with
        `matching="contiguous"` each must be the key's very next event. With `after="skip"` matches of a key do not
        overlap: when one ends, all that started up to its last event are dropped; of two that end with the same event,
        the one that started first is emitted.

        A step that is `absent` between two others means that no such event comes between the two; at the end, that
        none comes until `within` has passed since the first event: the match is emitted then.

        A row has the keys, and of every event taken `<step>_time` and `<step>_<column>` for the `columns` (all, if not
        given). With `timeouts`, starts that led to no match are emitted too, `within` after them: the column `matched`
        tells them apart, and steps that took no event are null.
        """
        origin = here()
        schema = self.node.schema
        span = microseconds(within)
        if span < 1:
            raise UserError("BAD_WINDOW", "a pattern needs a time", where=str(origin), hint='As in "10m".')
        _check_steps(steps, matching, after, timeouts, origin)
        emitted = [name for name in schema if name not in self.keys] if columns is None else columns
        check.columns_exist(emitted, schema, origin, "the pattern")
        _check_conditions(steps, schema, origin)
        operator = Pattern(
            self.keys,
            steps,
            span,
            tuple(dict.fromkeys(emitted)),
            contiguous=matching == "contiguous",
            skip=after == "skip",
            timeouts=timeouts,
        )
        names = [
            f"{step}_{name}"
            for step in operator.taking_steps
            for name in {"time": None} | dict.fromkeys(emitted)
        ]
        check.names_differ([*self.keys, *names, *(["matched"] if timeouts else [])], origin)
        return stateful(origin, operator.schema(schema), operator, self.node)


def _check_steps(
    steps: Sequence[PatternStep], matching: str, after: str, timeouts: bool, origin: Origin
) -> None:
    names = [one.name for one in steps]
    wrong = None
    if len(steps) < 2:
        wrong = "a pattern needs at least two steps"
    elif len(set(names)) < len(names):
        wrong = "two steps of a pattern have the same name"
    elif not all(name.isidentifier() and not name.startswith("_") for name in names):
        wrong = "the name of a step must be a plain word, as names of columns start with it"
    elif steps[0].absent:
        wrong = f"the first step, {names[0]!r}, cannot be absent: nothing would start a match"
    elif matching not in ("next", "contiguous") or after not in ("overlap", "skip"):
        wrong = 'matching is "next" or "contiguous", after is "overlap" or "skip"'
    elif timeouts and steps[-1].absent:
        wrong = (
            "a pattern that ends in an absent step has no timeouts: its matches are what did not come in time"
        )
    elif matching == "contiguous" and any(one.absent and not two.absent for one, two in pairwise(steps)):
        wrong = "between contiguous events there is nothing that could be absent"
    if wrong:
        raise UserError(
            "BAD_PATTERN",
            wrong,
            where=str(origin),
            hint='As in .pattern(ps.step("first", ...), ps.step("second", ...), within="10m").',
        )


def _check_conditions(steps: Sequence[PatternStep], schema: check.Schema, origin: Origin) -> None:
    """Raise unless every condition is one, over the event's columns and those of earlier steps' events."""
    names = [one.name for one in steps]
    seen: list[str] = []
    known: dict[str, pl.DataType] = dict(schema)
    for one in steps:
        for name in one.condition.meta.root_names():
            step, dot, _ = name.partition(".")
            if dot and step in names and name in schema:
                raise UserError(
                    "NAME_TAKEN",
                    f"{name!r} is a column, and also a column of the step {step!r}",
                    where=str(origin),
                    hint="Give the step or the column another name.",
                )
            if dot and step in names and step not in seen:
                raise UserError(
                    "BAD_PATTERN",
                    f"the step {one.name!r} reads {name!r}, but no event has been taken for {step!r} by then",
                    where=str(origin),
                    hint="A condition can look at its own event and at those of earlier steps that are not absent.",
                )
        check.condition(known, one.condition, origin, f"the step {one.name!r}")
        if not one.absent:
            seen.append(one.name)
            known |= {f"{one.name}.{name}": dtype for name, dtype in schema.items()}
