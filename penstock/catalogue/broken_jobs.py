"""Jobs that cannot be made any more: what they call or read is not given after a restart, or is not known.

Receives a catalogue; hands the errors of its broken jobs. Those who read one are broken with it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from penstock.catalogue.catalogue import Catalogue, JobEntry, names_in
from penstock.catalogue.command import ChangeQuery, Command, FailJob
from penstock.catalogue.job_builder import Workshop
from penstock.errors import PenstockError, UserError

_HINT = "Give back what it needs and resume it, or alter or drop it."


def find_broken_jobs(workshop: Workshop, catalogue: Catalogue) -> dict[str, PenstockError]:
    """Why jobs of a catalogue cannot be made, by their names. Those that are left out anyway are not tried."""
    found: dict[str, PenstockError] = {}
    for name, entry in catalogue.jobs.items():
        if not entry.left_out:
            error = _find_error(workshop, entry, catalogue)
            if error is not None:
                found[name] = error
    return {name: _explain_error(catalogue.jobs[name], error, found) for name, error in found.items()}


def names_read(workshop: Workshop, name: str, catalogue: Catalogue) -> frozenset[str]:
    """The streams and jobs that a job reads; of one that cannot be made, those its query names."""
    try:
        return workshop.uses(name, catalogue)
    except Exception:
        named = _tables_in(catalogue.jobs[name])
        return frozenset(catalogue.streams) | named if "*" in named else named


def possible_readers(name: str, catalogue: Catalogue) -> list[str]:
    """The jobs that may read a job or stream, also by way of others, and it itself if it is a job: those that have its
    name in their texts. To be asked of these alone spares making all others."""
    if name in catalogue.streams or not re.fullmatch(
        r"[\w-]+", name
    ):  # FROM * reads streams it does not name
        return list(catalogue.jobs)
    texts = {job: _text_with_names(entry).casefold() for job, entry in catalogue.jobs.items()}
    found, look = {name}, [name]
    while look:
        sought = look.pop().casefold()
        new = [job for job, text in texts.items() if sought in text and job not in found]
        found.update(new)
        look += new
    return [job for job in catalogue.jobs if job in found]


def affected_jobs(commands: Sequence[Command], catalogue: Catalogue) -> set[str]:
    """The jobs that commands are about, and those that may read one they alter: both may tell other columns now."""
    altered = [command.name for command in commands if isinstance(command, ChangeQuery)]
    readers = {job for name in altered if name in catalogue.jobs for job in possible_readers(name, catalogue)}
    return (names_in(commands) | readers) & catalogue.jobs.keys()


def fail_command(entry: JobEntry, error: PenstockError, lost: bool = True) -> FailJob:
    """The command that says a job failed, as it was then; `lost`: its state is gone."""
    return FailJob(entry.name, entry.version, error.text(), entry.number, lost)


def _find_error(workshop: Workshop, entry: JobEntry, catalogue: Catalogue) -> PenstockError | None:
    try:
        workshop.job(entry.name, catalogue)
        workshop.sinks(entry)
    except PenstockError as error:
        if (
            error.condition == "CODE_NOT_TRUSTED"
        ):  # its stored code is whole: once its mode is right, so is the job
            raise
        return error
    except Exception as failure:  # of the user's own code
        return UserError("JOB_BROKEN", f"{type(failure).__name__}: {failure}")
    return None


def _explain_error(entry: JobEntry, error: PenstockError, others: dict[str, PenstockError]) -> PenstockError:
    """The error as it is told of a job that ran before."""
    read = sorted(_tables_in(entry) & others.keys())
    if read:
        return UserError(
            "READS_BROKEN_JOB",
            f"it reads {read[0]}, which cannot be made any more",
            detail=others[read[0]].primary,
            hint=f"Resume or alter {read[0]}, then resume it.",
        )
    return type(error)(error.condition, error.primary, detail=error.detail, where=error.where, hint=_HINT)


def _text_with_names(entry: JobEntry) -> str:
    """A text in which the names of all jobs are that a job reads."""
    return entry.select or ("" if entry.code is None else "\n".join(entry.code.reads))


def _tables_in(entry: JobEntry) -> frozenset[str]:
    """What a query names in its FROM and JOIN."""
    if entry.of_python:
        return frozenset() if entry.code is None else frozenset(entry.code.reads)
    # loading what reads SQL takes a while, which an engine without jobs of SQL is spared
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
