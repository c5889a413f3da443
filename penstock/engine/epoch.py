"""One epoch, as the driver carries it out: record, scan and slices on Spark, gather, sinks, manifest.

Receives the spans Spark has logged; hands the sinks their rows and the state directory its next manifest.

Invariants:
- The epoch record is written before anything runs, and an epoch that has one is repeated as recorded.
- Sinks are written before the manifest, the manifest before Spark's commit. Each of them is idempotent by
  epoch, so the epoch can be repeated from any point in between.
"""

from __future__ import annotations

import base64
import io
import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
from pyspark import SparkContext
from pyspark.core.broadcast import Broadcast

from penstock.engine.admission import Offset, spans_between
from penstock.engine.exchange import RawBytes, exchange
from penstock.engine.message import Message, error_message, error_of
from penstock.engine.scan import scan
from penstock.engine.slices import work
from penstock.engine.steps import reached
from penstock.engine.task import EpochTask, StatePlace
from penstock.engine.watermark import advanced, introduced
from penstock.logs.contract import Span
from penstock.operators.contract import ORDER, TIME
from penstock.query.physical import OutputPlan, Plan, run_steps, user_columns
from penstock.sinks.files import JsonLines
from penstock.state.buckets import spread
from penstock.state.cache import HostCache
from penstock.state.collection import Changes
from penstock.state.directory import StateDirectory
from penstock.state.manifest import Manifest, StreamTime
from penstock.state.run import RunEntry
from penstock.words.errors import PenstockError


@dataclass(frozen=True)
class EpochReport:
    """What an epoch did, for people and for the rate control."""

    epoch: int
    events: int
    bytes: int
    late: int
    bad: int
    seconds: float
    stage_seconds: Mapping[str, float]
    units: Mapping[str, int]
    watermark: int | None
    state_bytes: int
    rows: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    repeated: bool = False


class EpochRunner:
    """Carries out epochs, one after the other."""

    def __init__(
        self,
        context: SparkContext,
        plan: Plan,
        state: StateDirectory,
        *,
        slices: int,
        scan_tasks: int,
        buckets: int,
        place: StatePlace,
    ) -> None:
        self._context = context
        self._plan = plan
        self._state = state
        self._slices = slices
        self._scan_tasks = scan_tasks
        self._buckets = buckets
        self._place = place
        self._shipped: Broadcast[Plan] = context.broadcast(plan)
        self._manifest = state.latest()
        self._aside: dict[tuple[str, str], JsonLines] = {}

    @property
    def manifest(self) -> Manifest:
        """The state after the last committed epoch."""
        return self._manifest

    def run(self, epoch: int, start: Offset, end: Offset) -> EpochReport:
        """Carry out an epoch, or find that it has been."""
        began = time.perf_counter()
        reached("planned", epoch)
        if self._manifest.epoch >= epoch:
            return self._already_done(epoch, began)
        record = self._state.record(
            epoch, {"start": start, "end": end, "slices": self._slices, "buckets": self._buckets}
        )
        reached("recorded", epoch)
        spans = spans_between(record["start"], record["end"])
        task = self._task(epoch, spans, record)
        messages = self._on_spark(task, spans)
        rows, manifest, facts = self._gathered(task, messages)
        reached("gathered", epoch)
        self._deliver(epoch, rows, messages)
        reached("delivered", epoch)
        self._state.commit(manifest)
        self._manifest = manifest
        reached("committed", epoch)
        units: dict[str, int] = {}
        for stream, span in spans:
            units[stream] = units.get(stream, 0) + span.end - span.start
        marks = [s.watermark for s in manifest.streams.values() if s.watermark is not None]
        return EpochReport(
            epoch,
            sum(f.get("events", 0) for f in facts),
            sum(f.get("bytes", 0) for f in facts),
            sum(f.get("late", 0) for f in facts),
            sum(f.get("bad", 0) for f in facts),
            time.perf_counter() - began,
            _stage_seconds(facts),
            units,
            min(marks, default=None),
            manifest.state_bytes(),
            rows,
        )

    def recycle(self, keep: int) -> None:
        """Remove manifests beyond the newest `keep`, and the runs nobody needs."""
        gone = self._state.recycle(keep)
        if self._place.cache is not None:
            cache = HostCache(Path(self._place.cache), self._place.cache_bytes)
            for run in gone:
                cache.forget(run)

    # -- plan ------------------------------------------------------------------------------------

    def _task(self, epoch: int, spans: list[tuple[str, Span]], record: Mapping[str, Any]) -> EpochTask:
        slices = min(self._slices, self._buckets)
        end = record["end"]
        streams: dict[str, StreamTime] = {}
        ordinal = sum(len(s.partitions) for s in self._manifest.streams.values())
        for name in self._plan.scans:
            known = self._manifest.streams.get(name, StreamTime())
            streams[name] = introduced(known, list(end["at"].get(name, {})), ordinal)
            ordinal += len(streams[name].partitions) - len(known.partitions)
        return EpochTask(
            plan=self._plan,
            epoch=epoch,
            streams=streams,
            finished={name: tuple(end["finished"].get(name, ())) for name in self._plan.scans},
            idle={name: tuple(end["idle"].get(name, ())) for name in self._plan.scans},
            collections=self._manifest.collections,
            bucket_map=spread(self._buckets, slices),
            slices=slices,
            place=self._place,
            engine_pid=os.getpid(),
        )

    # -- run -------------------------------------------------------------------------------------

    def _on_spark(self, task: EpochTask, spans: list[tuple[str, Span]]) -> list[Message]:
        """Scan, exchange and slices as one Spark job; returns what is addressed to the driver."""
        shares = dealt(spans, self._scan_tasks)
        shipped, light = self._shipped, _without_plan(task)
        stage = self._context.parallelize(range(len(shares)), len(shares)).mapPartitionsWithIndex(
            _scan_task(shipped, light, shares)
        )
        for level in range(1, self._plan.levels + 1):
            stage = exchange(self._context, stage, task.slices).mapPartitionsWithIndex(
                _slice_task(shipped, light, level)
            )
        encoded = stage.mapPartitions(lambda pairs: (data for _, data in pairs))
        encoded._jrdd_deserializer = RawBytes()
        collected = [Message.from_bytes(data) for data in encoded.collect()]
        for message in collected:
            if message.kind == "error":
                raise error_of(message)
        return collected

    # -- gather ----------------------------------------------------------------------------------

    def _gathered(
        self, task: EpochTask, messages: list[Message]
    ) -> tuple[dict[str, pl.DataFrame], Manifest, list[dict[str, Any]]]:
        facts = [message.facts for message in messages if message.kind == "facts"]
        seen: dict[str, dict[str, int]] = {}
        for message in messages:
            if message.kind == "time":
                for stream, partitions in message.facts.items():
                    seen.setdefault(stream, {}).update(partitions)
        rows: dict[str, pl.DataFrame] = {}
        answers = dict(self._manifest.answers)
        for output in self._plan.outputs.values():
            frames = [m.frame for m in messages if m.to == f"out:{output.name}" and m.frame is not None]
            made, answer = _answered(output, frames, answers.get(output.name))
            if answer is not None:
                answers[output.name] = answer
            if made is not None:
                rows[output.name] = made
        changes = [
            (owner, name, _unpacked(change))
            for fact in facts
            for owner, name, change in fact.get("changes", ())
        ]
        streams = {
            name: advanced(
                stream,
                seen.get(name, {}),
                self._plan.scans[name].stream.lateness,
                finished=task.finished[name],
                idle=task.idle[name],
            )
            for name, stream in task.streams.items()
        }
        counters = {
            name: self._manifest.counters.get(name, 0) + sum(fact.get(name, 0) for fact in facts)
            for name in ("events", "bytes", "late", "bad")
        }
        manifest = self._manifest.advanced(
            task.epoch, changes, streams=streams, answers=answers, counters=counters
        )
        return rows, manifest, facts

    # -- deliver ---------------------------------------------------------------------------------

    def _deliver(self, epoch: int, rows: Mapping[str, pl.DataFrame], messages: list[Message]) -> None:
        for output in self._plan.outputs.values():
            if output.name in rows:
                for sink in output.sinks:
                    sink.write(epoch, rows[output.name])
        aside = [m.frame for m in messages if m.kind == "aside" and m.frame is not None]
        if aside:
            together = pl.concat(aside).sort("stream", "why", "partition", "offset")
            for (stream, why), part in together.group_by("stream", "why", maintain_order=True):
                self._aside_sink(str(stream), str(why)).write(epoch, part.drop("stream", "why"))

    def _aside_sink(self, stream: str, why: str) -> JsonLines:
        if (stream, why) not in self._aside:
            sink = JsonLines(self._state.path / why / stream)
            sink.open(f"{why}-{stream}", {})
            self._aside[stream, why] = sink
        return self._aside[stream, why]

    def _already_done(self, epoch: int, began: float) -> EpochReport:
        """The manifest is there: the engine died after its commit and before Spark's."""
        reached("committed", epoch)
        return EpochReport(
            epoch,
            0,
            0,
            0,
            0,
            time.perf_counter() - began,
            {},
            {},
            None,
            self._manifest.state_bytes(),
            repeated=True,
        )


def dealt(spans: list[tuple[str, Span]], tasks: int) -> list[list[tuple[str, Span]]]:
    """Spans dealt out to at most `tasks` tasks, the largest first, each to the least loaded."""
    shares: list[list[tuple[str, Span]]] = [[] for _ in range(max(1, min(tasks, len(spans))))]
    loads = [0] * len(shares)
    for stream, span in sorted(spans, key=lambda s: (s[1].start - s[1].end, s[0], s[1].partition)):
        least = loads.index(min(loads))
        shares[least].append((stream, span))
        loads[least] += span.end - span.start
    return shares


def _without_plan(task: EpochTask) -> Callable[[Plan], EpochTask]:
    """Everything of a task but the plan, which travels as a broadcast."""
    parts = {name: getattr(task, name) for name in task.__dataclass_fields__ if name != "plan"}
    return lambda plan: EpochTask(plan=plan, **parts)


def _scan_task(
    shipped: Broadcast[Plan], light: Callable[[Plan], EpochTask], shares: list[list[tuple[str, Span]]]
) -> Callable[[int, Iterable[int]], Iterator[tuple[int, bytes]]]:
    def run(index: int, _: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        task = light(shipped.value)
        try:
            yield from scan(task, shares[index])
        except PenstockError as error:
            yield 0, error_message(error).to_bytes()
        reached("scanned", task.epoch, task.engine_pid)

    return run


def _slice_task(
    shipped: Broadcast[Plan], light: Callable[[Plan], EpochTask], level: int
) -> Callable[[int, Iterable[bytes]], Iterator[tuple[int, bytes]]]:
    def run(index: int, incoming: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
        try:
            yield from work(light(shipped.value), level, index, incoming)
        except PenstockError as error:
            yield 0, error_message(error).to_bytes()

    return run


def _answered(
    output: OutputPlan, frames: list[pl.DataFrame], last: str | None
) -> tuple[pl.DataFrame | None, str | None]:
    """An output's rows of the epoch, in a fixed order, and its last answer."""
    answer = None
    if output.top is not None:
        told = None if last is None else pl.read_ipc_stream(base64.b64decode(last))
        rows, told = output.top.gather(frames, told)
        if told is not None:
            body = io.BytesIO()
            told.write_ipc_stream(body, compat_level=pl.CompatLevel.newest())
            answer = base64.b64encode(body.getvalue()).decode()
        order = [TIME, "rank"]
    else:
        rows = pl.concat(frames) if frames else None
        sortable = [name for name in (rows.columns if rows is not None else ()) if not _nested(rows, name)]
        order = [*(n for n in ORDER if n in sortable), *(n for n in sortable if n not in ORDER)]
    if rows is None or not rows.height:
        return None, answer
    rows = run_steps(output.after, rows.sort(order), f"the rows of {output.name}")
    return rows.select([n for n in output.schema if n in user_columns(rows)]), answer


def _nested(rows: pl.DataFrame | None, name: str) -> bool:
    return rows is not None and rows.schema[name].is_nested()


def _unpacked(change: list[Any]) -> Changes:
    added, dropped = change
    return Changes(
        tuple(RunEntry.from_json(entry) for entry in added),
        tuple((name, frozenset(buckets)) for name, buckets in dropped),
    )


def _stage_seconds(facts: list[dict[str, Any]]) -> dict[str, float]:
    stages = sorted((fact["stage"], fact["seconds"]) for fact in facts)
    return {stage: sum(s for _, s in group) for stage, group in itertools.groupby(stages, key=lambda f: f[0])}


def state_place(state: StateDirectory, cache_root: Path | None, cache_bytes: int) -> StatePlace:
    """Where tasks find the runs of a state directory."""
    name = base64.urlsafe_b64encode(str(state.path.resolve()).encode()).decode().rstrip("=")[-80:]
    cache = None if cache_root is None else str(cache_root / name)
    return StatePlace(str(state.runs.resolve()), cache, cache_bytes)
