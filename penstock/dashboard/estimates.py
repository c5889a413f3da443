"""What the controller of an HA unit thinks of every scheme, and what recoveries really took. Pure.

Receives a unit as `ha status --json` tells it; hands markup and a chart. Nothing is reckoned here: estimates, their
parts and the reasons are the controller's, as it kept them at its last turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from penstock.dashboard.charts import stacked
from penstock.dashboard.markup import Column, chip, clock, lasting, nothing, table
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
_NO_TURN = "Its controller has not had a turn yet."
#: parts that are no steps come after those that are
_LAST = {"correction": 1, "margin": 2}
#: changes of the controller that are shown, the latest first
_CHANGES_SHOWN = 5


def estimates(unit: Mapping[str, Any]) -> Markup:
    """Every scheme's estimate with its parts, what recoveries with it took, and why it is in force or not."""
    controller = unit["controller"]
    decision = controller.get("decision")
    if decision is None:
        return nothing(_NO_TURN)
    head = Markup('<div class="pen-note">{}: {} (at {})</div>').format(
        _asked(unit), decision["reason"], clock(decision["at"])
    )
    rows = [_row(unit, one) for one in decision["considered"]]
    changes = [(clock(at), what) for at, what in reversed(controller["changes"][-_CHANGES_SHOWN:])]
    told = table(_CHANGES, changes, "") if changes else Markup()
    return head + table(_ESTIMATES, rows, "Too little is measured yet to estimate anything.") + told


def chart(unit: Mapping[str, Any]) -> dict[str, Any] | None:
    """The estimates as bars of their parts, with the threshold across and the measured recoveries as points; None
    before there are any."""
    considered = (unit["controller"].get("decision") or {}).get("considered") or ()
    if not considered:
        return None
    schemes = [one["scheme"] for one in considered]
    seconds = [
        {part["name"]: part["seconds"] for part in one["parts"] if part["seconds"]} for one in considered
    ]
    names = sorted({name: None for one in seconds for name in one}, key=lambda name: _LAST.get(name, 0))
    parts = {name: [one.get(name, 0.0) for one in seconds] for name in names}
    points = [(took, scheme) for scheme in schemes for took in measured(unit, scheme)]
    return stacked(schemes, parts, points, unit["threshold_seconds"])


def measured(unit: Mapping[str, Any], scheme: str) -> list[float]:
    """What the recoveries with a scheme took, oldest first, as far as somebody saw the failure."""
    seen = [one for one in unit["recoveries"] if one["scheme"] == scheme and one["failed_at"] is not None]
    return [one["first_result_after"] for one in seen if one["first_result_after"] is not None]


def picked_by(unit: Mapping[str, Any]) -> str:
    """Who chose the scheme in force."""
    return "the controller's choice" if unit["controlled"] else "chosen by people"


def _asked(unit: Mapping[str, Any]) -> str:
    """What is asked of recoveries, and who sees to it."""
    threshold = unit["threshold_seconds"]
    if threshold is None:
        return "no recovery time is asked for"
    semantics = unit["controller"]["settings"]["semantics"]
    kept = "" if unit["controlled"] else ", kept by people"
    return f"within {threshold:g} s, {semantics}{kept}"


def _row(unit: Mapping[str, Any], one: Mapping[str, Any]) -> Sequence[Any]:
    every = one["checkpoint_every"]
    name = one["scheme"] if every == 1 else f"{one['scheme']}, durable every {every}"
    parts = Markup(", ").join(Markup("{}").format(_part(part)) for part in one["parts"] if part["seconds"])
    seconds = Markup("{}").format(lasting(one["seconds"]))
    return name, seconds, _measured(unit, one["scheme"]), parts, f"{one['cost']:.2f}", _verdict(unit, one)


def _part(part: Mapping[str, Any]) -> str:
    """`load 625 ms (50.0 MB at 80.0 MB/s)`."""
    said = f"{part['name']} {lasting(part['seconds'])}"
    kind = part.get("unit")
    if not kind:
        return said
    amount, speed = part.get("amount", 0.0), part.get("speed", 0.0)
    if kind == "bytes":
        return f"{said} ({size(amount)} at {size(speed)}/s)"
    return f"{said} ({amount:,.0f} {kind} at {speed:,.0f}/s)"


def _measured(unit: Mapping[str, Any], scheme: str) -> Markup | None:
    took = measured(unit, scheme)
    if not took:
        return None
    if len(took) == 1:
        return Markup("{}").format(lasting(took[0]))
    return Markup("{} last, {} longest of {}").format(lasting(took[-1]), lasting(max(took)), len(took))


def _verdict(unit: Mapping[str, Any], one: Mapping[str, Any]) -> Markup:
    threshold = unit["threshold_seconds"]
    words = [chip("in force")] if one["scheme"] == unit["scheme"] else []
    if threshold is not None and one["seconds"] > threshold:
        words.append(chip("too slow"))
    elif not words and unit["controlled"] and one.get("rejected"):
        words.append(Markup('<span class="pen-dim">{}</span>').format(one["rejected"]))
    return Markup(" ").join(words)
