"""The gather: one answer from what all tasks of an epoch sent, and the manifest that goes with it. Pure.

Receives the messages for the driver; hands the rows of every output in a fixed order, the next manifest, the
rows put aside, and what the tasks said of themselves.
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from penstock.engine.closing import Due, dues
from penstock.engine.failures import JobsFailed
from penstock.engine.message import Message, as_error, error_of
from penstock.engine.task import EpochTask
from penstock.operators.contract import NEVER, ORDER, TIME
from penstock.operators.job_windows import JOB
from penstock.query.instants import of_last_instant
from penstock.query.physical import OutputPlan, run_steps
from penstock.state.bucket_map import Maps
from penstock.state.collection import Changes
from penstock.state.continuity import identify, keep_known
from penstock.state.ipc import from_stream, stream_bytes
from penstock.state.manifest import Manifest
from penstock.state.run import RunEntry
from penstock.words.errors import PenstockError

COUNTED = ("events", "bytes", "late", "bad")


@dataclass(frozen=True)
class Gathered:
    """What an epoch came to."""

    rows: dict[str, pl.DataFrame]
    #: how many of an output's rows, at their end, are its last answer, where it gives one for every instant
    last: dict[str, int]
    manifest: Manifest
    aside: pl.DataFrame | None
    facts: list[dict[str, Any]]
    maps: Maps
    #: what each stream's time has yet to decide
    due: Mapping[str, Due]

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

    def run_bytes(self) -> int:
        """The bytes of the runs that were written."""
        changes = [change for fact in self.facts for _, _, change in fact.get("changes", ())]
        return sum(entry[3] for added, _ in changes for entry in added)

    def job_seconds(self) -> dict[int, float]:
        """For how long jobs kept the epoch with what is their own: in each stage, as long as in its longest task."""
        stages: dict[tuple[str, str], float] = {}
        for fact in self.facts:
            for job, seconds in fact.get("jobs", {}).items():
                stages[fact["stage"], job] = max(seconds, stages.get((fact["stage"], job), 0.0))
        sums: dict[int, float] = {}
        for (_, job), seconds in stages.items():
            sums[int(job)] = sums.get(int(job), 0.0) + seconds
        return sums


def gathered(task: EpochTask, before: Manifest, encoded: list[bytes]) -> Gathered:
    """Put an epoch's messages together; raises the error that a task sent, if one did."""
    messages = [Message.from_bytes(data) for data in encoded]
    for message in messages:
        if message.kind == "error":
            raise error_of(message)
    failures = {m.facts["job"]: as_error(m.facts["error"]) for m in messages if m.kind == "failed"}
    facts = [message.facts for message in messages if message.kind == "facts"]
    rows: dict[str, pl.DataFrame] = {}
    last: dict[str, int] = {}
    answers = {name: answer for name, answer in before.answers.items() if name in task.plan.outputs}
    told, in_order = _told(task, messages)
    for name, frames in told.items():
        output = task.plan.outputs[name]
        try:
            upto = _told_upto(task, before, name) if before.gap else None
            made, answer = answered(output, frames, answers.get(name), in_order=name in in_order, after=upto)
            if made is not None and name in task.plan.by_instant:
                last[name] = of_last_instant(made)
        except PenstockError as error:
            if output.job is None:
                raise
            failures[output.job] = error
            continue
        if answer is not None:
            answers[name] = answer
        if made is not None:
            rows[name] = made[[column for column in output.schema if column in made.columns]]
    if failures:
        raise JobsFailed(failures)
    aside = [m.frame for m in messages if m.kind == "aside" and m.frame is not None]
    if task.plan.jobs is not None:
        before = keep_known(before, task.plan.identities)
    seen = _seen(messages)
    manifest = before.advanced(
        task.epoch,
        [(owner, name, _unpacked(c)) for fact in facts for owner, name, c in fact.get("changes", ())],
        streams=task.times_after(seen),
        answers=answers,
        counters={n: before.counters.get(n, 0) + sum(f.get(n, 0) for f in facts) for n in COUNTED},
    )
    manifest = identify(manifest, task.plan.identities)
    due = dues(facts, manifest.streams, task.sure_after(seen))
    return Gathered(rows, last, manifest, pl.concat(aside) if aside else None, facts, task.maps, due)


def _told_upto(task: EpochTask, before: Manifest, output: str) -> int | None:
    """Before which time an output has told what the watermark decides, though the state does not know; None where
    events pass straight through it."""
    subs = task.plan.subqueries
    sources = [edge.source for edge in task.plan.edges if edge.target == f"out:{output}"]
    if any(source not in subs for source in sources):
        return None
    streams = {stream for source in sources for stream in subs[source].streams} or before.gap.keys()
    return min((before.gap.get(stream, NEVER) for stream in streams), default=None)


def _told(task: EpochTask, messages: list[Message]) -> tuple[dict[str, list[pl.DataFrame]], set[str]]:
    """The frames sent to each output, in the order of outputs, and those whose rows are in their order already: jobs
    that are worked on together."""
    in_order: set[str] = set()
    found: dict[str, list[pl.DataFrame]] = {name: [] for name in task.plan.outputs}
    alike: dict[tuple[str, ...], list[pl.DataFrame]] = {}
    for message in messages:
        if message.frame is None or message.kind != "rows":
            continue
        if message.to == "jobs":
            alike.setdefault(_columns(message.frame), []).append(message.frame)
        else:
            found[message.to[4:]].append(message.frame)
    by_job = {output.job: name for name, output in task.plan.outputs.items()}
    for frames in alike.values():
        for job, rows in _apart(pl.concat(frames)):
            if job in by_job:
                found[by_job[job]].append(rows)
                in_order.add(by_job[job])
    some = {n: frames for n, frames in found.items() if frames or task.plan.outputs[n].top is not None}
    return some, in_order


def _columns(frame: pl.DataFrame) -> tuple[str, ...]:
    return tuple(f"{name} {dtype}" for name, dtype in frame.schema.items())


def _apart(rows: pl.DataFrame) -> Iterator[tuple[int, pl.DataFrame]]:
    """The rows of each job, in their fixed order: put in order together, which is as much work as for one of them."""
    ordered = rows.sort(JOB, *(name for name in _order(rows) if name != JOB))
    jobs = ordered.drop_in_place(JOB).to_numpy()
    borders = [0, *(np.flatnonzero(jobs[1:] != jobs[:-1]) + 1).tolist(), len(jobs)]
    for start, end in itertools.pairwise(borders):
        yield int(jobs[start]), ordered.slice(start, end - start)


def _order(rows: pl.DataFrame) -> list[str]:
    """The columns by which an output's rows are put in order."""
    plain = [name for name, dtype in rows.schema.items() if not dtype.is_nested()]
    return [*(name for name in ORDER if name in plain), *(name for name in plain if name not in ORDER)]


def _seen(messages: list[Message]) -> dict[str, dict[str, int]]:
    """The highest event time of each partition, as the scan tasks told it."""
    seen: dict[str, dict[str, int]] = {}
    for message in messages:
        if message.kind == "time":
            for stream, partitions in message.facts.items():
                seen.setdefault(stream, {}).update(partitions)
    return seen


def answered(
    output: OutputPlan,
    frames: list[pl.DataFrame],
    last: str | None,
    *,
    in_order: bool = False,
    after: int | None = None,
) -> tuple[pl.DataFrame | None, str | None]:
    """An output's rows of the epoch, in a fixed order and with what they carry, and its last answer (Arrow, base64).
    `in_order`: each frame's rows are in that order already. Of rows before the time `after` it is known that they were
    told, or are lost."""
    answer = None
    if output.top is not None and not (frames or last):
        return None, None
    if output.top is not None:
        told = None if last is None else from_stream(base64.b64decode(last))
        rows, told = output.top.gather(frames, told)
        if told is not None and output.top.changes_only:
            answer = base64.b64encode(stream_bytes(told)).decode()
        order = [TIME, "rank"]
    elif in_order and len(frames) == 1 and after is None:
        return frames[0], None
    else:
        rows = pl.concat([_alike(output, frame) for frame in frames], how="diagonal") if frames else None
        order = [] if rows is None else _order(rows)
    if rows is not None and after is not None and TIME in rows.columns:
        rows = rows.filter(pl.col(TIME) >= after)
    if rows is None or not rows.height:
        return None, answer
    return run_steps(output.after, rows.sort(order), f"the rows of {output.name}"), answer


def _alike(output: OutputPlan, frame: pl.DataFrame) -> pl.DataFrame:
    """Rows with the output's columns only, in its order: the parts of a union come from unlike sources."""
    return frame.select(*(name for name in ORDER if name in frame.columns), *output.schema)


def _unpacked(change: list[Any]) -> Changes:
    added, dropped = change
    return Changes(
        tuple(RunEntry.from_json(entry) for entry in added),
        tuple((name, frozenset(buckets)) for name, buckets in dropped),
    )
