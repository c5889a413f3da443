"""Random jobs in SQL: their rows are those of the oracle, however they are executed, and after crashes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hypothesis import assume, given, note
from hypothesis import strategies as st

from penstock.catalogue.program import Program
from tests.operators.harness import SECOND, History, events_stream, fast_directory
from tests.transparency import description as d
from tests.transparency import ways as execution
from tests.transparency.compared import rows_of
from tests.transparency.test_transparency import (
    EXAMPLES,
    Crash,
    by_hand,
    crashes,
    crashing,
    few_events,
    tried,
)
from tests.transparency.ways import Ways, ways

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
OPS = {">": ">", "<=": "<=", "!=": "<>"}
FEW = 15


@dataclass(frozen=True)
class Job:
    """A query over the stream `one`, as a description and as text."""

    key: str
    size: int
    every: int | None
    op: str
    bound: int
    functions: tuple[str, ...]

    @property
    def node(self) -> d.Windows:
        columns = [
            (name, None if name == "count" else "n", f"a{at}") for at, name in enumerate(self.functions)
        ]
        every = None if self.every is None else self.every * SECOND
        return d.Windows(
            d.Filter(d.Source("one"), d.Compare("n", self.op, self.bound)),
            (self.key,),
            d.InTime(self.size * SECOND, every),
            tuple(d.Aggregate(function, column, alias) for function, column, alias in columns),
        )

    @property
    def text(self) -> str:
        calls = ", ".join(f"{CALLS[name]} AS a{at}" for at, name in enumerate(self.functions))
        window = f"TUMBLE(time, INTERVAL '{self.size}' SECOND)"
        if self.every is not None:
            window = f"HOP(time, INTERVAL '{self.every}' SECOND, INTERVAL '{self.size}' SECOND)"
        return (
            f"SELECT window_start, window_end, {self.key}, {calls} FROM one "
            f"WHERE n {OPS[self.op]} {self.bound} GROUP BY {self.key}, {window}"
        )


functions = st.lists(st.sampled_from(sorted(CALLS)), min_size=1, max_size=3).map(tuple)
jobs = st.builds(
    Job,
    st.sampled_from(["user", "page"]),
    st.sampled_from([1, 2, 4, 10]),
    st.sampled_from([None, None, 1, 3]),
    st.sampled_from(sorted(OPS)),
    st.integers(-1, 2),
    functions,
)


@st.composite
def alike(draw: st.DrawFn) -> list[Job]:
    """Jobs, some of which differ in constants only: these share a plan."""
    one = draw(jobs)
    bounds = draw(st.lists(st.integers(-1, 2), max_size=2, unique=True))
    same = [Job(one.key, one.size, one.every, one.op, bound, one.functions) for bound in bounds]
    return [one, *same, *draw(st.lists(jobs, max_size=2))]


def lives(made: list[Job], one: History, how: Ways, at: list[tuple[str, int]], folder: Path) -> int:
    """Run the jobs until everything is read; how often the engine crashed."""
    crashed, state = 0, folder / "state"
    sql = "; ".join(
        f"CREATE JOB j{number} AS {job.text} INTO jsonl('{folder}/j{number}')"
        for number, job in enumerate(made)
    )
    for life, (step, in_epoch) in enumerate([*at, ("never", -1)]):
        program = Program("any", state, streams={"one": events_stream(one, how.cuts[0], "one")}, begin=sql)
        with crashing(step, in_epoch):
            try:
                for _ in execution.epochs(program, state, how, shift=life):
                    pass
            except Crash:
                crashed += 1
    return crashed


def test_jobs_have_the_rows_of_the_oracle() -> None:
    compared = 0

    @tried(FEW)
    @given(alike(), few_events, ways(), st.just([]) | crashes)
    def holds(made: list[Job], one: History, how: Ways, at: list[tuple[str, int]]) -> None:
        nonlocal compared
        expected = [by_hand(job.node, one, one)[0] for job in made]
        assume(any(expected))
        note("\n".join(job.text for job in made))
        with fast_directory() as name:
            folder = Path(name)
            crashed = lives(made, one, how, at, folder)
            assert [rows_of(folder / f"j{number}") for number in range(len(made))] == expected
        assume(crashed > 0 or not at)  # else it does not count
        compared += 1

    holds()
    assert compared >= (EXAMPLES or FEW)
