"""Chooses the cheapest scheme that recovers within the user's threshold. Pure.

`decide` maps the controller's state, new measurements, settings and the time to the next state and a `Decision`.

Invariants:
- After the warm-up, no scheme over the threshold is chosen while one within it exists.
- It starts with the safest scheme and leaves it only because of measurements.
- A switch that saves cost waits for the cool-down; a switch that keeps the threshold does not.
- If no scheme is within the threshold, it chooses the fastest, and the decision says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from penstock.ha.cost import overhead
from penstock.ha.decision import Considered, Decision, Rejected
from penstock.ha.estimate import estimate
from penstock.ha.history import FIGURES, History, Measurement, Outlook, outlook
from penstock.ha.schemes import Scheme
from penstock.ha.settings import ControllerSettings


@dataclass(frozen=True)
class ControllerState:
    """What the controller keeps between turns."""

    scheme: Scheme
    checkpoint_every: int
    #: when the scheme or the interval was last changed
    changed_at: float
    history: History = field(default_factory=History)


def initial_state(settings: ControllerSettings, now: float) -> ControllerState:
    """The state before anything is measured: the safest scheme."""
    known = {"detect": settings.lease_seconds + settings.heartbeat_seconds}
    history = History(defaults={**History().defaults, **known})
    return ControllerState(settings.first_scheme, min(settings.checkpoint_choices), now, history)


def decide(
    state: ControllerState, measurements: Iterable[Measurement], settings: ControllerSettings, now: float
) -> tuple[ControllerState, Decision]:
    """One turn."""
    history = state.history.fold(measurements)
    if len(history.loads) < settings.warm_up_loads:
        state = replace(state, history=history)
        return state, _warm_up(state, settings, now)
    ahead = outlook(history.loads, settings.ahead_seconds)
    best = {scheme: _choose_interval(scheme, settings, history, ahead) for scheme in settings.schemes}
    current = _consider(state.scheme, state.checkpoint_every, settings, history, ahead)
    cooling = now - state.changed_at < settings.cool_down_seconds
    chosen, reason = _choose(list(best.values()), current, settings, cooling)
    decision = Decision(
        now,
        state.scheme,
        state.checkpoint_every,
        chosen.scheme,
        chosen.checkpoint_every,
        reason,
        suits=chosen.estimate.seconds <= settings.threshold_seconds,
        inputs=_collect_inputs(history, ahead, settings),
        considered=tuple(
            chosen
            if scheme is chosen.scheme
            else replace(one, rejected=_explain_rejection(one, chosen, settings, cooling))
            for scheme, one in best.items()
        ),
    )
    after = ControllerState(
        chosen.scheme,
        chosen.checkpoint_every,
        now if decision.changed else state.changed_at,
        history,
    )
    return after, decision


def _choose(
    best: list[Considered], current: Considered, settings: ControllerSettings, cooling: bool
) -> tuple[Considered, str]:
    threshold = settings.threshold_seconds
    allowed = [one for one in best if one.estimate.seconds <= threshold]
    if not allowed:
        fastest = min(best, key=lambda one: (one.estimate.seconds, one.cost))
        seconds = fastest.estimate.seconds
        fastest_reason = (
            f"no scheme is within {threshold:g} s; {fastest.scheme} is the fastest, {seconds:.1f} s"
        )
        # do not switch between two that are about as slow
        if current.estimate.seconds <= fastest.estimate.seconds * 1.05 and current.scheme in settings.schemes:
            return current, f"no scheme is within {threshold:g} s; {current.scheme} is about as fast as any"
        return fastest, fastest_reason
    free = threshold * (1.0 - settings.headroom)
    comfortable = [one for one in allowed if one.estimate.seconds <= free]
    if current.estimate.seconds > threshold or current.scheme not in settings.schemes:
        cheapest = min(comfortable or allowed, key=lambda one: one.rank)
        was = f"{current.scheme} would take {current.estimate.seconds:.1f} s of {threshold:g} s"
        return cheapest, f"{was}; {cheapest.scheme} is the cheapest within it"
    cheapest = min([*comfortable, current], key=lambda one: one.rank)
    if cheapest.rank >= current.rank:
        return current, "the cheapest within the threshold already"
    ties = cheapest.rank[0] == current.rank[0]
    if not ties and cheapest.cost > current.cost * (1.0 - settings.least_saving):
        return current, f"{cheapest.scheme} would save less than {settings.least_saving:.0%}"
    if cooling:
        return current, "cooling down after the last change"
    if ties:
        return cheapest, "costs the same and is faster"
    saved = 1.0 - cheapest.cost / current.cost
    return (
        cheapest,
        f"saves {saved:.0%} of the cost and takes {cheapest.estimate.seconds:.1f} s of {threshold:g} s",
    )


def _explain_rejection(
    one: Considered, chosen: Considered, settings: ControllerSettings, cooling: bool
) -> Rejected:
    """Why a scheme was not chosen."""
    if one.estimate.seconds > settings.threshold_seconds:
        return Rejected.too_slow
    if one.rank[0] > chosen.rank[0]:
        return Rejected.costlier
    if one.rank > chosen.rank:
        return Rejected.slower
    if one.estimate.seconds > settings.threshold_seconds * (1.0 - settings.headroom):
        return Rejected.too_close
    if one.rank[0] < chosen.rank[0] and one.cost > chosen.cost * (1.0 - settings.least_saving):
        return Rejected.saves_little
    return Rejected.cooling if cooling else Rejected.saves_little


def _choose_interval(
    scheme: Scheme, settings: ControllerSettings, history: History, ahead: Outlook
) -> Considered:
    """A scheme with the interval that is cheapest within the threshold, or with the shortest if none is."""
    choices = [
        _consider(scheme, every, settings, history, ahead) for every in sorted(settings.checkpoint_choices)
    ]
    if len(choices) == 1:
        return choices[0]
    free = settings.threshold_seconds * (1.0 - settings.headroom)
    for most in (free, settings.threshold_seconds):
        within = [one for one in choices if one.estimate.seconds <= most]
        if within:
            return min(within, key=lambda one: one.rank)
    return choices[0]


def _consider(
    scheme: Scheme, every: int, settings: ControllerSettings, history: History, ahead: Outlook
) -> Considered:
    estimated = estimate(
        scheme, every, settings.semantics, history, ahead, settings.margin, one_leader=settings.one_leader
    )
    taken = overhead(scheme, history.loads[-1], every, history.safe("manifest"))
    return Considered(estimated, taken, settings.weights.cost(taken))


def _warm_up(state: ControllerState, settings: ControllerSettings, now: float) -> Decision:
    seen = len(state.history.loads)
    return Decision(
        now,
        state.scheme,
        state.checkpoint_every,
        state.scheme,
        state.checkpoint_every,
        f"on the safe side until {settings.warm_up_loads} loads are measured; {seen} so far",
        suits=True,
        inputs={"threshold_seconds": settings.threshold_seconds, "loads": float(seen)},
    )


def _collect_inputs(history: History, ahead: Outlook, settings: ControllerSettings) -> dict[str, float]:
    return {
        "threshold_seconds": settings.threshold_seconds,
        **vars(ahead),
        **{f"safe_{name}": history.safe(name) for name in FIGURES},
    }
