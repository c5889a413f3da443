"""Generates loads, measurements and settings for tests of the controller."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from penstock.ha.controller import ControllerState, decide, initial_state
from penstock.ha.decision import Decision
from penstock.ha.history import FIGURES, Load, Measured, Measurement
from penstock.ha.settings import ControllerSettings

#: no deadline of hypothesis: the machine may be busy
NO_DEADLINE = hypothesis_settings(deadline=None)
LOAD = Load(
    at=0.0,
    events_per_second=100_000.0,
    most_events_per_second=250_000.0,
    input_bytes_per_second=20e6,
    output_bytes_per_second=1e6,
    state_bytes=50e6,
    run_bytes=5e6,
    epoch_seconds=1.0,
    cpu_cores=2.0,
    memory_bytes=1.5e9,
    idle_memory_bytes=0.9e9,
    lag_seconds=0.1,
)
TYPICAL: list[Measurement] = [
    Measured("detect", 2.2),
    Measured("start", 12.0),
    Measured("wire", 0.4),
    Measured("deliver", 0.2),
    Measured("load", 80e6),
    Measured("fetch", 150e6),
    Measured("manifest", 0.03),
]


def floats(least: float, most: float) -> st.SearchStrategy[float]:
    return st.floats(least, most, allow_nan=False, allow_infinity=False)


@st.composite
def some_loads(draw: st.DrawFn) -> Load:
    state = draw(floats(0, 5e9))
    return replace(
        LOAD,
        events_per_second=draw(floats(0, 1e6)),
        most_events_per_second=draw(floats(1e3, 1e6)),
        input_bytes_per_second=draw(floats(0, 1e8)),
        output_bytes_per_second=draw(floats(0, 1e8)),
        state_bytes=state,
        run_bytes=draw(floats(0, 1e7)),
        epoch_seconds=draw(floats(0.1, 5)),
        cpu_cores=draw(floats(0.05, 64)),
        memory_bytes=state + draw(floats(1e8, 8e9)),
        idle_memory_bytes=draw(floats(1e8, 8e9)),
        lag_seconds=draw(floats(0, 0.1)),
    )


@st.composite
def some_measurements(draw: st.DrawFn) -> list[Measurement]:
    """A few of each figure, within 20 times of its default."""
    found: list[Measurement] = []
    for name, figure in FIGURES.items():
        times = draw(st.lists(floats(0.05, 20), max_size=3))
        found += [Measured(name, figure.default * time) for time in times]
    return found


def run_controller(
    settings: ControllerSettings, load: Load, measured: list[Measurement] | None = None, turns: int = 12
) -> tuple[ControllerState, Decision]:
    """The controller after some turns, a minute apart, of the same load."""
    state = initial_state(settings, 0.0)
    more = TYPICAL if measured is None else measured
    for turn in range(turns):
        state, decision = decide(state, [*more, replace(load, at=60.0 * turn)], settings, 60.0 * turn)
        more = []
    return state, decision
