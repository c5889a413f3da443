"""Exports registries in Prometheus' text format (0.0.4).

The text has HELP and TYPE of every metric that has a value. A metric that was renamed is
exported under its former names as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from penstock.metrics.registry import Histogram, Labels, Metric, Registry, Value

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def expose(*registries: Registry) -> str:
    """All values as text. Of a metric that several registries have, those of the first are taken."""
    found: dict[Metric, dict[Labels, Value]] = {}
    for registry in registries:
        for metric, values in registry.samples():
            found.setdefault(metric, values)
    lines: list[str] = []
    for metric in sorted(found, key=lambda one: one.name):
        lines += _family(metric, found[metric])
    return "\n".join([*lines, ""])


def _family(metric: Metric, values: Mapping[Labels, Value]) -> Iterator[str]:
    yield from _head(metric.name, metric, metric.help)
    renamed = metric.former_labels
    former = [(place, renamed[name]) for place, name in enumerate(metric.labels) if name in renamed]
    both = not metric.former_names
    for labels, value in values.items():
        # where only a label was renamed, the one metric has it under both names
        more = [(name, labels[place]) for place, name in former] if both else []
        yield from _samples(metric.name, metric, [*zip(metric.labels, labels, strict=True), *more], value)
    names = [renamed.get(name, name) for name in metric.labels]
    for alias in metric.former_names:
        yield from _head(alias, metric, f"Deprecated, now {metric.name}. {metric.help}")
        for labels, value in values.items():
            yield from _samples(alias, metric, list(zip(names, labels, strict=True)), value)


def _head(name: str, metric: Metric, meaning: str) -> list[str]:
    escaped = meaning.replace("\\", "\\\\").replace("\n", "\\n")
    return [f"# HELP {name} {escaped}", f"# TYPE {name} {metric.kind}"]


def _samples(name: str, metric: Metric, labels: list[tuple[str, str]], value: Value) -> Iterator[str]:
    if not isinstance(value, Histogram):
        yield _sample(name, labels, value)
        return
    for bound, count in zip((*metric.bounds, float("inf")), value.cumulative(), strict=True):
        yield _sample(f"{name}_bucket", [*labels, ("le", _number(bound))], count)
    yield _sample(f"{name}_sum", labels, value.sum)
    yield _sample(f"{name}_count", labels, value.count)


def _sample(name: str, labels: Iterable[tuple[str, str]], value: float) -> str:
    shown = ",".join(f'{label}="{_escape(text)}"' for label, text in labels)
    return f"{name}{{{shown}}} {_number(value)}" if shown else f"{name} {_number(value)}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if isinstance(value, int):
        return str(value)
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return f"{value:.15g}"
