"""The part of the report that says how cost grows: a plot for each thing that grows, with its slope.

The slope is that of the straight line through the points on two
logarithmic axes: 0 means that it costs the same however much there is, 1 that twice as much costs twice as much.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from bench.peers.raw import BUSY
from penstock.simulate import charts as plots

TITLES = {
    "epoch": ("events per epoch", "microseconds an event"),
    "keys": ("keys", "microseconds an event"),
    "window": ("length of the window, seconds of event time", "microseconds an event"),
    "jobs": ("jobs", "microseconds an event"),
    "slices": ("slices", "microseconds an event"),
    "state": ("bytes of state", "milliseconds an epoch of 10,000 events"),
}


def _slopes(points: Sequence[tuple[float, float]]) -> str:
    """The slope through all points, and that at their end, which says more where the curve bends."""
    ordered = sorted(points)
    if len(ordered) < 2:
        return "one point, no slope"
    last = f", {slope(ordered[-2:]):+.2f} from {plots.short(ordered[-2][0])} on" if len(ordered) > 2 else ""
    return f"slope {slope(ordered):+.2f}{last}"


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The exponent of the power law that fits best."""
    logs = [(math.log(x), math.log(y)) for x, y in points]
    mean_x, mean_y = (sum(values) / len(logs) for values in zip(*logs, strict=True))
    spread = sum((x - mean_x) ** 2 for x, _ in logs)
    return sum((x - mean_x) * (y - mean_y) for x, y in logs) / spread if spread else 0.0


def growth_section(measured: Sequence[Mapping[str, Any]], pictures: dict[str, str]) -> str:
    """A paragraph, a table and a plot for each thing that grows."""
    if not measured:
        return ""
    parts = [
        "## How cost grows",
        "",
        "`./run bench growth`: Penstock's own tasks in one process without Spark (the inline engine), one "
        "core, processor time, "
        "one thing growing at a time. A slope of 0: it costs the same however much there is; 1: twice as "
        "much, twice the cost.",
    ]
    for axis, (across, up) in TITLES.items():
        mine = [row for row in measured if row["axis"] == axis]
        if not mine:
            continue
        points = [(float(row["at"]), float(row["cost"])) for row in mine]
        busy = (
            " Measured while the machine was busy."
            if any(row.get("others", 0) > BUSY for row in mine)
            else ""
        )
        file = f"growth-{axis}.svg"
        pictures[file] = plots.curves(f"{up} by {across}", across, up, {"Penstock": points})
        output = ", ".join(f"{plots.short(x)}: {plots.short(y)}" for x, y in sorted(points))
        parts += [
            "",
            f"**{across[0].upper()}{across[1:]}**: {_slopes(points)}. {up[0].upper()}{up[1:]}: {output}.{busy}",
            "",
            f"![{up} by {across}](pictures/{file})",
        ]
    return "\n".join(parts)
