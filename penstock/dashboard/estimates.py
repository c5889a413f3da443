"""Shows how the controller of an HA unit rates every scheme, beside the measured recoveries. Pure.

It reads a unit as `ha status --json` prints it. Nothing is estimated here: estimates, their parts and the reasons are
those of the controller's last decision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from penstock.dashboard.charts import stacked_bars
from penstock.dashboard.markup import Column, chip, clock, duration, empty_note, table
from penstock.formatting import size

_ESTIMATES = (
    Column("scheme"),
    Column("estimate", number=True),
    Column("measured", number=True),
    Column("of which", wide=True),
    Column("cost", number=True, wide=True),
    Column(""),
)
_CHANGES = (Column("when"), Column("what the controller changed, and why"))
_NO_TURN = "Its controller has not decided anything yet."
#: parts that are no steps of a recovery come last
_PART_ORDER = {"correction": 1, "margin": 2}
#: changes of the controller that are shown, the latest first
_MAX_CHANGES = 5


def estimate_table(unit: Mapping[str, Any]) -> Markup:
    """Each scheme with its estimate, the parts of that, measured recoveries, and why it is in force or not."""
    controller = unit["controller"]
    decision = controller.get("decision")
    if decision is None:
        return empty_note(_NO_TURN)
    head = Markup('<div class="pen-note">{}: {} (at {})</div>').format(
        _requirement(unit), decision["reason"], clock(decision["at"])
    )
    rows = [_row(unit, one) for one in decision["considered"]]
    changes = [(clock(at), what) for at, what in reversed(controller["changes"][-_MAX_CHANGES:])]
    history = table(_CHANGES, changes, "") if changes else Markup()
    return head + table(_ESTIMATES, rows, "Too little is measured yet to estimate anything.") + history


def estimate_chart(unit: Mapping[str, Any]) -> dict[str, Any] | None:
    """The estimates as bars of their parts, with a line at the threshold and points at the measured recoveries; None
    before there are any."""
    considered = (unit["controller"].get("decision") or {}).get("considered") or ()
    if not considered:
        return None
    schemes = [one["scheme"] for one in considered]
    seconds = [
        {part["name"]: part["seconds"] for part in one["parts"] if part["seconds"]} for one in considered
    ]
    names = sorted({name: None for one in seconds for name in one}, key=lambda name: _PART_ORDER.get(name, 0))
    parts = {name: [one.get(name, 0.0) for one in seconds] for name in names}
    points = [(took, scheme) for scheme in schemes for took in measured_seconds(unit, scheme)]
    return stacked_bars(schemes, parts, points, unit["threshold_seconds"])


def measured_seconds(unit: Mapping[str, Any], scheme: str) -> list[float]:
    """The durations of recoveries with a scheme, oldest first, where the failure itself was seen."""
    recoveries = [
        one for one in unit["recoveries"] if one["scheme"] == scheme and one["failed_at"] is not None
    ]
    return [one["first_result_after"] for one in recoveries if one["first_result_after"] is not None]


def scheme_origin(unit: Mapping[str, Any]) -> str:
    """Who chose the scheme in force."""
    return "the controller's choice" if unit["controlled"] else "chosen by the user"


def _requirement(unit: Mapping[str, Any]) -> str:
    """The required recovery time, and who chooses the scheme for it."""
    threshold = unit["threshold_seconds"]
    if threshold is None:
        return "no recovery time is required"
    semantics = unit["controller"]["settings"]["semantics"]
    by_user = "" if unit["controlled"] else ", scheme chosen by the user"
    return f"within {threshold:g} s, {semantics}{by_user}"


def _row(unit: Mapping[str, Any], one: Mapping[str, Any]) -> Sequence[Any]:
    every = one["checkpoint_every"]
    name = one["scheme"] if every == 1 else f"{one['scheme']}, durable every {every}"
    parts = Markup(", ").join(_part(part) for part in one["parts"] if part["seconds"])
    seconds = duration(one["seconds"])
    return name, seconds, _measured(unit, one["scheme"]), parts, f"{one['cost']:.2f}", _verdict(unit, one)


def _part(part: Mapping[str, Any]) -> str:
    """`load 625 ms (50.0 MB at 80.0 MB/s)`."""
    text = f"{part['name']} {duration(part['seconds'])}"
    unit = part.get("unit")
    if not unit:
        return text
    amount, speed = part.get("amount", 0.0), part.get("speed", 0.0)
    if unit == "bytes":
        return f"{text} ({size(amount)} at {size(speed)}/s)"
    return f"{text} ({amount:,.0f} {unit} at {speed:,.0f}/s)"


def _measured(unit: Mapping[str, Any], scheme: str) -> str | None:
    seconds = measured_seconds(unit, scheme)
    if not seconds:
        return None
    if len(seconds) == 1:
        return duration(seconds[0])
    return f"{duration(seconds[-1])} last, {duration(max(seconds))} longest of {len(seconds)}"


def _verdict(unit: Mapping[str, Any], one: Mapping[str, Any]) -> Markup:
    threshold = unit["threshold_seconds"]
    chips = [chip("in force")] if one["scheme"] == unit["scheme"] else []
    if threshold is not None and one["seconds"] > threshold:
        chips.append(chip("too slow"))
    elif not chips and unit["controlled"] and one.get("rejected"):
        chips.append(Markup('<span class="pen-dim">{}</span>').format(one["rejected"]))
    return Markup(" ").join(chips)
