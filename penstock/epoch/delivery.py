"""The outlet: where an epoch's rows leave the engine, or are held back while another engine delivers them.

Receives the rows of epochs, in order; hands them to the sinks, and what was put aside to files of the unit.

Invariant: whoever delivers an epoch has delivered all before it, or knows that the sinks have them. So the sinks hold
the epochs up to one, also when two engines deliver the same.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

import polars as pl

from penstock.errors import ExternalError
from penstock.query.physical import Plan
from penstock.sinks.files import JsonLines

#: how often rows are offered again as another generation, when the leader has changed meanwhile
_AGAIN = 20


class Outlet:
    """Delivers, as the generation of whoever leads; with `holding` it keeps rows until told to deliver or forget."""

    def __init__(self, generation: Callable[[], int], aside: Path, *, holding: bool = False) -> None:
        self.generation = generation
        self._aside_root = aside
        self._aside: dict[tuple[str, str], JsonLines] = {}
        self._holding = holding
        self._held: deque[tuple[int, Plan, Mapping[str, pl.DataFrame], pl.DataFrame | None]] = deque()
        self._lock = threading.RLock()

    @property
    def held_epochs(self) -> list[int]:
        """The epochs whose rows are held back."""
        with self._lock:
            return [epoch for epoch, *_ in self._held]

    def take(
        self, epoch: int, plan: Plan, rows: Mapping[str, pl.DataFrame], aside: pl.DataFrame | None
    ) -> Mapping[str, int]:
        """Take an epoch's rows; how many the sinks have taken of them now, by output."""
        with self._lock:
            if self._holding:
                self._held.append((epoch, plan, rows, aside))
                return {}
            return self._deliver(epoch, plan, rows, aside)

    def hold(self) -> None:
        """Keep rows back from now on."""
        with self._lock:
            self._holding = True

    def open(self) -> None:
        """Deliver what is held, in order, and from now on at once."""
        with self._lock:
            while self._held:
                self._deliver(*self._held[0])
                self._held.popleft()
            self._holding = False

    def forget(self, through: int) -> None:
        """Told that the sinks have the epochs up to this one."""
        with self._lock:
            while self._held and self._held[0][0] <= through:
                self._held.popleft()

    def _deliver(
        self, epoch: int, plan: Plan, rows: Mapping[str, pl.DataFrame], aside: pl.DataFrame | None
    ) -> Mapping[str, int]:
        """Deliver as who leads now; when that is another by the time it arrives, again: the rows are the same."""
        for attempt in range(_AGAIN):
            generation = self.generation()
            try:
                return self._write(generation, epoch, plan, rows, aside)
            except ExternalError as refused:
                if refused.condition != "FENCED" or self.generation() == generation or attempt + 1 == _AGAIN:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _write(
        self,
        generation: int,
        epoch: int,
        plan: Plan,
        rows: Mapping[str, pl.DataFrame],
        aside: pl.DataFrame | None,
    ) -> Mapping[str, int]:
        taken = dict.fromkeys(rows, 0)
        for name, told in rows.items():
            for sink in plan.outputs[name].sinks:
                sink.take_over(generation)
                taken[name] += told.height if sink.write(epoch, told) else 0
        if aside is not None:
            ordered = aside.sort("stream", "why", "partition", "offset")
            for (stream, why), part in ordered.group_by("stream", "why", maintain_order=True):
                sink = self._aside_sink(str(stream), str(why))
                sink.take_over(generation)
                sink.write(epoch, part.drop("stream", "why"))
        return taken

    def _aside_sink(self, stream: str, why: str) -> JsonLines:
        """Where a stream's dead letters or late events are kept."""
        if (stream, why) not in self._aside:
            sink = JsonLines(self._aside_root / why / stream)
            sink.open(f"{why}-{stream}", {})
            self._aside[stream, why] = sink
        return self._aside[stream, why]
