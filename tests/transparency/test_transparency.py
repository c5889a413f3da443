"""Random queries emit the rows of the oracle, however they are executed, also after crashes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, assume, event, given, note, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.epoch.kill_points import STEPS
from penstock.epoch.stages import SEED
from tests.crash import Crashed, crash_at
from tests.operators.harness import (
    LATENESS,
    SECOND,
    Event,
    History,
    Place,
    events_stream,
    fast_directory,
    histories,
)
from tests.transparency import oracle, queries
from tests.transparency.comparison import read_rows, sorted_rows
from tests.transparency.description import reads_late_events, reads_together
from tests.transparency.executions import UNDISTURBED, Execution, executions, run_epochs
from tests.transparency.idleness import Bounds, Idleness, bounds_of, idleness_of, late_places, read_records

EXAMPLES = int(os.environ.get("PENSTOCK_EXAMPLES", "0"))
#: a case is drawn at most so often until its query has rows
DRAWS = 6

pytestmark = [pytest.mark.slow, pytest.mark.timeout(0 if EXAMPLES else 120)]


def example_settings(few: int) -> settings:
    """Run a few examples, the same every time, or as many as `PENSTOCK_EXAMPLES` requests.

    Examples that `assume` rejects do not count. Failures are shrunk with `PENSTOCK_SHRINK`."""
    phases = [Phase.explicit, Phase.reuse, Phase.generate]
    return settings(
        max_examples=EXAMPLES or few,
        deadline=None,
        derandomize=not EXAMPLES,
        phases=[*phases, Phase.shrink] if "PENSTOCK_SHRINK" in os.environ else phases,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )


# -- cases -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """Outputs, the histories of two streams, and the rows of the oracle, where these are certain."""

    outputs: dict[str, Any]
    one: History
    other: History
    rows: dict[str, list[str] | None]
    #: whether the first output has rows
    has_rows: bool
    #: the events that are late because a partition was idle
    late: Mapping[str, frozenset[Place]] = field(default_factory=dict)
    was_idle: bool = False

    @property
    def histories(self) -> dict[str, History]:
        return dict(zip(queries.STREAMS, (self.one, self.other), strict=True))

    def after_idleness(self, state: Path) -> tuple[Case, Idleness]:
        """Return the case with the rows that it has after the idleness which a state directory records."""
        records = read_records(state)
        bounds = bounds_of(records, self.histories, read_together=reads_together(*self.outputs.values()))
        late = late_places(bounds, self.histories)
        idleness = idleness_of(records, late, self.histories)
        if not idleness.was_idle:
            assert not idleness.was_late
            return self, idleness
        rows: dict[str, list[str] | None] = {}
        for name, node in self.outputs.items():
            expected, is_certain = compute_expected(node, self.one, self.other, bounds)
            rows[name] = expected if is_certain else None
        return replace(self, rows=rows, late=late, was_idle=True), idleness


def log_of(history: History, bounds: Mapping[Place, int]) -> oracle.Log:
    columns = ("time", "user", "page", "n", "x")
    partitions = [
        [{name: getattr(event, name) for name in columns} for event in part] for part in history.partitions
    ]
    return oracle.Log(columns, partitions, "time", LATENESS, bounds)


def compute_expected(
    node: Any, one: History, other: History, bounds: Bounds | None = None
) -> tuple[list[str], bool]:
    """Return the rows of a query, and whether they are certain; with the `bounds` before which events are late."""
    histories = zip(queries.STREAMS, (one, other), strict=True)
    logs = {name: log_of(history, (bounds or {}).get(name, {})) for name, history in histories}
    rows, is_certain = oracle.compute_rows(node, logs)
    return sorted_rows(rows), is_certain


@st.composite
def cases(draw: st.DrawFn, drawn: st.SearchStrategy[queries.Query]) -> Case:
    """A query and events, drawn until it has rows; sometimes with the query's input as a second output."""
    for number in range(DRAWS):
        if number % 2 == 0:
            query = draw(drawn)
        one, other = draw(small_histories), draw(small_histories)
        rows, is_certain = compute_expected(query.node, one, other)
        if rows:
            break
    outputs, found = {"out": query.node}, {"out": rows if is_certain else None}
    input_node = getattr(query.node, "input", None)
    if input_node is not None and draw(st.integers(0, 3)) == 0:
        outputs["input"] = input_node
        input_rows, is_certain = compute_expected(input_node, one, other)
        found["input"] = input_rows if is_certain else None
    return Case(outputs, one, other, found, bool(rows))


def build_app(case: Case, execution: Execution, folder: Path | None = None) -> ps.App:
    """Return the case as an app, which cannot decode what idleness made late; with a folder, it writes rows to files
    there."""
    streams = {
        name: events_stream(history, cutting, name, unreadable=case.late.get(name, ()))
        for (name, history), cutting in zip(case.histories.items(), execution.cuts, strict=True)
    }
    built: dict[Any, ps.Stream] = {}
    return ps.app(
        "any",
        *(
            ps.output(
                name,
                queries.build_stream(node, streams, built, execution.partition),
                *([] if folder is None else [ps.jsonl(folder / name)]),
            )
            for name, node in case.outputs.items()
        ),
    )


def run_case(case: Case, execution: Execution = UNDISTURBED) -> tuple[dict[str, list[str]], Case, Idleness]:
    """Return the rows of the outputs, the case after the idleness that there was, and that idleness."""
    found: dict[str, list[Any]] = {name: [] for name in case.outputs}
    with fast_directory() as folder:
        state = Path(folder) / "state"
        for report in run_epochs(build_app(case, execution), state, execution):
            for name, rows in report.rows.items():
                found[name] += rows.to_dicts()
        return {name: sorted_rows(rows) for name, rows in found.items()}, *case.after_idleness(state)


def check_rows(found: dict[str, list[str]], case: Case) -> None:
    """Assert that rows are those of the oracle and of an undisturbed run, which lacks what idleness made late."""
    for name, rows in case.rows.items():
        event(f"certain: {rows is not None}")
        assert rows is None or found[name] == rows
    if case.was_idle and any(map(reads_late_events, case.outputs.values())):
        return  # in an undisturbed run other events are late, and at other times
    undisturbed = run_case(case)[0]
    for name, rows in case.rows.items():
        assert rows is None or undisturbed[name] == rows
    assert found == undisturbed


def check_execution(case: Case, execution: Execution) -> Idleness:
    note(f"{SEED}={os.environ.get(SEED, '0')}")
    note(str(case.outputs))
    found, after, idleness = run_case(case, execution)
    check_rows(found, after)
    return idleness


def check_idleness(counts: Counter[str], compared: int) -> None:
    """Assert that of many cases a fair share had idle partitions that came back, some with late events."""
    if compared >= 20:
        assert counts["was_idle"] >= compared / 10
        assert counts["came_back"] >= compared / 10
    if compared >= 30:
        assert counts["was_late"] >= compared / 20


@st.composite
def dense_histories(draw: st.DrawFn) -> History:
    """One or two partitions of events close to one another, out of order, with few keys and some nulls."""
    step = st.sampled_from(
        [0, 0, 0, 250_000, 250_000, SECOND, SECOND, 3 * SECOND, -SECOND, -2 * SECOND, -5 * SECOND]
    )
    drawn_event = st.tuples(
        step,
        st.sampled_from(["ada", "ada", "bob", "bob", "cyd", None]),
        st.sampled_from(["/a", "/b", "/c", None]),
        st.sampled_from([None, -2, 0, 1, 2, 3, 4, 5]),
        st.sampled_from([None, -2.5, 0.0, 0.25, 3.0]),
    )
    partitions = []
    for partition in range(draw(st.integers(1, 2))):
        now, events = 1_000 * SECOND, []
        for offset, (ahead, *values) in enumerate(draw(st.lists(drawn_event, min_size=6, max_size=14))):
            time = now + ahead
            now = max(now, time)
            events.append(Event(partition, offset, time, *values))
        partitions.append(tuple(events))
    return History(tuple(partitions))


small_histories = st.one_of(
    dense_histories(), dense_histories(), dense_histories(), histories(most_events=12)
)


# -- operators and compositions -----------------------------------------------------------------


def check_cases(drawn: st.SearchStrategy[queries.Query], few: int) -> None:
    """Check at least so many cases that have rows."""
    compared, counts = 0, Counter[str]()

    @example_settings(few)
    @given(cases(drawn), executions())
    def check_case(case: Case, execution: Execution) -> None:
        nonlocal compared
        assume(case.has_rows)
        counts.update(check_execution(case, execution).names)
        compared += 1

    check_case()
    assert compared >= (EXAMPLES or few)
    check_idleness(counts, compared)


@pytest.mark.parametrize("kind", [*queries.STATELESS, *queries.STATEFUL])
def test_single_operators_emit_the_rows_of_the_oracle(kind: str) -> None:
    check_cases(queries.single_operators(kind), 5)


@pytest.mark.parametrize("kind", queries.STATEFUL)
def test_pairs_of_operators_emit_the_rows_of_the_oracle(kind: str) -> None:
    check_cases(queries.operator_pairs(kind), 5)


def test_compositions_emit_the_rows_of_the_oracle() -> None:
    check_cases(queries.compositions(), 30)


# -- crashes ------------------------------------------------------------------------------------------


crash_points = st.lists(
    st.tuples(st.sampled_from(STEPS), st.sampled_from([0, 0, 0, 1, 1, 2, 3])), min_size=1, max_size=3
)
any_queries = st.one_of(
    *(queries.single_operators(kind) for kind in queries.STATEFUL), queries.compositions()
)


def test_crashes_do_not_change_the_rows() -> None:
    compared, counts = 0, Counter[str]()

    @example_settings(25)
    @given(cases(any_queries), executions(), crash_points)
    def check_case(case: Case, execution: Execution, crashes: list[tuple[str, int]]) -> None:
        nonlocal compared
        assume(case.has_rows)
        note(str(case.outputs))
        crashed = 0
        with fast_directory() as folder:
            state, out = Path(folder) / "state", Path(folder) / "out"
            for run, (step, in_epoch) in enumerate([*crashes, ("never", -1)]):
                with crash_at(step, in_epoch):
                    try:
                        for _ in run_epochs(build_app(case, execution, out), state, execution, shift=run):
                            pass
                    except Crashed:
                        event(f"crashed at {step}")
                        crashed += 1
            found = {name: read_rows(out / name) for name in case.outputs}
            after, idleness = case.after_idleness(state)
        check_rows(found, after)
        assume(crashed > 0)  # an example without a crash does not count
        compared += 1
        counts.update(idleness.names)

    check_case()
    assert compared >= (EXAMPLES or 25)
    check_idleness(counts, compared)
