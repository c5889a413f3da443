"""Compile the jobs of a SQL text to the reduction that agents apply to a stream: which events they keep, and how they
aggregate them.

Agents and engine share nothing but the text. Each compiles it on its own machine.
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
    """The part of the jobs of a text that agents execute on a stream. `sinks`: build the sinks of the jobs too."""
    parsed = read_script(text)
    declarations = PythonDeclarations({}, {}, {})
    builder = JobBuilder(declarations)
    checker = StatementChecker(builder, declarations, len(parsed.statements))
    statements: list[CreateStream | CreateJob] = []
    for statement in parsed.statements:
        if not isinstance(statement, CreateStream | CreateJob):
            raise UserError(
                "NOT_REDUCIBLE",
                "a text that agents reduce for creates streams and jobs, and nothing else",
                hint="Leave out ALTER, DROP, SHOW and the like: such jobs do not change while they run.",
            )
        if isinstance(statement, CreateJob) and not sinks:
            statement = replace(statement, sinks=())
        statements.append(statement)
    catalogue = checker.check_initial(
        replace(parsed, statements=statements), Catalogue(), first=True
    ).catalogue
    outputs = []
    for job, entry in catalogue.jobs.items():
        node = builder.job(job, catalogue).node
        outputs.append(
            logical.Output(job, node, builder.sinks(entry) if sinks else (), node.origin, entry.recovery)
        )
    if not outputs:
        raise UserError("NO_JOBS", "the text creates no job", hint="CREATE JOB name AS SELECT ....")
    return plan_reduction(logical.App(name, tuple(outputs)), stream, _identity(text, stream))


def compile_reducer(text: str, stream: str) -> Reducer:
    """The reducer of an agent for the lines of a stream."""
    return Reducer(compile_reduction(text, stream, sinks=False))


def _identity(text: str, stream: str) -> str:
    """What the columns of partial results depend on: the stream, apart from its log, and the jobs."""
    parts = [stream]
    for statement in parse(text):
        if isinstance(statement, CreateStream) and statement.name == stream:
            definition = (
                statement.format.name,
                statement.format.arguments,
                sorted(statement.format.options.items()),
            )
            parts.append(repr((definition, statement.time, statement.lateness)))
        elif isinstance(statement, CreateJob):
            parts.append(f"{statement.name}: {statement.select.text} {sorted(statement.parameters.items())}")
    return "\n".join(parts)
