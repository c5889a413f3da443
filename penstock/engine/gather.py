"""The gather: one answer from what all tasks of an epoch sent, and the manifest that goes with it. Pure.

Receives the messages for the driver; hands the rows of every output in a fixed order, the next manifest, the
rows put aside, and what the tasks said of themselves.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import polars as pl

from penstock.engine.message import Message, error_of
from penstock.engine.task import EpochTask
from penstock.operators.contract import ORDER, TIME
from penstock.query.physical import OutputPlan, run_steps, user_columns
from penstock.state.collection import Changes
from penstock.state.ipc import from_stream, stream_bytes
from penstock.state.manifest import Manifest
from penstock.state.run import RunEntry

COUNTED = ("events", "bytes", "late", "bad")


@dataclass(frozen=True)
class Gathered:
    """What an epoch came to."""

    rows: dict[str, pl.DataFrame]
    manifest: Manifest
    aside: pl.DataFrame | None
    facts: list[dict[str, Any]]

    def total(self, name: str) -> int:
        return sum(fact.get(name, 0) for fact in self.facts)

    def all(self, name: str) -> list[int]:
        """A fact of every task that has it."""
        return [fact[name] for fact in self.facts if fact.get(name) is not None]

    def stage_seconds(self) -> dict[str, float]:
        """Seconds of work per stage, summed over its tasks."""
        sums: dict[str, float] = {}
        for fact in self.facts:
            sums[fact["stage"]] = sums.get(fact["stage"], 0.0) + fact["seconds"]
        return dict(sorted(sums.items()))


def gathered(task: EpochTask, before: Manifest, encoded: list[bytes]) -> Gathered:
    """Put an epoch's messages together; raises the error that a task sent, if one did."""
    messages = [Message.from_bytes(data) for data in encoded]
    for message in messages:
        if message.kind == "error":
            raise error_of(message)
    facts = [message.facts for message in messages if message.kind == "facts"]
    rows: dict[str, pl.DataFrame] = {}
    answers = dict(before.answers)
    for output in task.plan.outputs.values():
        frames = [m.frame for m in messages if m.to == f"out:{output.name}" and m.frame is not None]
        made, answer = answered(output, frames, answers.get(output.name))
        if answer is not None:
            answers[output.name] = answer
        if made is not None:
            rows[output.name] = made
    aside = [m.frame for m in messages if m.kind == "aside" and m.frame is not None]
    manifest = before.advanced(
        task.epoch,
        [(owner, name, _unpacked(c)) for fact in facts for owner, name, c in fact.get("changes", ())],
        streams=task.times_after(_seen(messages)),
        answers=answers,
        counters={n: before.counters.get(n, 0) + sum(f.get(n, 0) for f in facts) for n in COUNTED},
    )
    return Gathered(rows, manifest, pl.concat(aside) if aside else None, facts)


def _seen(messages: list[Message]) -> dict[str, dict[str, int]]:
    """The highest event time of each partition, as the scan tasks told it."""
    seen: dict[str, dict[str, int]] = {}
    for message in messages:
        if message.kind == "time":
            for stream, partitions in message.facts.items():
                seen.setdefault(stream, {}).update(partitions)
    return seen


def answered(
    output: OutputPlan, frames: list[pl.DataFrame], last: str | None
) -> tuple[pl.DataFrame | None, str | None]:
    """An output's rows of the epoch, in a fixed order, and its last answer (Arrow, base64)."""
    answer = None
    if output.top is not None:
        told = None if last is None else from_stream(base64.b64decode(last))
        rows, told = output.top.gather(frames, told)
        if told is not None:
            answer = base64.b64encode(stream_bytes(told)).decode()
        order = [TIME, "rank"]
    else:
        rows = pl.concat([_alike(output, frame) for frame in frames], how="diagonal") if frames else None
        plain = [] if rows is None else [n for n, dtype in rows.schema.items() if not dtype.is_nested()]
        order = [*(n for n in ORDER if n in plain), *(n for n in plain if n not in ORDER)]
    if rows is None or not rows.height:
        return None, answer
    rows = run_steps(output.after, rows.sort(order), f"the rows of {output.name}")
    mine = user_columns(rows)
    return rows.select([name for name in output.schema if name in mine]), answer


def _alike(output: OutputPlan, frame: pl.DataFrame) -> pl.DataFrame:
    """Rows with the output's columns only, in its order: the parts of a union come from unlike sources."""
    return frame.select(*(name for name in ORDER if name in frame.columns), *output.schema)


def _unpacked(change: list[Any]) -> Changes:
    added, dropped = change
    return Changes(
        tuple(RunEntry.from_json(entry) for entry in added),
        tuple((name, frozenset(buckets)) for name, buckets in dropped),
    )
