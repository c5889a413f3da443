"""Random queries: their rows are those of the oracle, however they are executed, and after crashes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, assume, event, given, note, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.epoch import admission, stages
from penstock.epoch import runner as epoch
from penstock.epoch import slice as slices
from penstock.epoch.kill_points import STEPS
from penstock.epoch.stages import SEED
from tests.operators.harness import (
    LATENESS,
    SECOND,
    Event,
    History,
    events_stream,
    fast_directory,
    histories,
)
from tests.transparency import oracle, queries
from tests.transparency import ways as execution
from tests.transparency.compared import rows_of, sorted_rows
from tests.transparency.ways import IN_ONE_GO, Ways, ways

EXAMPLES = int(os.environ.get("PENSTOCK_EXAMPLES", "0"))
#: a case is drawn so often until its query has rows
DRAWS = 6

pytestmark = pytest.mark.timeout(0 if EXAMPLES else 120)


def tried(few: int) -> settings:
    """A few examples, or as many as were asked for; failures are shrunk only then.

    What is assumed away does not count. Unless more are asked for, they are the same every time."""
    phases = [Phase.explicit, Phase.reuse, Phase.generate]
    return settings(
        max_examples=EXAMPLES or few,
        deadline=None,
        derandomize=not EXAMPLES,
        phases=[*phases, Phase.shrink] if "PENSTOCK_SHRINK" in os.environ else phases,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )


# -- what is compared ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """Outputs, two streams to read, and the rows worked out by hand, where these are sure."""

    outputs: dict[str, Any]
    one: History
    other: History
    rows: dict[str, list[str] | None]
    #: whether the first output has rows
    lively: bool


def log_of(history: History) -> oracle.Log:
    columns = ("time", "user", "page", "n", "x")
    partitions = [
        [{name: getattr(event, name) for name in columns} for event in part] for part in history.partitions
    ]
    return oracle.Log(columns, partitions, "time", LATENESS)


def by_hand(node: Any, one: History, other: History) -> tuple[list[str], bool]:
    rows, sure = oracle.answers(node, {"one": log_of(one), "other": log_of(other)})
    return sorted_rows(rows), sure


@st.composite
def cases(draw: st.DrawFn, drawn: st.SearchStrategy[queries.Query]) -> Case:
    """A query and events, drawn until it has rows; now and then with what it was made of as a second output."""
    for number in range(DRAWS):
        if number % 2 == 0:
            query = draw(drawn)
        one, other = draw(few_events), draw(few_events)
        rows, sure = by_hand(query.node, one, other)
        if rows:
            break
    outputs, found = {"out": query.node}, {"out": rows if sure else None}
    before = getattr(query.node, "input", None)
    if before is not None and draw(st.integers(0, 3)) == 0:
        outputs["before"] = before
        others, known = by_hand(before, one, other)
        found["before"] = others if known else None
    return Case(outputs, one, other, found, bool(rows))


def app_of(case: Case, how: Ways, folder: Path | None = None) -> ps.App:
    """The case as an app; with a folder, its rows go to files there."""
    streams = {
        name: events_stream(history, cutting, name)
        for name, history, cutting in zip(queries.STREAMS, (case.one, case.other), how.cuts, strict=True)
    }
    known: dict[Any, ps.Stream] = {}
    return ps.app(
        "any",
        *(
            ps.output(
                name,
                queries.built(node, streams, known, how.partition),
                *([] if folder is None else [ps.jsonl(folder / name)]),
            )
            for name, node in case.outputs.items()
        ),
    )


def told(case: Case, how: Ways = IN_ONE_GO) -> dict[str, list[str]]:
    found: dict[str, list[Any]] = {name: [] for name in case.outputs}
    with fast_directory() as folder:
        for report in execution.epochs(app_of(case, how), Path(folder) / "state", how):
            for name, rows in report.rows.items():
                found[name] += rows.to_dicts()
    return {name: sorted_rows(rows) for name, rows in found.items()}


def holds_however_it_is_carried_out(case: Case, how: Ways) -> None:
    note(f"{SEED}={os.environ.get(SEED, '0')}")
    note(str(case.outputs))
    straight = told(case)
    for name, rows in case.rows.items():
        event(f"sure: {rows is not None}")
        assert rows is None or straight[name] == rows
    assert told(case, how) == straight


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


# -- operators by themselves and together --------------------------------------------------------


def holds_for_all(drawn: st.SearchStrategy[queries.Query], few: int) -> None:
    """Tries so many cases that have rows to compare."""
    compared = 0

    @tried(few)
    @given(cases(drawn), ways())
    def holds(case: Case, how: Ways) -> None:
        nonlocal compared
        assume(case.lively)
        holds_however_it_is_carried_out(case, how)
        compared += 1

    holds()
    assert compared >= (EXAMPLES or few)


@pytest.mark.parametrize("kind", [*queries.STATELESS, *queries.STATEFUL])
def test_an_operator_by_itself(kind: str) -> None:
    holds_for_all(queries.alone(kind), 5)


@pytest.mark.parametrize("kind", queries.STATEFUL)
def test_an_operator_after_another(kind: str) -> None:
    holds_for_all(queries.after_another(kind), 5)


def test_operators_together() -> None:
    holds_for_all(queries.compositions(), 30)


# -- crashes -------------------------------------------------------------------------------------


class Crash(BaseException):
    """The end of the engine, in the middle of an epoch."""


@contextmanager
def crashing(at: str, in_epoch: int) -> Iterator[None]:
    """Let the engine end whenever it comes to this step of this epoch."""

    def reached(step: str, number: int, engine_pid: int | None = None) -> None:
        if (step, number) == (at, in_epoch):
            raise Crash

    with pytest.MonkeyPatch.context() as patch:
        for module in (admission, epoch, slices, stages):
            patch.setattr(module, "reached", reached)
        yield


crashes = st.lists(
    st.tuples(st.sampled_from(STEPS), st.sampled_from([0, 0, 0, 1, 1, 2, 3])), min_size=1, max_size=3
)
of_any_kind = st.one_of(*(queries.alone(kind) for kind in queries.STATEFUL), queries.compositions())


def test_crashes_do_not_show() -> None:
    compared = 0

    @tried(25)
    @given(cases(of_any_kind), ways(), crashes)
    def holds(case: Case, how: Ways, at: list[tuple[str, int]]) -> None:
        nonlocal compared
        assume(case.lively)
        note(str(case.outputs))
        straight = told(case)
        crashed = 0
        with fast_directory() as folder:
            state, out = Path(folder) / "state", Path(folder) / "out"
            for life, (step, in_epoch) in enumerate([*at, ("never", -1)]):
                with crashing(step, in_epoch):
                    try:
                        for _ in execution.epochs(app_of(case, how, out), state, how, shift=life):
                            pass
                    except Crash:
                        event(f"crashed at {step}")
                        crashed += 1
            found = {name: rows_of(out / name) for name in case.outputs}
        for name, expected in straight.items():
            known = case.rows[name]
            assert found[name] == (expected if known is None else known)
        assume(crashed > 0)  # else it does not count
        compared += 1

    holds()
    assert compared >= (EXAMPLES or 25)
