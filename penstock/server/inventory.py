"""Lists the streams and jobs of a program as the API shows them, and reads the side outputs of a stream.

A program is either one with jobs that come and go, or an app with fixed outputs. The host adds what changes from epoch
to epoch: rates, backlogs, which coordinator manages a job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from penstock.catalogue.commands import shown
from penstock.catalogue.program import Jobs
from penstock.decode.partials import Partials
from penstock.engine.retained_results import Kept
from penstock.errors import UserError
from penstock.query.logical import StreamDefinition
from penstock.server.stream_writers import takes_events
from penstock.server.wire import columns_of

_BY_PYTHON, _BY_AGENTS = "(given by Python)", "(in the SQL file of agents and engine)"


def streams(program: Jobs | Kept) -> list[tuple[str, str, StreamDefinition]]:
    """All streams: name, the text of its definition, definition."""
    if isinstance(program, Kept):
        text = _BY_AGENTS if _reduced_streams(program) else _BY_PYTHON
        return [(name, text, scan.stream) for name, scan in program.plan(0).scans.items()]
    return [
        (name, entry.definition, program.stream(name)) for name, entry in program.catalogue.streams.items()
    ]


def stream(program: Jobs | Kept, name: str) -> StreamDefinition:
    """A stream; raises if there is none."""
    if isinstance(program, Kept):
        scans = program.plan(0).scans
        if name in scans:
            return scans[name].stream
    elif name in program.catalogue.streams:
        return program.stream(name)
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


def jobs(program: Jobs | Kept) -> Sequence[str]:
    """The names of all jobs."""
    return list(program.outputs if isinstance(program, Kept) else program.catalogue.jobs)


def job_facts(program: Jobs | Kept, name: str) -> dict[str, Any]:
    """A job: its query, parameters, sinks and state of life."""
    if isinstance(program, Kept):
        output, reduced = program.plan(0).outputs[name], _reduced_streams(program)
        return {
            "name": name,
            "life": "running",
            "query": _BY_AGENTS if reduced else _BY_PYTHON,
            "parameters": {},
            "into": [sink.describe() for sink in output.sinks],
            "error": None,
            "version": 0,
            "recovery": output.recovery,
            "of_python": not reduced,
        }
    entry = program.catalogue.jobs[name]
    facts = {key: value for key, value in shown(entry).items() if key != "job"}
    return {"name": name, **facts, "version": entry.version, "of_python": entry.of_python}


def job_details(program: Jobs | Kept, name: str) -> dict[str, Any]:
    """The columns of a job, what it reads, and its plan."""
    if isinstance(program, Kept):
        plan = program.plan(0)
        return {
            "columns": columns_of(program.outputs[name]),
            "streams": list(plan.scans),
            "reads": [],
            "plan": "\n".join(f"{s.id}: {s.operator.describe()}" for s in plan.stages.values()),
        }
    job = program.compiled(name)
    return {
        "columns": columns_of(job.schema),
        "streams": [stream.split("~")[0] for stream in job.streams],
        "reads": sorted(job.reads),
        "plan": program.say(f"EXPLAIN JOB `{name}`")[0].says,
    }


def counts(program: Jobs | Kept) -> tuple[int, dict[str, int]]:
    """How many streams there are, and how many jobs are in each state of life."""
    if isinstance(program, Kept):
        return len(program.plan(0).scans), {"running": len(program.outputs)}
    catalogue = program.catalogue
    return len(catalogue.streams), dict(Counter(one.master.life for one in catalogue.jobs.values()))


def no_commands_error(program: Kept) -> UserError:
    """The error with the reason why an app takes no commands."""
    if reduced := _reduced_streams(program):
        return UserError(
            "NO_COMMANDS",
            f"agents reduce {', '.join(reduced)} for these jobs, so they do not change while they run",
            hint="Change the SQL file of agents and engine and restart both, or have agents ship lines "
            "(without --reduce, --reduced): then jobs come and go. See docs/ingest.md.",
        )
    return UserError(
        "NO_COMMANDS",
        "this service runs an app, whose queries do not change",
        hint="Serve a file of SQL or a penstock.jobs_app to create and alter jobs.",
    )


def _reduced_streams(program: Kept) -> list[str]:
    """The streams that agents reduce."""
    scans = program.plan(0).scans
    return [name for name, scan in scans.items() if isinstance(scan.stream.decoder, Partials)]


def side_output_rows(folder: Path, committed: int, limit: int) -> list[dict[str, Any]]:
    """Read the rows that committed epochs wrote to the folder of a side output, the latest first."""
    latest: list[dict[str, Any]] = []
    for path in sorted(folder.glob("epoch-*.jsonl"), reverse=True):
        rows = pl.read_ndjson(path, infer_schema_length=None)
        epoch = int(path.stem.removeprefix("epoch-"))
        if epoch <= committed:
            latest += [{"epoch": epoch, **row} for row in rows.reverse().head(limit - len(latest)).to_dicts()]
        if len(latest) >= limit:
            break
    return latest
