"""Check commands on jobs against the catalogue: names, readers, room. Pure."""

from __future__ import annotations

from difflib import get_close_matches

from penstock.catalogue.broken_jobs import names_read, possible_readers
from penstock.catalogue.catalogue import Catalogue, JobEntry
from penstock.catalogue.job_builder import JobBuilder, blame_reader
from penstock.errors import PenstockError, UserError


class CommandChecks:
    """The checks that statements and requests with code share."""

    def __init__(self, builder: JobBuilder, max_jobs: int) -> None:
        self._builder, self._max_jobs = builder, max_jobs

    def check_free(self, name: str, catalogue: Catalogue) -> None:
        """Raise where a stream or job has the name."""
        kind = "stream" if name in catalogue.streams else "job" if name in catalogue.jobs else None
        if kind is not None:
            raise UserError(
                "NAME_TAKEN",
                f"there is a {kind} {name} already",
                hint=f"Choose another name, or ALTER JOB {name} AS SELECT ..."
                if kind == "job"
                else "Choose another name.",
            )

    def check_room(self, catalogue: Catalogue) -> None:
        """Raise where there are as many jobs as are allowed."""
        if len(catalogue.jobs) >= self._max_jobs:
            raise UserError(
                "TOO_MANY_JOBS",
                f"there are {len(catalogue.jobs):,} jobs, and no more than that are allowed",
                hint="Drop jobs that nobody needs, or start the engine with room for more.",
            )

    def check_unread(self, what: str, name: str, catalogue: Catalogue) -> None:
        """Raise where other jobs read a stream or a job."""
        if readers := self.readers(name, catalogue):
            raise UserError(
                "STILL_READ",
                f"{what} is read by {', '.join(sorted(readers)[:5])}{' and others' if len(readers) > 5 else ''}",
                hint="Drop or alter those jobs first.",
            )

    def readers(self, name: str, catalogue: Catalogue) -> list[str]:
        """The other jobs that read a stream or a job."""
        others = (other for other in possible_readers(name, catalogue) if other != name)
        return [other for other in others if name in names_read(self._builder, other, catalogue)]

    def check_readers(self, name: str, catalogue: Catalogue) -> None:
        """Raise where a job, or one that reads it, directly or not, can no longer be built."""
        for other in possible_readers(name, catalogue):
            if catalogue.jobs[other].left_out and other != name:
                continue
            try:
                self._builder.job(other, catalogue)
            except PenstockError as error:
                raise (error if other == name else blame_reader(other, error)) from error


def find_job(name: str, catalogue: Catalogue) -> JobEntry:
    """A job of the catalogue; raises if there is none."""
    if name not in catalogue.jobs:
        near = get_close_matches(name, catalogue.jobs, 1)
        raise UserError(
            "UNKNOWN_JOB",
            f"there is no job {name}",
            hint=f"Did you mean {near[0]}?" if near else "SHOW JOBS lists those there are.",
        )
    return catalogue.jobs[name]
