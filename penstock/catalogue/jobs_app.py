"""A description of jobs, for a file to hold: SQL, and what Python gives to it. Building it runs nothing.

What understands SQL is loaded once a description is used: an engine without jobs starts sooner, and whoever waits for
one that takes over waits for that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.catalogue.jobs_declaration import JobsDeclaration

if TYPE_CHECKING:
    from penstock.catalogue.command import Answered
    from penstock.catalogue.messages import Deliver
    from penstock.catalogue.program import Program
    from penstock.query.stream import Stream
    from penstock.sql.scope import UserFunction


@dataclass(frozen=True, eq=False)
class JobsApp(JobsDeclaration):
    """Streams and jobs to begin with; commands change them while they run."""

    def explained(self) -> list[Answered]:
        """What EXPLAIN says of every job; nothing is run."""
        from penstock.catalogue.explain import explain_scripts
        from penstock.catalogue.job_builder import PythonDeclarations
        from penstock.catalogue.script import script

        declarations = PythonDeclarations(self.streams, self.queries, self.functions)
        return explain_scripts([script(self.sql, self.file)], declarations)

    def on(self, state: Path, *, follows: bool = False, shared: bool = False) -> Program:
        """The jobs on a state directory; `follows`: another process runs their epochs; `shared`: other processes take
        in commands too."""
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
    """Jobs that come and go, to begin with those of `sql` and `queries`.

    `streams` and `queries` are given names under which SQL can read them; `functions` are Python functions from
    expressions to an expression that SQL can call; `deliver` are functions that answer messages to a job.
    """
    return JobsApp(name, sql, streams or {}, queries or {}, functions or {}, deliver or {})
