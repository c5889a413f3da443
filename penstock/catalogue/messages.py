"""Send messages to jobs: a job, or a client, asks another job by name and gets its reply. No event, no change of state.

A job's `deliver` function makes the reply. Without one, the reply is the rows of its latest result that have the values
in the message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from penstock.errors import UserError

#: how many jobs may forward a message
_MAX_FORWARDS = 16

#: forwards a message to a job and returns its reply
Route = Callable[[str, Any], Any]


@dataclass(frozen=True)
class Delivered:
    """A message as it reaches a job: its content, the job's latest result (None before its first), and `route`, which
    forwards a message to another job."""

    job: str
    message: Any
    answer: pl.DataFrame | None
    route: Route


#: a job's reply to a message
Deliver = Callable[[Delivered], Any]


def deliver_message(
    job: str,
    message: Any,
    latest: Callable[[str], pl.DataFrame | None],
    deliver: Mapping[str, Deliver],
    forwarded_by: tuple[str, ...] = (),
) -> Any:
    """A job's reply to a message; `latest` returns a job's latest result and raises where there is no such job."""
    if len(forwarded_by) >= _MAX_FORWARDS:
        raise UserError(
            "MESSAGE_LOST",
            f"a message was forwarded {len(forwarded_by)} times: {' to '.join(forwarded_by)}",
            hint="Let one of these jobs reply instead of forwarding.",
        )

    def forward(other: str, content: Any) -> Any:
        return deliver_message(other, content, latest, deliver, (*forwarded_by, job))

    delivered = Delivered(job, message, latest(job), forward)
    return deliver[job](delivered) if job in deliver else matching_rows(delivered)


def matching_rows(delivered: Delivered) -> list[dict[str, Any]]:
    """The rows of a job's latest result that have the values in a message, by column."""
    wanted, rows = delivered.message or {}, delivered.answer
    if not isinstance(wanted, Mapping):
        raise UserError(
            "BAD_MESSAGE",
            f"the job {delivered.job} takes messages that name columns",
            hint='As in {"product": "Angry Birds"}; for others give it a deliver function.',
        )
    if rows is None:
        return []
    unknown = [name for name in wanted if name not in rows.columns]
    if unknown:
        raise UserError(
            "UNKNOWN_COLUMN",
            f"the result of {delivered.job} has no column {unknown[0]!r}",
            hint=f"It has {', '.join(rows.columns)}.",
        )
    return rows.filter(
        pl.lit(True), *(pl.col(name).eq_missing(value) for name, value in wanted.items())
    ).to_dicts()
