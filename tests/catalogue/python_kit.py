"""Python files whose queries become jobs, on the same clicks as the jobs in SQL, and engines that run them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import penstock as ps
from penstock.catalogue.code_requests import alter_from, create_from, deploy
from penstock.catalogue.command import Reply
from penstock.catalogue.program import Program
from penstock.query.stream import Stream
from penstock.testing.inline import InlineEngine
from tests.catalogue import kit

#: the start of every file: the stream as the engine declares it
HEAD = """
import polars as pl
import penstock as ps

COLUMNS = {{"ts": ps.Datetime("us", "UTC"), "page": ps.String(), "user": ps.String(), "bytes": ps.Int64(),
           "status": ps.Int64()}}
clicks = ps.stream("clicks", ps.files({glob!r}, finished=True), ps.json_lines(COLUMNS), time="ts", lateness="2s")
"""
#: about how many bytes an event has
EVENT_BYTES = 90
ERRORS = """
def shouted(rows):
    return rows.with_columns(pl.col("page").str.to_uppercase())

query = clicks.filter(pl.col("status") >= 400).map_batches(shouted).select("page", "user")
"""
WINDOWS = 'query = clicks.key_by("page").window("10s").count()\n'
#: a file with a stream of its own, for a folder that nobody else can write
APP_FILE = """
import polars as pl
import penstock as ps
lines = ps.json_lines({{"ts": pl.Datetime("us", "UTC"), "user": pl.String()}})
events = ps.stream("events", ps.files("{log}"), lines, time="ts")
hits = events.key_by("user").window("1h").aggregate(ps.count())
"""


class Files:
    """A directory with events and with files of Python."""

    def __init__(self, folder: Path, events: Sequence[kit.Event]) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "clicks.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in events))
        self.glob = str(folder / "clicks.jsonl")

    @property
    def stream(self) -> Stream:
        """The clicks, for an engine that has the stream from its start."""
        names: dict[str, Any] = {}
        exec(HEAD.format(glob=self.glob), names)
        stream: Stream = names["clicks"]
        return stream

    def write(self, text: str, name: str = "app.py", *, head: bool = True) -> Path:
        """Write a Python file: the head, then the text."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text((HEAD.format(glob=self.glob) if head else "") + text)
        return path


def create(jobs: Program, name: str, file: Path, attribute: str = "query") -> Reply:
    (reply,) = jobs.submit(create_from(name, file, attribute))
    return reply


def alter(jobs: Program, name: str, file: Path, attribute: str = "query", *, rebuild: bool = False) -> Reply:
    (reply,) = jobs.submit(alter_from(name, file, attribute, rebuild=rebuild))
    return reply


def deploy_file(jobs: Program, file: Path, *, prune: bool = False, check: bool = False) -> list[str]:
    return [reply.message for reply in jobs.submit(deploy(file, prune=prune), check=check)]


def own_file(folder: Path, text: str = APP_FILE, name: str = "app.py") -> Path:
    """A file of code that nobody else can write."""
    folder.chmod(0o700)
    log = folder / "events.jsonl"
    log.write_text('{"ts": "2026-03-01T12:00:00+00:00", "user": "a"}\n')
    file = folder / name
    file.write_text(text.format(log=log))
    file.chmod(0o600)
    return file


@contextmanager
def running(
    state: Path, sql: str = "", *, stream: Stream | None = None, fold_after: int = 1_000, **options: Any
) -> Iterator[kit.Running]:
    """Jobs and the engine they run in; `stream`: the clicks, where the engine has it before any Python job."""
    streams = {} if stream is None else {"clicks": stream}
    options.setdefault("epoch_units", 20 * EVENT_BYTES)
    jobs = Program("test", state, streams=streams, begin=sql, fold_after=fold_after)
    engine = InlineEngine(jobs, state, **options)
    try:
        yield jobs, engine
    finally:
        engine.close()


def rows_in_sinks(out: Path) -> dict[str, list[str]]:
    """The lines of the JSON Lines sinks in a directory, by sink, sorted."""
    lines: dict[str, list[str]] = {}
    for file in sorted(out.glob("*/*.jsonl")):
        lines.setdefault(file.parent.name, []).extend(file.read_text().splitlines())
    return {name: sorted(each) for name, each in lines.items()}


def files_of_sinks(out: Path, *without: str) -> dict[str, bytes]:
    """The bytes of the sinks' files in a directory, but for some sinks."""
    files = {str(file.relative_to(out)): file.read_bytes() for file in sorted(out.glob("*/*.jsonl"))}
    return {name: content for name, content in files.items() if name.split("/")[0] not in without}


__all__ = ["Files", "alter", "create", "deploy_file", "files_of_sinks", "ps", "rows_in_sinks", "running"]
