"""Whether a job that calls Python can be sent to the workers.

Receives a compiled job; raises NOT_SENDABLE. The plan of all jobs travels as one pickle: a job that cannot be pickled
would keep every other from running, so it is refused when it is said. Pickling takes milliseconds, which jobs that call
nothing of the user's are spared.
"""

from __future__ import annotations

from collections.abc import Iterable

import cloudpickle

from penstock.catalogue.compiled_job import CompiledJob
from penstock.errors import UserError


def may_call_python(select: str, functions: Iterable[str]) -> bool:
    """Whether a query may call something of the user's: it has such a name in it, or is itself given by Python."""
    said = select.lower()
    return not said or any(name.lower() in said for name in functions)


def check_picklable(job: CompiledJob, where: str | None = None) -> None:
    """Raise unless what the workers need of a job can be pickled; `where` is the line of its query, if it has one."""
    try:
        cloudpickle.dumps((job.template, job.plan))
    except Exception as failure:  # of the user's own code, too
        raise UserError(
            "NOT_SENDABLE",
            f"what the job {job.name} calls cannot be sent to the workers",
            where=where,
            detail=f"{type(failure).__name__}: {failure}",
            hint="Functions are pickled, with what they use. Have them open files, connections and locks when they "
            "are called.",
        ) from failure
