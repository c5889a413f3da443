"""The benchmark's jobs give the right answers in Penstock: all of them together, against plain batch code."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import polars as pl
import pytest

from bench import jobs_reference as reference
from bench.dataset import Parameters, make_dataset
from bench.job_queries import FAMILIES, STREAM, Family, answer, jobs_of
from bench.penstock_jobs import name_of, script
from bench.penstock_runs import clicks, files_of
from penstock.catalogue.program import Program
from penstock.testing.inline import InlineEngine

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("family", FAMILIES)
def test_a_hundred_jobs_together_answer_as_plain_batch_code_does(family: Family, tmp_path: Path) -> None:
    dataset = make_dataset(Parameters(6_000, rate=200), tmp_path / "data")
    jobs = jobs_of(family, 100, reference.words_of(dataset))
    program = Program(
        "bench", tmp_path / "s", streams={STREAM: clicks(files_of(dataset))}, begin=script(jobs)
    )
    engine = InlineEngine(program, tmp_path / "s", epoch_units=400_000)
    rows_by_job: dict[str, list[pl.DataFrame]] = defaultdict(list)
    for report in engine.steps():
        for name, rows in report.rows.items():
            rows_by_job[name].append(rows)
    engine.close()
    right = reference.answers(jobs, dataset)
    found = [
        answer(job, pl.concat(rows_by_job[name_of(job)])) if rows_by_job[name_of(job)] else [job.number, 0, 0]
        for job in jobs
    ]
    assert found == right
    assert sum(count > 0 for _, count, _ in right) > 60, "jobs that tell nothing prove nothing"
