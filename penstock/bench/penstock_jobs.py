"""Penstock's side of the jobs benchmark: many jobs in one engine.

Receives jobs as SQL texts over the stream `clicks`; hands one outcome. Not built yet: this says what it has to do.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.bench.dataset import Dataset
from penstock.bench.outcome import Outcome
from penstock.words.errors import InternalError


def penstock_jobs(sqls: Sequence[str], dataset: Dataset, cores: int | None) -> Outcome:
    """All jobs in one engine on so many cores, over a data set's whole files until they are read.

    `seconds` and `epochs` by Spark's progress reports (`span_seconds`). `answer` has a row for each job, in order: what
    `job_queries.answer` makes of the rows it told. `stages` has `jobs`, and where the time went.
    """
    raise InternalError("BENCH_FAILED", f"Penstock cannot run {len(sqls)} jobs yet")
