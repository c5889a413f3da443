"""Files of Python that become jobs, over the same clicks that the jobs in SQL read; and engines that take them."""

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

#: what every file begins with: the stream, as the engine has it
HEAD = """
import polars as pl
import penstock as ps

COLUMNS = {{"ts": ps.Datetime("us", "UTC"), "page": ps.String(), "user": ps.String(), "bytes": ps.Int64(),
           "status": ps.Int64()}}
clicks = ps.stream("clicks", ps.files({glob!r}, finished=True), ps.json_lines(COLUMNS), time="ts", lateness="2s")
"""
#: about how many bytes an event has
EVENT_BYTES = 90


class Files:
    """A directory with events and with files of Python."""

    def __init__(self, folder: Path, events: Sequence[kit.Event]) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "clicks.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in events))
        self.glob = str(folder / "clicks.jsonl")

    @property
    def stream(self) -> Stream:
        """The clicks as the engine reads them, where it was given them."""
        names: dict[str, Any] = {}
        exec(HEAD.format(glob=self.glob), names)
        found: Stream = names["clicks"]
        return found

    def write(self, text: str, name: str = "app.py", *, head: bool = True) -> Path:
        """A file of Python, after its head."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text((HEAD.format(glob=self.glob) if head else "") + text)
        return path


def create(jobs: Program, name: str, file: Path, attribute: str = "query") -> Reply:
    (answer,) = jobs.submit(create_from(name, file, attribute))
    return answer


def alter(jobs: Program, name: str, file: Path, attribute: str = "query", *, rebuild: bool = False) -> Reply:
    (answer,) = jobs.submit(alter_from(name, file, attribute, rebuild=rebuild))
    return answer


def deployed(jobs: Program, file: Path, *, prune: bool = False, check: bool = False) -> list[str]:
    return [answer.message for answer in jobs.submit(deploy(file, prune=prune), check=check)]


@contextmanager
def running(
    state: Path, sql: str = "", *, given: Stream | None = None, fold_after: int = 1_000, **options: Any
) -> Iterator[kit.Running]:
    """Jobs and the engine they run in; with `given`, the stream is there before any job of Python comes."""
    streams = {} if given is None else {"clicks": given}
    options.setdefault("epoch_units", 20 * EVENT_BYTES)
    jobs = Program("test", state, streams=streams, begin=sql, fold_after=fold_after)
    engine = InlineEngine(jobs, state, **options)
    try:
        yield jobs, engine
    finally:
        engine.close()


def life(jobs: Program, name: str) -> str:
    return jobs.catalogue.jobs[name].master.life


__all__ = ["Files", "alter", "create", "deployed", "life", "ps", "running"]
