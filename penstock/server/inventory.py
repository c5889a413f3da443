"""What there is: the streams and jobs of a program, as the API lists them. Pure.

Receives a program that is open, with jobs that come and go or with the outputs of an app; hands facts. What happens at
present (rates, backlogs, who carries a job) is the host's to add.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from penstock.catalogue.commands import shown
from penstock.catalogue.program import Jobs
from penstock.decode.partials import Partials
from penstock.engine.retained_results import Kept
from penstock.errors import UserError
from penstock.query.logical import StreamDefinition
from penstock.server.push import takes_events
from penstock.server.wire import columns_of

_BY_PYTHON, _BY_AGENTS = "(given by Python)", "(in the SQL file of agents and engine)"


def streams(program: Jobs | Kept) -> list[tuple[str, str, StreamDefinition]]:
    """All streams: name, what was said to create it, definition."""
    if isinstance(program, Kept):
        said = _BY_AGENTS if _reduced(program) else _BY_PYTHON
        return [(name, said, scan.stream) for name, scan in program.plan(0).scans.items()]
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


def stream_facts(name: str, said: str, stream: StreamDefinition) -> dict[str, Any]:
    """A stream, for people."""
    return {
        "name": name,
        "said": said,
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
    """A job: its query, its parameters, where its rows go, how it is."""
    if isinstance(program, Kept):
        return {
            "name": name,
            "life": "running",
            "query": _BY_AGENTS if _reduced(program) else _BY_PYTHON,
            "parameters": {},
            "into": [sink.describe() for sink in program.plan(0).outputs[name].sinks],
            "error": None,
            "version": 0,
            "recovery": program.plan(0).outputs[name].recovery,
            "of_python": not _reduced(program),
        }
    entry = program.catalogue.jobs[name]
    facts = {key: value for key, value in shown(entry).items() if key != "job"}
    return {"name": name, **facts, "version": entry.version, "of_python": entry.of_python}


def job_inside(program: Jobs | Kept, name: str) -> dict[str, Any]:
    """A job's columns, and how it is carried out."""
    if isinstance(program, Kept):
        plan = program.plan(0)
        return {
            "columns": columns_of(program.outputs[name]),
            "streams": list(plan.scans),
            "reads": [],
            "plan": "\n".join(f"{s.id}: {s.operator.describe()}" for s in plan.stages.values()),
        }
    made = program.compiled(name)
    return {
        "columns": columns_of(made.schema),
        "streams": [stream.split("~")[0] for stream in made.streams],
        "reads": sorted(made.reads),
        "plan": program.say(f"EXPLAIN JOB `{name}`")[0].says,
    }


def counts(program: Jobs | Kept) -> tuple[int, dict[str, int]]:
    """How many streams there are, and how many jobs of each life."""
    if isinstance(program, Kept):
        return len(program.plan(0).scans), {"running": len(program.outputs)}
    catalogue = program.catalogue
    return len(catalogue.streams), dict(Counter(one.master.life for one in catalogue.jobs.values()))


def unchanging(program: Kept) -> UserError:
    """Why a program takes no commands, and what to do."""
    reduced = _reduced(program)
    if reduced:
        return UserError(
            "NO_COMMANDS",
            f"agents reduce {', '.join(reduced)} for these jobs, so they do not change while they run",
            hint="Change the SQL file of agents and engine and start both anew, or have agents ship lines "
            "(without --reduce, --reduced): then jobs come and go. docs/ingest.md says how.",
        )
    return UserError(
        "NO_COMMANDS",
        "this service runs an app, whose queries do not change",
        hint="Serve a file of SQL or a penstock.jobs_app to create and alter jobs.",
    )


def _reduced(program: Kept) -> list[str]:
    """The streams that agents reduce for a program."""
    scans = program.plan(0).scans
    return [name for name, scan in scans.items() if isinstance(scan.stream.decoder, Partials)]
