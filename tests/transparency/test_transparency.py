"""Whatever a query says, its rows are those worked out by hand: however it is cut, and after crashes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, event, given, note, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.engine import admission, epoch, slices, stages
from penstock.engine.steps import STEPS
from penstock.testing.inline import run_inline
from tests.operators.harness import (
    LATENESS,
    SECOND,
    STRAIGHT,
    Cutting,
    Event,
    History,
    cuttings,
    events_stream,
    fast_directory,
    histories,
)
from tests.transparency import oracle, queries
from tests.transparency.compared import rows_of, sorted_rows

EXAMPLES = int(os.environ.get("PENSTOCK_EXAMPLES", "0"))
BUCKETS = st.sampled_from([1, 4, 16])

pytestmark = pytest.mark.timeout(0 if EXAMPLES else 120)


def tried(few: int) -> settings:
    """A few examples, or as many as were asked for; failures are shrunk only then."""
    phases = [Phase.explicit, Phase.reuse, Phase.generate]
    return settings(
        max_examples=EXAMPLES or few,
        deadline=None,
        phases=[*phases, Phase.shrink] if "PENSTOCK_SHRINK" in os.environ else phases,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )


# -- what is compared ----------------------------------------------------------------------------


def log_of(history: History) -> oracle.Log:
    columns = ("time", "user", "page", "n", "x")
    partitions = [
        [{name: getattr(event, name) for name in columns} for event in part] for part in history.partitions
    ]
    return oracle.Log(columns, partitions, "time", LATENESS)


def by_hand(query: queries.Query, one: History, other: History) -> tuple[list[str], bool]:
    rows, sure = oracle.answers(query.node, {"one": log_of(one), "other": log_of(other)})
    event(f"sure: {sure}")
    event(f"rows: {bool(rows)}")
    return sorted_rows(rows), sure


def app_of(
    query: queries.Query, one: History, other: History, cuts: tuple[Cutting, Cutting], *sinks: Any
) -> ps.App:
    streams = {
        name: events_stream(history, cutting, name)
        for name, history, cutting in zip(queries.STREAMS, (one, other), cuts, strict=True)
    }
    return ps.app("any", ps.output("out", queries.built(query.node, streams), *sinks))


def told(
    query: queries.Query,
    one: History,
    other: History,
    cuts: tuple[Cutting, Cutting] = (STRAIGHT, STRAIGHT),
    buckets: int = 8,
) -> list[str]:
    found: list[dict[str, Any]] = []
    with fast_directory() as folder:
        for report in run_inline(
            app_of(query, one, other, cuts),
            Path(folder) / "state",
            slices=lambda number: cuts[0].slices[number % len(cuts[0].slices)],
            buckets=buckets,
            closing=cuts[0].closing,
        ):
            for rows in report.rows.values():
                found += rows.to_dicts()
    return sorted_rows(found)


def holds_however_it_is_cut(
    query: queries.Query, one: History, other: History, cuts: tuple[Cutting, Cutting], buckets: int
) -> None:
    note(str(query.node))
    straight = told(query, one, other)
    expected, sure = by_hand(query, one, other)
    if sure:
        assert straight == expected
    assert told(query, one, other, cuts, buckets) == straight


@st.composite
def busy(draw: st.DrawFn) -> History:
    """One or two partitions of events close to one another, out of order, with few keys and some nulls."""
    step = st.sampled_from(
        [0, 0, 0, 250_000, 250_000, SECOND, SECOND, 3 * SECOND, -SECOND, -2 * SECOND, -5 * SECOND]
    )
    happening = st.tuples(
        step,
        st.sampled_from(["ada", "ada", "bob", "bob", "cyd", None]),
        st.sampled_from(["/a", "/b", "/c", None]),
        st.sampled_from([None, -2, 0, 1, 2, 3, 4, 5]),
        st.sampled_from([None, -2.5, 0.0, 0.25, 3.0]),
    )
    partitions = []
    for partition in range(draw(st.integers(1, 2))):
        now, events = 1_000 * SECOND, []
        for offset, (ahead, *values) in enumerate(draw(st.lists(happening, min_size=6, max_size=14))):
            time = now + ahead
            now = max(now, time)
            events.append(Event(partition, offset, time, *values))
        partitions.append(tuple(events))
    return History(tuple(partitions))


few_events = st.one_of(busy(), busy(), busy(), histories(most_events=12))
two_cuttings = st.tuples(cuttings(), cuttings())


# -- operators by themselves and together --------------------------------------------------------


@pytest.mark.parametrize("kind", [*queries.STATELESS, *queries.STATEFUL])
def test_an_operator_by_itself(kind: str) -> None:
    @tried(5)
    @given(queries.alone(kind), few_events, few_events, two_cuttings, BUCKETS)
    def holds(
        query: queries.Query, one: History, other: History, cuts: tuple[Cutting, Cutting], buckets: int
    ) -> None:
        holds_however_it_is_cut(query, one, other, cuts, buckets)

    holds()


@pytest.mark.parametrize("kind", queries.STATEFUL)
def test_an_operator_after_another(kind: str) -> None:
    @tried(5)
    @given(queries.after_another(kind), few_events, few_events, two_cuttings, BUCKETS)
    def holds(
        query: queries.Query, one: History, other: History, cuts: tuple[Cutting, Cutting], buckets: int
    ) -> None:
        holds_however_it_is_cut(query, one, other, cuts, buckets)

    holds()


@tried(30)
@given(queries.compositions(), few_events, few_events, two_cuttings, BUCKETS)
def test_operators_together(
    query: queries.Query, one: History, other: History, cuts: tuple[Cutting, Cutting], buckets: int
) -> None:
    holds_however_it_is_cut(query, one, other, cuts, buckets)


# -- crashes -------------------------------------------------------------------------------------


class _Crash(BaseException):
    """The end of the engine, in the middle of an epoch."""


@contextmanager
def crashing(at: str, in_epoch: int) -> Iterator[None]:
    """Let the engine end whenever it comes to this step of this epoch."""

    def reached(step: str, number: int, engine_pid: int | None = None) -> None:
        if (step, number) == (at, in_epoch):
            raise _Crash

    with pytest.MonkeyPatch.context() as patch:
        for module in (admission, epoch, slices, stages):
            patch.setattr(module, "reached", reached)
        yield


crashes = st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 4)), min_size=1, max_size=3)


@tried(25)
@given(
    st.one_of(*(queries.alone(kind) for kind in queries.STATEFUL), queries.compositions()),
    few_events,
    few_events,
    two_cuttings,
    crashes,
    BUCKETS,
)
def test_crashes_do_not_show(
    query: queries.Query,
    one: History,
    other: History,
    cuts: tuple[Cutting, Cutting],
    ends: list[tuple[str, int]],
    buckets: int,
) -> None:
    note(str(query.node))
    expected, sure = by_hand(query, one, other)
    if not sure:
        expected = told(query, one, other)
    with fast_directory() as folder:
        state, out = Path(folder) / "state", Path(folder) / "out"
        for number, (step, in_epoch) in enumerate([*ends, ("never", -1)]):
            app = app_of(query, one, other, cuts, ps.jsonl(out))
            with crashing(step, in_epoch):
                try:
                    run_inline(
                        app,
                        state,
                        slices=lambda at, number=number: 1 + (at + number) % 4,
                        buckets=buckets,
                        closing=cuts[0].closing,
                    )
                except _Crash:
                    event(f"crashed at {step}")
        assert rows_of(out) == expected
