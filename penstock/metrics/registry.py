"""Defines what a metric is, and holds the values of metrics by their labels. From any thread.

Guarantees: a counter never decreases; a value has exactly the labels that its metric declares.
"""

from __future__ import annotations

import bisect
import itertools
import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from penstock.errors import InternalError

Kind = Literal["counter", "gauge", "histogram"]
#: values of labels, in the order of the metric's labels
Labels = tuple[str, ...]


@dataclass(frozen=True)
class Metric:
    """One metric: its name as exported, its kind, its unit, its labels and its meaning.

    `former_names` and `former_labels` are what it was called before; they are exported beside it for one version.
    """

    name: str
    kind: Kind
    unit: str
    help: str
    labels: tuple[str, ...] = ()
    former_names: tuple[str, ...] = ()
    #: the former name of a label, by its name
    former_labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    #: upper bounds of a histogram's buckets, ascending
    bounds: tuple[float, ...] = ()


@dataclass
class Histogram:
    """Observations: how many in each bucket (the last one has no bound), and their sum."""

    counts: list[float]
    sum: float = 0.0

    @property
    def count(self) -> float:
        """All observations."""
        return sum(self.counts)

    def cumulative(self) -> list[float]:
        """Observations up to each bound, and all."""
        return list(itertools.accumulate(self.counts))


Value = float | Histogram


class Registry:
    """The values of metrics."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[Metric, dict[Labels, Value]] = {}

    def add(self, metric: Metric, amount: float, *labels: str) -> None:
        """Increase a counter."""
        if metric.kind != "counter" or amount < 0:
            raise _misuse_error(metric, f"is a {metric.kind} and cannot be increased by {amount}")
        with self._lock:
            values = self._values_of(metric, labels)
            before = values.get(labels, 0)
            assert not isinstance(before, Histogram)
            values[labels] = before + amount

    def set(self, metric: Metric, value: float, *labels: str) -> None:
        """Set a gauge; or a counter that is counted elsewhere."""
        if metric.kind == "histogram":
            raise _misuse_error(metric, "is a histogram and cannot be set")
        with self._lock:
            self._values_of(metric, labels)[labels] = value

    def observe(self, metric: Metric, value: float, *labels: str, times: float = 1) -> None:
        """Add observations of one value to a histogram."""
        self.observe_between(metric, value, value, *labels, times=times)

    def observe_between(
        self, metric: Metric, least: float, most: float, *labels: str, times: float = 1
    ) -> None:
        """Add observations that are spread evenly between two values."""
        if metric.kind != "histogram":
            raise _misuse_error(metric, f"is a {metric.kind} and observes nothing")
        with self._lock:
            values = self._values_of(metric, labels)
            found = values.setdefault(labels, Histogram([0] * (len(metric.bounds) + 1)))
            assert isinstance(found, Histogram)
            found.sum += times * (least + most) / 2
            first, last = (bisect.bisect_left(metric.bounds, value) for value in (least, most))
            below = 0.0
            for place in range(first, last):
                share = (metric.bounds[place] - least) / (most - least)
                found.counts[place] += times * (share - below)
                below = share
            found.counts[last] += times if first == last else times * (1 - below)

    def replace(self, metric: Metric, values: Iterable[tuple[Labels, float | None]]) -> None:
        """Set all values of a metric; what is None, or not among them, goes."""
        known = [(labels, value) for labels, value in values if value is not None]
        with self._lock:
            found = self._values_of(metric, *(labels for labels, _ in known))
            found.clear()
            found.update(known)

    def retain(self, label: str, values: Collection[str]) -> None:
        """Drop what has another value of a label than these."""
        with self._lock:
            for metric, found in self._values.items():
                if label in metric.labels:
                    place = metric.labels.index(label)
                    for labels in [one for one in found if one[place] not in values]:
                        del found[labels]

    def value(self, metric: Metric, *labels: str) -> float:
        """The value of a counter or gauge; 0 where there is none."""
        with self._lock:
            found = self._values.get(metric, {}).get(labels, 0)
        assert not isinstance(found, Histogram)
        return found

    def count(self, metric: Metric, *labels: str) -> int:
        """The value of a counter of whole things."""
        return int(self.value(metric, *labels))

    def samples(self) -> list[tuple[Metric, dict[Labels, Value]]]:
        """All metrics that have values."""
        with self._lock:
            return [
                (
                    metric,
                    {
                        labels: Histogram(list(value.counts), value.sum)
                        if isinstance(value, Histogram)
                        else value
                        for labels, value in values.items()
                    },
                )
                for metric, values in self._values.items()
                if values
            ]

    def _values_of(self, metric: Metric, *all_labels: Labels) -> dict[Labels, Value]:
        for labels in all_labels:
            if len(labels) != len(metric.labels):
                raise _misuse_error(metric, f"has the labels {metric.labels}, not {labels}")
        return self._values.setdefault(metric, {})


def _misuse_error(metric: Metric, why: str) -> InternalError:
    return InternalError("METRIC_MISUSED", f"{metric.name} {why}")
