"""List what changed a job, command by command. Pure.

What came before the folded catalogue is one entry: the job as it was then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.catalogue.catalogue import Catalogue, JobEntry
from penstock.catalogue.command import AddJob, ChangeQuery, ChangeRecovery, Command, JobCommand


@dataclass(frozen=True)
class JobVersion:
    """A command on a job, and the job from then on. `state`: what happened to its state when it was altered."""

    command: int
    did: str
    version: int
    life: str
    query: str
    parameters: Mapping[str, Any]
    state: str | None
    error: str | None


def versions(
    job: str, folded: int, catalogue: Catalogue, entries: Sequence[Sequence[Command]]
) -> list[JobVersion]:
    """The versions of the present job of this name, oldest first, without those of former jobs of the name."""
    history: list[JobVersion] = []
    if job in catalogue.jobs:
        history.append(_version(folded, "earlier" if folded else "started with its app", catalogue.jobs[job]))
    for number, entry in enumerate(entries, folded + 1):
        for command in entry:
            catalogue = catalogue.after(command)
            if command.name != job or not isinstance(command, JobCommand):
                continue
            if isinstance(command, AddJob):
                history.clear()
            if job in catalogue.jobs:
                state = command.state if isinstance(command, ChangeQuery) else None
                history.append(_version(number, _did(command), catalogue.jobs[job], state))
    return history


def _did(command: JobCommand) -> str:
    if isinstance(command, ChangeRecovery):
        return f"{command.did} {command.recovery or 'default'}"
    return command.did


def _version(number: int, did: str, entry: JobEntry, state: str | None = None) -> JobVersion:
    return JobVersion(
        number,
        did,
        entry.version,
        entry.master.life,
        entry.query,
        dict(entry.parameters),
        state,
        entry.master.error,
    )
