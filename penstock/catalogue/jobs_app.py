"""Declare jobs in a file: SQL, and what Python gives to it. Building a declaration runs nothing.

What parses SQL is loaded when a declaration is used, so an engine without jobs starts, or takes over, sooner.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.catalogue.jobs_declaration import JobsDeclaration

if TYPE_CHECKING:
    from penstock.catalogue.command import Reply
    from penstock.catalogue.messages import Deliver
    from penstock.catalogue.program import Program
    from penstock.query.stream import Stream
    from penstock.sql.scope import UserFunction


@dataclass(frozen=True, eq=False)
class JobsApp(JobsDeclaration):
    """Streams and jobs to start with; commands change them while they run."""

    def explained(self) -> list[Reply]:
        """What EXPLAIN shows of every job; nothing is run."""
        from penstock.catalogue.explain import explain_scripts
        from penstock.catalogue.job_builder import PythonDeclarations
        from penstock.catalogue.script import read_script

        declarations = PythonDeclarations(self.streams, self.queries, self.functions)
        return explain_scripts([read_script(self.sql, self.file)], declarations)

    def on(self, state: Path, *, follows: bool = False, shared: bool = False) -> Program:
        """The program of the jobs on a state directory; `follows`: another process executes the epochs; `shared`: other
        processes accept commands too."""
        from penstock.catalogue.program import Program

        return Program(
            self.name,
            state,
            streams=self.streams,
            queries=self.queries,
            functions=self.functions,
            deliver=self.deliver,
            begin=self.sql,
            file=self.file,
            follows=follows,
            shared=shared,
        )


def jobs_app(
    name: str,
    sql: str = "",
    *,
    streams: Mapping[str, Stream] | None = None,
    queries: Mapping[str, Stream] | None = None,
    functions: Mapping[str, UserFunction] | None = None,
    deliver: Mapping[str, Deliver] | None = None,
) -> JobsApp:
    """Jobs that commands change while they run; at the start those of `sql` and `queries`.

    SQL can read `streams` and `queries` by their names and call `functions`, Python functions from expressions to an
    expression; `deliver` are functions that reply to messages to a job.
    """
    return JobsApp(name, sql, streams or {}, queries or {}, functions or {}, deliver or {})
