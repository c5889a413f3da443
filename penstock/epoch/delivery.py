"""Decides which of an epoch's rows the sinks receive, and delivers them, or holds them back while another engine does.

Dead letters, late events and skipped spans go to files in a directory of the engine or of its HA unit.

Guarantees: epochs are delivered in order. Whoever delivers an epoch has delivered all before it, or knows that the
sinks have them; so the sinks have all epochs up to one, also when two engines deliver the same epoch.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from penstock.epoch.recovery import RecoveryActions
from penstock.errors import ExternalError, is_transient
from penstock.query.physical import Plan
from penstock.sinks.files import JsonLines, PrivateJsonLines
from penstock.state.manifest import Manifest

_LOG = logging.getLogger(__name__)
#: how often an epoch is delivered again under another generation, when the leader has changed meanwhile
_ATTEMPTS = 20


@dataclass(frozen=True)
class DeliveryPlan:
    """What happens to an epoch's rows."""

    to_sinks: Mapping[str, pl.DataFrame]
    #: for questions, and for jobs that read them an epoch later
    to_keep: Mapping[str, pl.DataFrame]
    #: how many rows outputs would have had that skip the epoch
    withheld_rows: Mapping[str, int]
    #: whether sinks receive again what they have
    redelivers: bool = False


def plan_delivery(
    rows: Mapping[str, pl.DataFrame],
    actions: RecoveryActions,
    plan: Plan,
    skipping: frozenset[str],
    already_delivered: bool,
) -> DeliveryPlan:
    """Decide what happens to an epoch's rows. `skipping`: the outputs that skip it; `already_delivered`: the sinks are
    known to have them."""
    delivered = actions.redelivered_outputs(plan) if already_delivered else frozenset(plan.outputs)
    read = frozenset() if plan.jobs is None else plan.jobs.previous.keys()
    return DeliveryPlan(
        {name: frame for name, frame in rows.items() if name in delivered - skipping},
        {name: frame for name, frame in rows.items() if name not in skipping or name in read},
        {name: rows[name].height if name in rows else 0 for name in skipping},
        redelivers=already_delivered and bool(delivered),
    )


def keep_last_results(before: Manifest, after: Manifest, skipping: frozenset[str]) -> Manifest:
    """The state after an epoch, with the last results before it for outputs that skip it."""
    if not skipping:
        return after
    results = {name: result for name, result in after.last_results.items() if name not in skipping}
    results |= {name: result for name, result in before.last_results.items() if name in skipping}
    return replace(after, last_results=results)


@dataclass(frozen=True)
class _EpochRows:
    """What one epoch delivers."""

    epoch: int
    plan: Plan
    rows: Mapping[str, pl.DataFrame]
    side_output: pl.DataFrame | None


class Delivery:
    """Delivers under the generation of the leader. From `hold` on it keeps rows until `release` or `drop_held`."""

    def __init__(self, generation: Callable[[], int], side_output: Path) -> None:
        self.generation = generation
        self._side_output = side_output
        self._side_sinks: dict[tuple[str, str], JsonLines] = {}
        self._is_holding = False
        self._held: deque[_EpochRows] = deque()
        self._lock = threading.RLock()
        #: whether a job, by name and number, is dropped by now: a sink of it that is away is not waited for
        self.is_dropped: Callable[[str, int | None], bool] = lambda name, number: False

    @property
    def held_epochs(self) -> list[int]:
        """The epochs whose rows are held back."""
        with self._lock:
            return [one.epoch for one in self._held]

    def deliver(
        self, epoch: int, plan: Plan, rows: Mapping[str, pl.DataFrame], side_output: pl.DataFrame | None
    ) -> Mapping[str, int]:
        """Deliver an epoch's rows; returns how many the sinks have taken now, by output."""
        one = _EpochRows(epoch, plan, rows, side_output)
        with self._lock:
            if self._is_holding:
                self._held.append(one)
                return {}
            return self._deliver(one)

    def hold(self) -> None:
        """Hold rows back from now on."""
        with self._lock:
            self._is_holding = True

    def release(self) -> None:
        """Deliver what is held, in order, and from now on at once."""
        with self._lock:
            while self._held:
                self._deliver(self._held[0])
                self._held.popleft()
            self._is_holding = False

    def drop_held(self, last_epoch: int) -> None:
        """Drop held epochs up to this one, which the sinks have."""
        with self._lock:
            while self._held and self._held[0].epoch <= last_epoch:
                self._held.popleft()

    def _deliver(self, one: _EpochRows) -> Mapping[str, int]:
        """Deliver under the current generation; again if another one leads by then, since the rows are the same."""
        for attempt in range(_ATTEMPTS):
            generation = self.generation()
            try:
                return self._write(generation, one)
            except ExternalError as refused:
                is_same = self.generation() == generation
                if refused.condition != "FENCED" or is_same or attempt + 1 == _ATTEMPTS:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _write(self, generation: int, one: _EpochRows) -> Mapping[str, int]:
        written = dict.fromkeys(one.rows, 0)
        for name, rows in one.rows.items():
            output = one.plan.outputs[name]
            for sink in output.sinks:
                try:
                    sink.take_over(generation)
                    written[name] += rows.height if sink.write(one.epoch, rows) else 0
                except Exception as failure:  # raised again unless nobody wants the rows any more
                    if not (is_transient(failure) and self.is_dropped(name, output.job)):
                        raise
                    _LOG.warning(
                        "%s is away and its job %s is dropped: %d rows of epoch %d are not delivered",
                        *(sink.describe(), name, rows.height, one.epoch),
                    )
        if one.side_output is not None:
            ordered = one.side_output.sort("stream", "why", "partition", "offset")
            for (stream, why), part in ordered.group_by("stream", "why", maintain_order=True):
                side_sink = self._side_sink(str(stream), str(why))
                side_sink.take_over(generation)
                side_sink.write(one.epoch, part.drop("stream", "why"))
        return written

    def _side_sink(self, stream: str, why: str) -> JsonLines:
        """The files of a stream's dead letters (`why` is `dead`), late events (`late`) or skipped spans (`leaped`)."""
        if (stream, why) not in self._side_sinks:
            sink = PrivateJsonLines(self._side_output / why / stream)
            sink.open(f"{why}-{stream}", {})
            self._side_sinks[stream, why] = sink
        return self._side_sinks[stream, why]
