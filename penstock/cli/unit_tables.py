"""An HA unit as tables: its engines, what the controller thinks of every scheme, and its recoveries.

Receives what `ha status --json` tells; hands something to print.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.cli.formatting import size

#: what a recovery lost or repeated, as people read it
_WORDS = {
    "replayed_epochs": "epochs repeated inside",
    "replayed_events": "their events",
    "repeated_epochs": "epochs told again",
    "repeated_rows": "rows taken twice",
    "lost_epochs": "epochs lost",
    "lost_events": "events lost",
    "lost_units": "units of the logs lost",
    "lost_state_bytes": "bytes of state lost",
    "lost_rows": "rows not told",
    "untold_epochs": "epochs not told",
    "lost_jobs": "jobs that lost something",
}
#: jobs that are shown one by one
_SHOWN_JOBS = 20


def drawn(told: dict[str, Any]) -> RenderableType:
    """A unit as tables."""
    every = told["checkpoint_every"]
    head = f"unit {told['unit']}  {told['phase']}  scheme {told['scheme']}  generation {told['generation']}"
    durable = f"  durable {told['durable_epoch']}, every {every}" if every > 1 else ""
    parts: list[RenderableType] = [
        Text(head),
        Text(f"last epoch {told['last_epoch']}{durable}  state {told['directory']}"),
        _engines(told),
        *(
            Text(f"{name} is not waited for: it has no copy of {', '.join(one['lacks'])} in time")
            for name, one in told["engines"].items()
            if one["lacks"]
        ),
    ]
    if decision := told["controller"].get("decision"):
        parts += _controller(told, decision)
    if told["recoveries"]:
        parts.append(_recoveries(told))
        parts += _outcomes(told)
    for name, values in told["measured"].items():
        parts.append(
            Text(f"measured {name}: {values[-1]:,.3g} last, {max(values):,.3g} most, {len(values)} times")
        )
    return Group(*parts)


def _engines(told: dict[str, Any]) -> Table:
    table = Table("engine", "role", "phase", "kind", "process", "epoch", "lag", "held", "cached")
    for name, one in told["engines"].items():
        lag = "-" if one["lag"] is None or one["role"] == "primary" else str(one["lag"])
        epoch = "-" if one["epoch"] < 0 else str(one["epoch"])
        process = f"{one['pid']} on {one['host']}"
        phase = f"{one['phase']}, paused" if one["paused"] else one["phase"]
        cells = (name, one["role"], phase, one["kind"], process, epoch, lag, str(one["held"]))
        table.add_row(*cells, size(one["cached_bytes"]))
    return table


def _controller(told: dict[str, Any], decision: dict[str, Any]) -> list[RenderableType]:
    asked = told["controller"]["settings"]
    if told["controlled"]:
        wanted = f"within {asked['threshold_seconds']:g} s, {asked['semantics']}"
        parts: list[RenderableType] = [Text(f"controller: {wanted}: {decision['reason']}")]
    else:
        parts = [Text(f"scheme: {decision['reason']}")]
    if not decision["considered"]:
        return parts
    table = Table("scheme", "estimate", "of which", "durable every", "cost", "why not")
    for one in decision["considered"]:
        largest = sorted(one["parts"], key=lambda part: -part["seconds"])[:3]
        chosen = one["scheme"] == told["scheme"]
        table.add_row(
            one["scheme"],
            f"{one['seconds']:.2f} s",
            ", ".join(f"{part['name']} {part['seconds']:.2f}" for part in largest),
            str(one["checkpoint_every"]),
            f"{one['cost']:.2f}",
            "in force" if chosen else one.get("rejected", "") if told["controlled"] else "",
        )
    changes = [
        Text(f"controller, {_ago(told, at)}: {what}") for at, what in told["controller"]["changes"][-5:]
    ]
    return [*parts, table, *changes]


def _ago(told: dict[str, Any], at: float) -> str:
    passed = told["controller"]["decision"]["at"] - at
    return "just now" if passed < 2 else f"{passed:.0f} s ago"


def _recoveries(told: dict[str, Any]) -> Table:
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
    for one in told["recoveries"]:
        times = [
            "not seen"
            if one[name] is None
            else f"{'at most ' if one['failed_at'] is None else ''}{one[name]:.2f} s"
            for name in ("detected_after", "first_result_after")
        ]
        reckoned = "-" if one["estimated_seconds"] is None else f"{one['estimated_seconds']:.2f} s"
        table.add_row(
            one["lost"],
            one["leader"],
            str(one["generation"]),
            one["scheme"],
            *times,
            reckoned,
            one["semantics"],
        )
    return table


def counted(name: str) -> str:
    """What a count of a recovery's outcome counts."""
    return _WORDS.get(name, name)


def _outcomes(told: dict[str, Any]) -> list[Text]:
    found = []
    for one in told["recoveries"]:
        if one["outcome"]:
            counts = ", ".join(f"{counted(n)} {value:,.0f}" for n, value in one["outcome"].items())
            found.append(Text(f"generation {one['generation']} ({one['semantics']}): {counts}"))
            found += [Text(f"  {line}") for line in of_jobs(one.get("jobs", {}))]
    return found


def of_jobs(told: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What each job lost or repeated, a line each."""
    lines = []
    for name, one in list(told.items())[:_SHOWN_JOBS]:
        counts = (f"{counted(n)} {value:,.0f}" for n, value in one.items() if n != "semantics")
        lines.append(f"{name} ({one['semantics']}): {', '.join(counts)}")
    if len(told) > _SHOWN_JOBS:
        lines.append(f"and {len(told) - _SHOWN_JOBS:,} jobs more")
    return lines
