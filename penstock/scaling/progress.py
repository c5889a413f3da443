"""What an order that is under way waits for, and who has died, in words. Pure.

Receives orders, deaths and the time; hands lines for people.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.scaling.decisions import what
from penstock.scaling.realise import Event, Lost, Order, Replaced, Stage

#: so many deaths are remembered, and so many shown
MOST_DEATHS, SHOWN_DEATHS = 50, 5


@dataclass(frozen=True)
class Death:
    """An executor that died, and who came in its place."""

    executor: str
    at: float
    #: whether another was expected to come unasked
    replaced: bool = False
    by: str = ""
    by_at: float = 0.0

    def told(self, at: float) -> str:
        """One line for people."""
        died = f"executor {self.executor} died {_ago(at, self.at)}; its buckets went to others"
        if self.by:
            return f"{died}; executor {self.by} took its place {self.by_at - self.at:.0f} s later"
        return f"{died}; another in its place has not come" if self.replaced else died


def with_deaths(deaths: Sequence[Death], events: Sequence[Event], at: float) -> tuple[Death, ...]:
    """With those that have died and those that were replaced now; the oldest first."""
    found = list(deaths)
    for event in events:
        if isinstance(event, Lost):
            found.append(Death(event.executor, at, event.replaced))
        elif isinstance(event, Replaced):
            first = next((n for n, one in enumerate(found) if one.replaced and not one.by), None)
            if first is not None:
                found[first] = replace(found[first], by=event.executor, by_at=at)
    return tuple(found[-MOST_DEATHS:])


def told(order: Order, at: float) -> str:
    """One line for people: what is changed, and what that waits for."""
    again = f" ({_times(order.tries)}{f': {order.why}' if order.why else ''})" if order.tries else ""
    return f"{what(order.decision)}: {_waits(order, at)}{again}"


def _waits(order: Order, at: float) -> str:
    ago = _ago(at, order.since)
    names = ", ".join(order.executors)
    match order.stage:
        case Stage.asked:
            return f"waits for the cluster's answer, asked {ago}"
        case Stage.coming:
            first, last = len(order.executors) + 1, order.wanted
            which = f"executor {last}" if first == last else f"executors {first} to {last}"
            return f"waits for {which} of {last}, asked {ago}"
        case Stage.moving:
            return f"waits for buckets of {', '.join(sorted(order.pending))} to have moved, begun {ago}"
        case Stage.leaving:
            return f"waits for executor {names} to end, let go {ago}"
        case Stage.undoing:
            return f"is undone: waits for executor {names} to be empty and end, begun {ago}"
        case _:
            return str(order.stage)


def _times(tries: int) -> str:
    return "tried again" if tries == 1 else f"tried again {tries} times"


def _ago(now: float, then: float) -> str:
    return f"{max(now - then, 0.0):.0f} s ago"
