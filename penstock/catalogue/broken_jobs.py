"""Find jobs that can no longer be built: what they call or read is not given after a restart, or is unknown.

Jobs that read a broken job are broken too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from penstock.catalogue.catalogue import Catalogue, JobEntry, names_in
from penstock.catalogue.command import ChangeQuery, Command, FailJob
from penstock.catalogue.job_builder import JobBuilder
from penstock.errors import PenstockError, UserError

_HINT = "Provide what it needs and resume it, or alter or drop it."


def find_broken_jobs(builder: JobBuilder, catalogue: Catalogue) -> dict[str, PenstockError]:
    """The errors of jobs that cannot be built, by name. Jobs that are left out anyway are not tried."""
    errors: dict[str, PenstockError] = {}
    for name, entry in catalogue.jobs.items():
        if not entry.left_out:
            error = _find_error(builder, entry, catalogue)
            if error is not None:
                errors[name] = error
    return {name: _explain_error(catalogue.jobs[name], error, errors) for name, error in errors.items()}


def names_read(builder: JobBuilder, name: str, catalogue: Catalogue) -> frozenset[str]:
    """The streams and jobs that a job reads; for one that cannot be built, those that its query names."""
    try:
        return builder.inputs_of(name, catalogue)
    except Exception:
        tables = _tables_in(catalogue.jobs[name])
        return frozenset(catalogue.streams) | tables if "*" in tables else tables


def possible_readers(name: str, catalogue: Catalogue) -> list[str]:
    """The jobs that may read a job or stream, directly or not, and the job itself: those whose texts contain its name.
    To check these alone saves building all others."""
    if name in catalogue.streams or not re.fullmatch(
        r"[\w-]+", name
    ):  # FROM * reads streams it does not name
        return list(catalogue.jobs)
    texts = {job: _text_with_names(entry).casefold() for job, entry in catalogue.jobs.items()}
    found, pending = {name}, [name]
    while pending:
        searched = pending.pop().casefold()
        new = [job for job, text in texts.items() if searched in text and job not in found]
        found.update(new)
        pending += new
    return [job for job in catalogue.jobs if job in found]


def affected_jobs(commands: Sequence[Command], catalogue: Catalogue) -> set[str]:
    """The jobs that commands are about, and those that may read one they alter: both may emit other columns now."""
    altered = [command.name for command in commands if isinstance(command, ChangeQuery)]
    readers = {job for name in altered if name in catalogue.jobs for job in possible_readers(name, catalogue)}
    return (names_in(commands) | readers) & catalogue.jobs.keys()


def fail_command(entry: JobEntry, error: PenstockError, lost: bool = True) -> FailJob:
    """The command that marks a job as failed, unless it has changed since; `lost`: its state is dropped."""
    return FailJob(entry.name, entry.version, error.text(), entry.number, lost)


def _find_error(builder: JobBuilder, entry: JobEntry, catalogue: Catalogue) -> PenstockError | None:
    try:
        builder.job(entry.name, catalogue)
        builder.sinks(entry)
    except PenstockError as error:
        if error.condition == "CODE_NOT_TRUSTED":
            raise  # its stored code is complete: once its mode is right, so is the job
        return error
    except Exception as failure:  # of the user's own code
        return UserError("JOB_BROKEN", f"{type(failure).__name__}: {failure}")
    return None


def _explain_error(entry: JobEntry, error: PenstockError, others: dict[str, PenstockError]) -> PenstockError:
    """The error of a job that ran before, with a hint for that case."""
    read = sorted(_tables_in(entry) & others.keys())
    if read:
        return UserError(
            "READS_BROKEN_JOB",
            f"it reads {read[0]}, which can no longer be built",
            detail=others[read[0]].primary,
            hint=f"Resume or alter {read[0]}, then resume it.",
        )
    return type(error)(error.condition, error.primary, detail=error.detail, where=error.where, hint=_HINT)


def _text_with_names(entry: JobEntry) -> str:
    """A text that contains the names of all jobs that a job reads."""
    return entry.select or ("" if entry.code is None else "\n".join(entry.code.reads))


def _tables_in(entry: JobEntry) -> frozenset[str]:
    """The names in the FROM and JOIN of a query."""
    if entry.of_python:
        return frozenset() if entry.code is None else frozenset(entry.code.reads)
    # loading the SQL parser takes a while, which an engine without SQL jobs is spared
    from sqlglot import exp

    from penstock.sql.parse import parse
    from penstock.sql.statements import Select

    try:
        statement = parse(entry.select)[0]
    except PenstockError:
        return frozenset()
    assert isinstance(statement, Select)
    tables = statement.tree.find_all(exp.Table)
    return frozenset(name.name for table in tables for name in table.find_all(exp.Identifier))
