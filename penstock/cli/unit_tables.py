"""Draws an HA unit as tables: engines, the controller's view of every scheme, recoveries.

The input is what `ha status --json` prints.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.epoch.recovery import JobRecovery
from penstock.formatting import size

#: counts of what a recovery lost or repeated, in words
_WORDS = {
    "replayed_epochs": "epochs replayed",
    "replayed_events": "events replayed",
    "repeated_epochs": "epochs delivered again",
    "repeated_rows": "rows delivered twice",
    "lost_epochs": "epochs lost",
    "lost_events": "events lost",
    "lost_units": "records or bytes of the logs lost",
    "lost_state_bytes": "bytes of state lost",
    "lost_rows": "rows not delivered",
    "untold_epochs": "epochs not delivered",
    "lost_jobs": "jobs that lost something",
}
#: up to so many jobs get a line each
_SHOWN_JOBS = 20


def draw_unit(unit: dict[str, Any]) -> RenderableType:
    """A unit as tables."""
    every = unit["checkpoint_every"]
    head = f"unit {unit['unit']}  {unit['phase']}  scheme {unit['scheme']}  generation {unit['generation']}"
    durable = f"  durable {unit['durable_epoch']}, every {every}" if every > 1 else ""
    parts: list[RenderableType] = [
        Text(head),
        Text(f"last epoch {unit['last_epoch']}{durable}  state {unit['directory']}"),
        _engines(unit),
        *(
            Text(f"the unit does not wait for {name}, which still lacks data of {', '.join(one['lacks'])}")
            for name, one in unit["engines"].items()
            if one["lacks"]
        ),
    ]
    if decision := unit["controller"].get("decision"):
        parts += _controller(unit, decision)
    if unit["recoveries"]:
        parts.append(_recoveries(unit))
        parts += _describe_outcomes(unit)
    for name, values in unit["measured"].items():
        parts.append(
            Text(f"measured {name}: last {values[-1]:,.3g}, highest {max(values):,.3g}, {len(values)} values")
        )
    return Group(*parts)


def _engines(unit: dict[str, Any]) -> Table:
    table = Table("engine", "role", "phase", "kind", "process", "epoch", "lag", "held", "cached")
    for name, one in unit["engines"].items():
        lag = "-" if one["lag"] is None or one["role"] == "primary" else str(one["lag"])
        epoch = "-" if one["epoch"] < 0 else str(one["epoch"])
        process = f"{one['pid']} on {one['host']}"
        phase = f"{one['phase']}, paused" if one["paused"] else one["phase"]
        cells = (name, one["role"], phase, one["kind"], process, epoch, lag, str(one["held"]))
        table.add_row(*cells, size(one["cached_bytes"]))
    return table


def _controller(unit: dict[str, Any], decision: dict[str, Any]) -> list[RenderableType]:
    settings = unit["controller"]["settings"]
    if unit["controlled"]:
        target = f"within {settings['threshold_seconds']:g} s, {settings['semantics']}"
        parts: list[RenderableType] = [Text(f"controller: {target}: {decision['reason']}")]
    else:
        parts = [Text(f"scheme: {decision['reason']}")]
    if not decision["considered"]:
        return parts
    table = Table("scheme", "estimate", "of which", "checkpoint every", "cost", "why not")
    for one in decision["considered"]:
        largest = sorted(one["parts"], key=lambda part: -part["seconds"])[:3]
        chosen = one["scheme"] == unit["scheme"]
        table.add_row(
            one["scheme"],
            f"{one['seconds']:.2f} s",
            ", ".join(f"{part['name']} {part['seconds']:.2f}" for part in largest),
            str(one["checkpoint_every"]),
            f"{one['cost']:.2f}",
            "in force" if chosen else one.get("rejected", "") if unit["controlled"] else "",
        )
    changes = [
        Text(f"controller, {_ago(unit, at)}: {what}") for at, what in unit["controller"]["changes"][-5:]
    ]
    return [*parts, table, *changes]


def _ago(unit: dict[str, Any], at: float) -> str:
    passed = unit["controller"]["decision"]["at"] - at
    return "just now" if passed < 2 else f"{passed:.0f} s ago"


def _recoveries(unit: dict[str, Any]) -> Table:
    table = Table(
        "lost",
        "leads",
        "generation",
        "scheme",
        "detected after",
        "first result after",
        "estimate",
        "semantics",
    )
    for one in unit["recoveries"]:
        times = [
            "not seen"
            if one[name] is None
            else f"{'at most ' if one['failed_at'] is None else ''}{one[name]:.2f} s"
            for name in ("detected_after", "first_result_after")
        ]
        estimate = "-" if one["estimated_seconds"] is None else f"{one['estimated_seconds']:.2f} s"
        table.add_row(
            one["lost"],
            one["leader"],
            str(one["generation"]),
            one["scheme"],
            *times,
            estimate,
            one["semantics"],
        )
    return table


def describe_count(name: str) -> str:
    """A count of a recovery's outcome, in words."""
    return _WORDS.get(name, name)


def _describe_outcomes(unit: dict[str, Any]) -> list[Text]:
    lines = []
    for one in unit["recoveries"]:
        if one["outcome"]:
            counts = ", ".join(f"{describe_count(n)} {value:,.0f}" for n, value in one["outcome"].items())
            lines.append(Text(f"generation {one['generation']} ({one['semantics']}): {counts}"))
            jobs = {name: JobRecovery.from_json(body) for name, body in one.get("jobs", {}).items()}
            lines += [Text(f"  {line}") for line in job_lines(jobs)]
    return lines


def job_lines(jobs: Mapping[str, JobRecovery]) -> list[str]:
    """What each job lost or repeated, a line each."""
    lines = []
    for name, one in list(jobs.items())[:_SHOWN_JOBS]:
        counts = (f"{describe_count(n)} {value:,.0f}" for n, value in one.counts().items())
        lines.append(f"{name} ({one.semantics}): {', '.join(counts)}")
    if len(jobs) > _SHOWN_JOBS:
        lines.append(f"and {len(jobs) - _SHOWN_JOBS:,} more jobs")
    return lines
