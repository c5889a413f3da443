"""A snapshot as Prometheus' text: every declared measurement, once, with its unit in its name and its meaning.

Receives a `Snapshot`; hands the text a scraper reads (exposition format 0.0.4).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.elastic.measurements import MEASUREMENTS, Measured, Measurement, Snapshot

_UNITS = {"share": "ratio", "events/s": "events_per_second", "s": "seconds", "s/s": "ratio"}
_UNITS |= {"B": "bytes", "B/s": "bytes_per_second", "1": ""}
Labelled = Iterable[tuple[dict[str, str], float]]


def exported_name(measurement: Measurement) -> str:
    """`penstock_backlog_seconds`: the name with its unit, unless that stands in it already."""
    unit, name = _UNITS[measurement.unit], measurement.name
    told = name if not unit or name.endswith(f"_{unit}") else f"{name}_{unit}"
    return (
        f"penstock_{told.replace('_bytes_bytes', '_bytes').replace('_seconds_ratio', '_seconds_per_second')}"
    )


def exposition(snapshot: Snapshot) -> str:
    """The whole snapshot as text."""
    lines: list[str] = []
    for measurement in MEASUREMENTS:
        name = exported_name(measurement)
        lines += [f"# HELP {name} {measurement.meaning}", f"# TYPE {name} gauge"]
        for labels, value in _values(measurement, snapshot):
            told = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
            lines.append(f"{name}{{{told}}} {value:.9g}" if told else f"{name} {value:.9g}")
    return "\n".join([*lines, ""])


def _values(measurement: Measurement, snapshot: Snapshot) -> Labelled:
    if measurement.scope == "engine":
        return [({}, _of_engine(measurement.name, snapshot))]
    if measurement.scope == "executor":
        column = snapshot.fleet.cpu if measurement.name == "executor_cpu" else snapshot.fleet.memory
        return [({"executor": name}, float(at)) for name, at in zip(snapshot.fleet.ids, column, strict=True)]
    if measurement.scope == "bucket":
        return list(_of_buckets(measurement.name, snapshot))
    return [
        ({"sub_query": name}, _of_sub_query(measurement.name, one))
        for name, one in snapshot.sub_queries.items()
    ]


def _of_engine(name: str, snapshot: Snapshot) -> float:
    if name == "executors":
        return snapshot.fleet.size
    if name == "spare_executors":
        return len(snapshot.fleet.spare)
    return float(getattr(snapshot, name))


def _of_sub_query(name: str, one: Measured) -> float:
    if name == "exchange_bytes":
        return one.exchange_bytes / one.period_seconds
    return float(getattr(one, name))


def _of_buckets(name: str, snapshot: Snapshot) -> Iterator[tuple[dict[str, str], float]]:
    for sub_query, one in snapshot.sub_queries.items():
        values = one.bucket_bytes if name == "bucket_bytes" else one.bucket_seconds / one.period_seconds
        for bucket, value in enumerate(values):
            yield {"sub_query": sub_query, "bucket": str(bucket)}, float(value)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
