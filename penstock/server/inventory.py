"""What there is: the streams and jobs of a program, as the API lists them. Pure.

Receives a program that is open, with jobs that come and go or with the outputs of an app; hands facts. What happens at
present (rates, backlogs, who carries a job) is the host's to add.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from penstock.catalogue.catalogue import StreamEntry
from penstock.catalogue.program import Program
from penstock.decode.partials import Partials
from penstock.errors import UserError
from penstock.query.logical import StreamDefinition
from penstock.server.push import takes_events
from penstock.server.wire import columns_of

_BY_AGENTS = "(in the SQL file of agents and engine)"


def streams(program: Program) -> list[tuple[str, str, StreamDefinition]]:
    """All streams: name, what was said to create it, definition."""
    return [
        (name, _definition(program, name, entry), program.stream(name))
        for name, entry in program.catalogue.streams.items()
    ]


def _definition(program: Program, name: str, entry: StreamEntry) -> str:
    reduced = not entry.text and isinstance(program.stream(name).decoder, Partials)
    return _BY_AGENTS if reduced else entry.definition


def stream(program: Program, name: str) -> StreamDefinition:
    """A stream; raises if there is none."""
    if name in program.catalogue.streams:
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


def jobs(program: Program) -> Sequence[str]:
    """The names of all jobs."""
    return list(program.catalogue.jobs)


def job_facts(program: Program, name: str) -> dict[str, Any]:
    """A job: its query, its parameters, where its rows go, how it is."""
    entry = program.catalogue.jobs[name]
    facts = {key: value for key, value in program.describe(name).items() if key != "job"}
    reduced = entry.of_app and is_reduced(program)
    if reduced:
        facts["query"] = _BY_AGENTS
    return {"name": name, **facts, "version": entry.version, "of_python": entry.of_python and not reduced}


def job_inside(program: Program, name: str) -> dict[str, Any]:
    """A job's columns, and how it is carried out."""
    made = program.compiled(name)
    return {
        "columns": columns_of(made.schema),
        "streams": [stream.split("~")[0] for stream in made.streams],
        "reads": sorted(made.reads),
        "plan": program.say(f"EXPLAIN JOB `{name}`")[0].says,
    }


def counts(program: Program) -> tuple[int, dict[str, int]]:
    """How many streams there are, and how many jobs of each life."""
    catalogue = program.catalogue
    return len(catalogue.streams), dict(Counter(one.master.life for one in catalogue.jobs.values()))


def is_reduced(program: Program) -> bool:
    """Whether agents reduce a stream for the app that the engine runs."""
    scans = {} if program.app_plan is None else program.app_plan.scans
    return any(isinstance(scan.stream.decoder, Partials) for scan in scans.values())
