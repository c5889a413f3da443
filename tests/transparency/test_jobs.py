"""Random jobs in SQL: their rows are those of the oracle, however they are executed, beside others, after crashes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import assume, given, note
from hypothesis import strategies as st

from penstock.catalogue.program import Program
from penstock.state.epoch_record import EpochRecord
from tests.crash import Crashed, crash_at
from tests.operators.harness import History, Place, events_stream, fast_directory
from tests.transparency.comparison import read_rows
from tests.transparency.description import reads_together
from tests.transparency.executions import Execution, executions, run_epochs
from tests.transparency.idleness import bounds_of, idleness_of, late_places, read_records
from tests.transparency.jobs import ALTERED, Jobs, some_jobs
from tests.transparency.queries import STREAMS
from tests.transparency.test_transparency import (
    EXAMPLES,
    check_idleness,
    compute_expected,
    crash_points,
    example_settings,
    small_histories,
)

FEW = 25
KINDS = {"windows", "sessions", "ranking", "join", "reader", "altered"}


class Lives:
    """Jobs on an engine that crashes and starts again, until everything is read."""

    def __init__(self, jobs: Jobs, histories: dict[str, History], execution: Execution, folder: Path) -> None:
        self._jobs, self._histories, self._execution, self._folder = jobs, histories, execution, folder
        self._state = folder / "state"
        self.crashes = 0
        #: the number of the command that altered a job; None if everything was read before it
        self._altered_by: int | None = None

    def run(self, at: Iterable[tuple[str, int]]) -> None:
        for life, (step, in_epoch) in enumerate([*at, ("never", -1)]):
            program = self._program()

            def before(epoch: int, program: Program = program) -> None:
                alteration = self._jobs.alteration
                if alteration is not None and self._altered_by is None and epoch >= alteration.epoch:
                    (reply,) = program.execute(alteration.text(ALTERED))
                    assert reply.state == "kept"
                    self._altered_by = program.commands

            with crash_at(step, in_epoch):
                try:
                    for _ in run_epochs(program, self._state, self._execution, shift=life, before=before):
                        pass
                except Crashed:
                    self.crashes += 1

    def _program(self) -> Program:
        streams = {
            name: events_stream(history, cutting, name)
            for (name, history), cutting in zip(self._histories.items(), self._execution.cuts, strict=True)
        }
        statements = (
            f"CREATE JOB {name} AS {job.text} INTO jsonl('{self._folder}/{name}')"
            for name, job in self._jobs.by_name.items()
        )
        return Program("any", self._state, streams=streams, begin="; ".join(statements))

    @property
    def records(self) -> list[EpochRecord]:
        return read_records(self._state)

    def read_later(self) -> set[Place]:
        """The events of `one` that were read after a job was altered."""
        return {
            (int(span.partition[1:]), offset)
            for record in self.records
            if self._altered_by is not None and record.commands >= self._altered_by
            for stream, span in record.spans
            if stream == "one"
            for offset in range(span.start, span.end)
        }


@pytest.mark.slow
def test_jobs_have_the_rows_of_the_oracle() -> None:
    compared, counts = 0, Counter[str]()

    @example_settings(FEW)
    @given(some_jobs(), small_histories, small_histories, executions(), st.just([]) | crash_points)
    def check(
        jobs: Jobs, one: History, other: History, execution: Execution, at: list[tuple[str, int]]
    ) -> None:
        nonlocal compared
        assume(all(compute_expected(job.node, one, other)[0] for job in jobs.by_name.values()))
        note("\n".join(f"{name}: {job.text}" for name, job in jobs.by_name.items()))
        histories = dict(zip(STREAMS, (one, other), strict=True))
        with fast_directory() as name:
            lives = Lives(jobs, histories, execution, Path(name))
            lives.run(at)
            found = {job: read_rows(Path(name) / job) for job in jobs.by_name}
            records, read_later = lives.records, lives.read_later()
        together = reads_together(*(job.node for job in jobs.by_name.values()))
        late_bounds = bounds_of(records, histories, read_together=together)
        for job in jobs.by_name:
            node, selected = jobs.history_of(job, one, read_later)
            expected, is_sure = compute_expected(node, selected, other, late_bounds)
            assert is_sure
            assert found[job] == expected, job
        assume(lives.crashes > 0 or not at)  # else it does not count
        compared += 1
        counts.update(jobs.kinds - ({"altered"} if not read_later else set()))
        counts.update(idleness_of(records, late_places(late_bounds, histories), histories).names)

    check()
    assert compared >= (EXAMPLES or FEW)
    if compared >= 20:
        assert counts.keys() >= KINDS
    check_idleness(counts, compared)
