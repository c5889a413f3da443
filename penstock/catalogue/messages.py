"""Messages to jobs: one asks another, by name, and gets what it answers. No event is involved, and no state changes.

Receives a message for a job; hands what the job's `deliver` function says to it or, without one, those rows of its
latest answer that agree with the message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from penstock.errors import UserError

#: how many jobs a message may be passed on by
_MOST_PASSED = 16

#: passes a message on to a job and hands its answer
Route = Callable[[str, Any], Any]


@dataclass(frozen=True)
class Delivered:
    """A message as it reaches a job: what it says, the job's latest answer (None before its first), and how to pass a
    message on."""

    job: str
    message: Any
    answer: pl.DataFrame | None
    route: Route


#: what a job says to a message
Deliver = Callable[[Delivered], Any]


def routed(
    job: str,
    message: Any,
    latest: Callable[[str], pl.DataFrame | None],
    deliver: Mapping[str, Deliver],
    passed: tuple[str, ...] = (),
) -> Any:
    """The answer of a job to a message; `latest` has the answers of all jobs and raises for one that is not there."""
    if len(passed) >= _MOST_PASSED:
        raise UserError(
            "MESSAGE_LOST",
            f"a message was passed on {len(passed)} times: {' to '.join(passed)}",
            hint="Let one of these jobs answer instead of asking on.",
        )

    def on(other: str, said: Any) -> Any:
        return routed(other, said, latest, deliver, (*passed, job))

    found = Delivered(job, message, latest(job), on)
    return deliver[job](found) if job in deliver else agreeing(found)


def agreeing(delivered: Delivered) -> list[dict[str, Any]]:
    """The rows of a job's latest answer that have the values a message says, by column."""
    said, rows = delivered.message or {}, delivered.answer
    if not isinstance(said, Mapping):
        raise UserError(
            "BAD_MESSAGE",
            f"the job {delivered.job} takes messages that name columns",
            hint='As in {"product": "Angry Birds"}; for others give it a deliver function.',
        )
    if rows is None:
        return []
    unknown = [name for name in said if name not in rows.columns]
    if unknown:
        raise UserError(
            "UNKNOWN_COLUMN",
            f"the answer of {delivered.job} has no column {unknown[0]!r}",
            hint=f"It has {', '.join(rows.columns)}.",
        )
    return rows.filter(
        pl.lit(True), *(pl.col(name).eq_missing(value) for name, value in said.items())
    ).to_dicts()
