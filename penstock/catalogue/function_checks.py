"""Check the functions of a query before it becomes a job: that they can be sent to workers, and that they take a batch
without rows.

On failure: `UserError` NOT_SENDABLE or FAILS_ON_EMPTY_BATCH, with the line where it is known.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from concurrent.futures import Future, wait

import cloudpickle
import polars as pl

from penstock.catalogue.compiled_job import CompiledJob
from penstock.errors import PenstockError, UserError
from penstock.origin import innermost_line
from penstock.query import logical
from penstock.query.logical import App, MapBatches, Output
from penstock.query.steps import INTERNAL_COLUMNS

_TIMEOUT_SECONDS = 1.0


def may_call_python(select: str, functions: Iterable[str]) -> bool:
    """Whether a query may call a function of the user's: its text has such a name in it, or it is a query of Python."""
    text = select.lower()
    return not text or any(name.lower() in text for name in functions)


def check_picklable(job: CompiledJob, where: str | None = None) -> None:
    """Raise unless what the workers need of a job can be pickled; `where` is the line of its query, if it has one.

    The plan of all jobs travels as one pickle: a job that cannot be pickled would keep every other from running.
    """
    try:
        cloudpickle.dumps((job.template, job.plan))
    except Exception as failure:  # the user's own code may raise anything
        raise UserError(
            "NOT_SENDABLE",
            f"what the job {job.name} calls cannot be sent to the workers",
            where=where,
            detail=f"{type(failure).__name__}: {failure}",
            hint="Functions are pickled, with what they use. Have them open files, connections and locks when they "
            "are called.",
        ) from failure


def check_empty_batches(output: Output) -> None:
    """Raise unless every function of an output takes a batch without rows. A function that does not return soon passes:
    the caller may be delaying all jobs."""
    for node in logical.nodes_of(App(output.name, (output,))):
        if isinstance(node, MapBatches):
            _check_empty_batch(node, output.name)


def _check_empty_batch(node: MapBatches, job: str) -> None:
    schema = {**dict.fromkeys(INTERNAL_COLUMNS, pl.Int64()), **node.input.schema}
    result: Future[object] = Future()

    def call() -> None:
        try:
            result.set_result(node.function(pl.DataFrame(schema=schema)))
        except BaseException as failure:  # a panic in Polars is no Exception
            result.set_exception(failure)

    threading.Thread(target=call, daemon=True, name="trial").start()
    if not wait([result], _TIMEOUT_SECONDS).done:
        return
    failure = result.exception()
    if failure is None and isinstance(result.result(), pl.DataFrame):
        return
    if isinstance(failure, PenstockError):
        raise failure
    code = getattr(node.function, "__code__", None)
    at = None if failure is None or code is None else innermost_line(failure, (code.co_filename,))
    what = "returned no frame" if failure is None else f"raised {type(failure).__name__}: {failure}"
    raise UserError(
        "FAILS_ON_EMPTY_BATCH",
        f"a function of the job {job} fails on a batch without rows: it {what}",
        where=str(at or node.origin),
        hint="Let it return a frame of its columns without rows then.",
    ) from failure
