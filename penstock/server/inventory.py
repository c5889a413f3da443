"""Lists the streams and jobs of a program as the API shows them, and reads the side outputs of a stream.

A program is either one with jobs that come and go, or an app with fixed outputs. The host adds what changes from epoch
to epoch: rates, backlogs, which coordinator manages a job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock.catalogue.catalogue import StreamEntry
from penstock.catalogue.program import Program
from penstock.decode.partials import Partials
from penstock.errors import UserError
from penstock.query.logical import StreamDefinition
from penstock.server.stream_writers import takes_events
from penstock.server.wire import columns_of
from penstock.sinks.files import PrivateJsonLines

_BY_AGENTS = "(in the SQL file of agents and engine)"


def streams(program: Program) -> list[tuple[str, str, StreamDefinition]]:
    """All streams: name, the text of its definition, definition."""
    return [
        (name, _definition(program, name, entry), program.questions.stream(name))
        for name, entry in program.catalogue.streams.items()
    ]


def _definition(program: Program, name: str, entry: StreamEntry) -> str:
    reduced = not entry.text and isinstance(program.questions.stream(name).decoder, Partials)
    return _BY_AGENTS if reduced else entry.definition


def stream(program: Program, name: str) -> StreamDefinition:
    """A stream; raises if there is none."""
    if name in program.catalogue.streams:
        return program.questions.stream(name)
    raise UserError(
        "UNKNOWN_STREAM", f"there is no stream {name}", hint="GET /streams lists those there are."
    )


def stream_facts(name: str, text: str, stream: StreamDefinition) -> dict[str, Any]:
    """A stream as `/streams` shows it, without its backlog."""
    return {
        "name": name,
        "said": text,
        "log": stream.log.describe(),
        "columns": columns_of(stream.decoder.schema()),
        "time": stream.time,
        "lateness_seconds": stream.lateness / 1e6,
        "backlog_unit": stream.log.unit,
        "takes_events": takes_events(stream.log),
    }


def jobs(program: Program) -> Sequence[str]:
    """The names of all jobs."""
    return list(program.catalogue.jobs)


def job_facts(program: Program, name: str) -> dict[str, Any]:
    """A job: its query, parameters, sinks and state of life."""
    entry = program.catalogue.jobs[name]
    facts = {key: value for key, value in program.questions.describe(name).items() if key != "job"}
    reduced = entry.of_app and is_reduced(program)
    if reduced:
        facts["query"] = _BY_AGENTS
    return {"name": name, **facts, "version": entry.version, "of_python": entry.of_python and not reduced}


def job_details(program: Program, name: str) -> dict[str, Any]:
    """The columns of a job, what it reads, and its plan."""
    job = program.questions.compiled(name)
    return {
        "columns": columns_of(job.schema),
        "streams": [stream.split("~")[0] for stream in job.streams],
        "reads": sorted(job.reads),
        "plan": program.execute(f"EXPLAIN JOB `{name}`")[0].message,
    }


def counts(program: Program) -> tuple[int, dict[str, int]]:
    """How many streams there are, and how many jobs are in each state of life."""
    catalogue = program.catalogue
    return len(catalogue.streams), dict(Counter(one.master.life for one in catalogue.jobs.values()))


def is_reduced(program: Program) -> bool:
    """Whether agents reduce a stream for the app that the engine runs."""
    scans = {} if program.app_plan is None else program.app_plan.scans
    return any(isinstance(scan.stream.decoder, Partials) for scan in scans.values())


def side_output_rows(folder: Path, committed: int, limit: int) -> list[dict[str, Any]]:
    """Read the rows that committed epochs wrote to the folder of a side output, the latest first."""
    return PrivateJsonLines(folder).latest_rows(limit, committed)
