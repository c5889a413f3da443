"""The jobs of a SQL text as agents reduce for them: which of a stream's events, and to what.

Receives the text that agents and engine share; hands the reduction of one of its streams. The text is compiled here,
on the machine that uses it; nothing but text is shared.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.catalogue.catalogue import Catalogue
from penstock.catalogue.job_builder import JobBuilder, PythonDeclarations
from penstock.catalogue.script import read_script
from penstock.catalogue.statement_checker import StatementChecker
from penstock.errors import UserError
from penstock.query import logical
from penstock.query.reducer import Reducer
from penstock.query.reduction_plan import Reduction, plan_reduction
from penstock.sql.parse import parse
from penstock.sql.statements import CreateJob, CreateStream


def compile_reduction(text: str, stream: str, name: str = "reduced", *, sinks: bool = True) -> Reduction:
    """What agents do of a stream for the jobs of a text. Without `sinks` the jobs lead nowhere."""
    read = read_script(text)
    given = PythonDeclarations({}, {}, {})
    builder = JobBuilder(given)
    checker = StatementChecker(builder, given, len(read.statements))
    statements: list[CreateStream | CreateJob] = []
    for statement in read.statements:
        if not isinstance(statement, CreateStream | CreateJob):
            raise UserError(
                "NOT_REDUCIBLE",
                "a text that agents reduce for creates streams and jobs, and nothing else",
                hint="Leave out ALTER, DROP, SHOW and the like: such jobs do not change while they run.",
            )
        if isinstance(statement, CreateJob) and not sinks:
            statement = _leading_nowhere(statement)
        statements.append(statement)
    catalogue = checker.check_initial(replace(read, statements=statements), Catalogue(), first=True).catalogue
    outputs = []
    for job, entry in catalogue.jobs.items():
        node = builder.job(job, catalogue).node
        outputs.append(
            logical.Output(job, node, builder.sinks(entry) if sinks else (), node.origin, entry.recovery)
        )
    if not outputs:
        raise UserError("NO_JOBS", "the text creates no job", hint="CREATE JOB name AS SELECT ....")
    return plan_reduction(logical.App(name, tuple(outputs)), stream, _said(text, stream))


def compile_reducer(text: str, stream: str) -> Reducer:
    """What an agent does with the lines of a stream."""
    return Reducer(compile_reduction(text, stream, sinks=False))


def _leading_nowhere(statement: CreateJob) -> CreateJob:
    return replace(statement, sinks=())


def _said(text: str, stream: str) -> str:
    """What the columns of partial answers depend on: the stream, where its log is aside, and the jobs."""
    parts = [stream]
    for statement in parse(text):
        if isinstance(statement, CreateStream) and statement.name == stream:
            about = (
                statement.format.name,
                statement.format.arguments,
                sorted(statement.format.options.items()),
            )
            parts.append(repr((about, statement.time, statement.lateness)))
        elif isinstance(statement, CreateJob):
            parts.append(f"{statement.name}: {statement.select.text} {sorted(statement.parameters.items())}")
    return "\n".join(parts)
