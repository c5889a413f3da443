"""Describes what an order waits for, and which executors failed. Pure.

Receives orders, failures and the time; returns lines for people.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.scaling.decisions import describe
from penstock.scaling.realise import Event, Lost, Order, OrderPhase, Replaced

#: how many failures are remembered, and how many shown
MOST_DEATHS, SHOWN_DEATHS = 50, 5


@dataclass(frozen=True)
class Death:
    """An executor that failed, and its replacement."""

    executor: str
    at: float
    #: whether a replacement was expected without a request
    replaced: bool = False
    by: str = ""
    by_at: float = 0.0

    def describe(self, at: float) -> str:
        """Describe the failure in one line."""
        died = f"executor {self.executor} failed {_ago(at, self.at)}; its buckets moved to others"
        if self.by:
            return f"{died}; executor {self.by} replaced it {self.by_at - self.at:.0f} s later"
        return f"{died}; its replacement has not arrived" if self.replaced else died


def add_deaths(deaths: Sequence[Death], events: Sequence[Event], at: float) -> tuple[Death, ...]:
    """Add the executors that failed or were replaced now; the oldest first."""
    found = list(deaths)
    for event in events:
        if isinstance(event, Lost):
            found.append(Death(event.executor, at, event.replaced))
        elif isinstance(event, Replaced):
            first = next((n for n, one in enumerate(found) if one.replaced and not one.by), None)
            if first is not None:
                found[first] = replace(found[first], by=event.executor, by_at=at)
    return tuple(found[-MOST_DEATHS:])


def describe_order(order: Order, at: float) -> str:
    """Describe an order in one line: what it changes, and what it waits for."""
    again = f" ({_describe_tries(order.tries)}{f': {order.why}' if order.why else ''})" if order.tries else ""
    return f"{describe(order.decision)}: {_describe_wait(order, at)}{again}"


def _describe_wait(order: Order, at: float) -> str:
    ago = _ago(at, order.since)
    names = ", ".join(order.executors)
    match order.phase:
        case OrderPhase.requested:
            return f"waits for the cluster's response, requested {ago}"
        case OrderPhase.coming:
            first, last = len(order.executors) + 1, order.wanted
            which = f"executor {last}" if first == last else f"executors {first} to {last}"
            return f"waits for {which} of {last}, requested {ago}"
        case OrderPhase.moving:
            return f"waits for buckets of {', '.join(sorted(order.pending))} to have moved, started {ago}"
        case OrderPhase.leaving:
            return f"waits for executor {names} to end, released {ago}"
        case OrderPhase.undoing:
            return f"is undone: waits for executor {names} to be empty and end, started {ago}"
        case _:
            return str(order.phase)


def _describe_tries(tries: int) -> str:
    return "tried again" if tries == 1 else f"tried again {tries} times"


def _ago(now: float, then: float) -> str:
    return f"{max(now - then, 0.0):.0f} s ago"
