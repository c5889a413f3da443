"""Call the functions of a query on a batch without rows, before it becomes a job.

Receives an output; raises FAILS_ON_EMPTY_BATCH, with the line, where a function raises or returns no frame. A function
that does not answer soon is left to itself: whoever tries it may be holding up all jobs.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future, wait

import polars as pl

from penstock.errors import PenstockError, UserError
from penstock.origin import innermost_line
from penstock.query import logical
from penstock.query.logical import App, MapBatches, Output
from penstock.query.steps import INTERNAL_COLUMNS

_PATIENCE_SECONDS = 1.0


def check_empty_batches(output: Output) -> None:
    """Raise unless every function of an output takes a batch without rows."""
    for node in logical.nodes_of(App(output.name, (output,))):
        if isinstance(node, MapBatches):
            _check(node, output.name)


def _check(node: MapBatches, job: str) -> None:
    own = node.input.schema
    given = pl.DataFrame(schema={**dict.fromkeys(INTERNAL_COLUMNS, pl.Int64()), **own})
    found: Future[object] = Future()

    def call() -> None:
        try:
            found.set_result(node.function(given))
        except BaseException as failure:  # a panic in Polars is no Exception
            found.set_exception(failure)

    threading.Thread(target=call, daemon=True, name="trial").start()
    if not wait([found], _PATIENCE_SECONDS).done:
        return
    failure = found.exception()
    what = "returned no frame" if failure is None else f"raised {type(failure).__name__}: {failure}"
    if failure is None and isinstance(found.result(), pl.DataFrame):
        return
    if isinstance(failure, PenstockError):
        raise failure
    code = getattr(node.function, "__code__", None)
    at = None if failure is None or code is None else innermost_line(failure, (code.co_filename,))
    raise UserError(
        "FAILS_ON_EMPTY_BATCH",
        f"a function of the job {job} fails on a batch without rows: it {what}",
        where=str(at or node.origin),
        hint="Let it return a frame of its columns without rows then.",
    ) from failure
