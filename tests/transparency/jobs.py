"""Random jobs: a query in SQL with the description of what it means, over two streams or another job."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from tests.operators.harness import SECOND, History, Place
from tests.transparency import description as d
from tests.transparency.oracle.formulas import holds

CALLS = {
    "count": "COUNT(*)",
    "sum": "SUM(n)",
    "min": "MIN(n)",
    "max": "MAX(n)",
    "avg": "AVG(n)",
    "median": "MEDIAN(n)",
    "stddev": "STDDEV(n)",
    "variance": "VARIANCE(n)",
    "count_distinct": "COUNT(DISTINCT n)",
}
#: the job that is altered, and a number that no event has
ALTERED, ANY_OTHER = "altered", 1_000
OPS = {">": ">", "<=": "<=", "!=": "<>"}

functions = st.lists(st.sampled_from(sorted(CALLS)), min_size=1, max_size=3).map(tuple)
keys = st.sampled_from(["user", "page"])
bounds = st.integers(-1, 2)
conditions = st.builds(d.Compare, st.just("n"), st.sampled_from(sorted(OPS)), bounds)
seconds = st.sampled_from([1, 2, 4, 10])


@dataclass(frozen=True)
class Job:
    """A query as a text and as a description. `key` and `value` are columns that another job can read."""

    kind: str
    text: str
    node: Any
    key: str
    value: str


def condition_text(condition: d.Compare) -> str:
    return f"{condition.column} {OPS[condition.op]} {condition.other}"


def _calls(names: tuple[str, ...]) -> tuple[str, tuple[d.Aggregate, ...]]:
    aggregates = tuple(
        d.Aggregate(name, None if name == "count" else "n", f"a{at}") for at, name in enumerate(names)
    )
    return ", ".join(f"{CALLS[one.function]} AS {one.alias}" for one in aggregates), aggregates


def _copied(*names: str, **renamed: str) -> tuple[tuple[str, d.Formula], ...]:
    columns = {name: name for name in names} | renamed
    return tuple((name, d.Formula("copy", column)) for name, column in columns.items())


def windows_of(key: str, size: int, every: int | None, where: d.Compare, functions: tuple[str, ...]) -> Job:
    calls, aggregates = _calls(functions)
    window = f"TUMBLE(time, INTERVAL '{size}' SECOND)"
    if every is not None:
        window = f"HOP(time, INTERVAL '{every}' SECOND, INTERVAL '{size}' SECOND)"
    text = (
        f"SELECT window_start, window_end, {key}, {calls} FROM one "
        f"WHERE {condition_text(where)} GROUP BY {key}, {window}"
    )
    span = d.TimeWindow(size * SECOND, None if every is None else every * SECOND)
    node = d.Windows(d.Filter(d.Source("one"), where), (key,), span, aggregates)
    return Job("windows", text, node, key, "a0")


def sessions_of(key: str, gap: int, where: d.Compare, functions: tuple[str, ...]) -> Job:
    calls, aggregates = _calls(functions)
    text = (
        f"SELECT window_start, window_end, {key}, {calls} FROM one "
        f"WHERE {condition_text(where)} GROUP BY {key} WINDOWING SESSION {gap} SECONDS"
    )
    node = d.Windows(d.Filter(d.Source("one"), where), (key,), d.SessionWindow(gap * SECOND), aggregates)
    return Job("sessions", text, node, key, "a0")


def ranking_of(key: str, size: int, where: d.Compare, function: str, least: bool, k: int) -> Job:
    calls, aggregates = _calls((function,))
    text = (
        f"SELECT window_end, {key}, {calls} FROM one WHERE {condition_text(where)} GROUP BY {key} "
        f"ORDER BY a0 {'ASC' if least else 'DESC'} LIMIT {k} WINDOWING {size} SECONDS"
    )
    windows = d.Windows(d.Filter(d.Source("one"), where), (key,), d.TimeWindow(size * SECOND), aggregates)
    best = d.Top(windows, k, "a0", least, changes_only=False)
    return Job("ranking", text, d.Map(best, _copied("window_end", key, "a0"), only=True), key, "a0")


def join_of(key: str, before: int, after: int, how: str, differ: bool) -> Job:
    text = (
        f"SELECT l.{key}, l.n, r.n AS m FROM one l {how.upper()} JOIN other r ON l.{key} = r.{key} "
        f"{'AND l.n <> r.n ' if differ else ''}WITHIN {before} SECONDS BEFORE AND {after} SECONDS AFTER"
    )
    where = d.Compare("n", "!=", d.Other("n_right")) if differ else None
    sides = d.Source("one"), (key,), d.Source("other"), (key,)
    join = d.Join(*sides, before * SECOND, after * SECOND, where, how)
    return Job("join", text, d.Map(join, _copied(key, "n", m="n_right"), only=True), key, "n")


def reader_of(job: Job, name: str, size: int) -> Job:
    """A job that reads another one, which has this name."""
    text = (
        f"SELECT window_end, {job.key}, COUNT(*) AS rows, MAX({job.value}) AS most "
        f"FROM {name} GROUP BY {job.key} WINDOWING {size} SECONDS"
    )
    aggregates = d.Aggregate("count", None, "rows"), d.Aggregate("max", job.value, "most")
    read = d.Map(job.node, _copied(job.key, job.value), only=True)
    windows = d.Windows(read, (job.key,), d.TimeWindow(size * SECOND), aggregates)
    columns = _copied("window_end", job.key, "rows", "most")
    return Job("reader", text, d.Map(windows, columns, only=True), job.key, "most")


@dataclass(frozen=True)
class Alteration:
    """Another condition of a job of windows, from an epoch on."""

    epoch: int
    where: d.Compare

    def text(self, name: str) -> str:
        return f"ALTER JOB {name} SET WHERE {condition_text(self.where)}"


@dataclass(frozen=True)
class Jobs:
    """Jobs by name. `altered` is one of windows, which another condition gets while the others run."""

    by_name: dict[str, Job]
    alteration: Alteration | None = None

    @property
    def kinds(self) -> set[str]:
        return {job.kind for job in self.by_name.values()} | ({"altered"} if self.alteration else set())

    def history_of(self, name: str, one: History, read_later: Collection[Place]) -> tuple[Any, History]:
        """A job as a description, and the events that it selects, given those that were read after the alteration."""
        node = self.by_name[name].node
        if self.alteration is None or name != ALTERED:
            return node, one
        before, after = node.input.condition, self.alteration.where
        selected = History(
            tuple(
                tuple(
                    event
                    if holds(after if (number, event.offset) in read_later else before, {"n": event.n})
                    else replace(event, n=None)
                    for event in part
                )
                for number, part in enumerate(one.partitions)
            )
        )
        return replace(node, input=d.Filter(d.Source("one"), d.Compare("n", "!=", ANY_OTHER))), selected


others = st.one_of(
    st.builds(windows_of, keys, seconds, st.sampled_from([None, 1, 3]), conditions, functions),
    st.builds(sessions_of, keys, st.sampled_from([1, 2, 4]), conditions, functions),
    st.builds(
        ranking_of,
        keys,
        seconds,
        conditions,
        st.sampled_from(["count", "sum", "min", "max"]),
        st.booleans(),
        st.integers(1, 3),
    ),
    st.builds(
        join_of,
        keys,
        st.sampled_from([0, 1, 3]),
        st.sampled_from([0, 1, 3]),
        st.sampled_from(["inner", "left"]),
        st.booleans(),
    ),
)


@st.composite
def some_jobs(draw: st.DrawFn) -> Jobs:
    """Windows that differ in constants only, which share a plan; jobs of other kinds; jobs that read one of them."""
    shape = draw(keys), draw(seconds), draw(st.sampled_from([None, None, 1, 3]))
    where, called = draw(conditions), draw(functions)
    first = windows_of(*shape, where, called)
    made = {"j0": first, ALTERED: first}
    for bound in draw(st.lists(bounds, max_size=2, unique=True)):
        made[f"j{len(made)}"] = windows_of(*shape, replace(where, other=bound), called)
    for other in draw(st.lists(others, min_size=1, max_size=2)):
        made[f"j{len(made)}"] = other
    for _ in range(draw(st.integers(0, 2))):
        name = draw(st.sampled_from([name for name in made if name != ALTERED]))
        made[f"j{len(made)}"] = reader_of(made[name], name, draw(seconds))
    alteration = st.none() | st.builds(Alteration, st.integers(1, 3), conditions)
    return Jobs(made, draw(alteration))
