"""Leave a job out of epochs that are recorded and cannot be executed with it, because somebody decided so.

It is recorded as when the job had failed in those epochs (see `job_epochs`), so every repetition does the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from penstock.catalogue.broken_jobs import fail_command
from penstock.catalogue.catalogue import JobEntry
from penstock.catalogue.command_log import CommandHistory
from penstock.catalogue.job_epochs import Failures, failure_key
from penstock.catalogue.known_outputs import known_outputs
from penstock.errors import UserError
from penstock.state.directory import StateDirectory


def exclude_job(
    state: StateDirectory, name: str, epochs: Sequence[int], root: Path | None = None
) -> list[int]:
    """Execute waiting epochs without a job, which keeps its state and counts as failed; returns those that had it. The
    caller holds the lock of the state directory; or, in an HA unit on the directory `root`, the lease of its leader.
    Others may accept commands of a unit meanwhile."""
    place = root or state.path
    history, failures = CommandHistory(place, known_outputs(place)), Failures(place)
    history.load(owned=root is None)
    found = _find_epochs(state, history, name, epochs)
    error = UserError(
        "JOB_EXCLUDED", "the job was excluded with `penstock recover exclude-job`", hint="Alter or resume it."
    )
    numbers = {entry.number for entry in found.values()}
    while (now := history.latest.jobs.get(name)) is not None:
        if now.number not in numbers or now.left_out:
            break
        if history.log.append([fail_command(now, error, lost=False)], state.fenced_directory) is not None:
            break
        history.load(owned=root is None)  # somebody else has appended a command
    for epoch, entry in found.items():
        failures.put(state.fenced_directory, epoch, {failure_key(entry): error}, lost=())
    return list(found)


def check_excludable(state: StateDirectory, name: str, epochs: Sequence[int], root: Path) -> None:
    """Raise UNKNOWN_JOB if no waiting epoch of the HA unit on `root` executes a job. Changes nothing."""
    history = CommandHistory(root, known_outputs(root))
    history.load(owned=False)
    _find_epochs(state, history, name, epochs)


def _find_epochs(
    state: StateDirectory, history: CommandHistory, name: str, epochs: Sequence[int]
) -> dict[int, JobEntry]:
    """The epochs that execute a job, and the job in each."""
    found: dict[int, JobEntry] = {}
    for epoch in epochs:
        record = state.records.read(epoch)
        entry = None if record is None else history.after(record.commands).jobs.get(name)
        if entry is not None and not entry.left_out:
            found[epoch] = entry
    if not found:
        raise UserError(
            "UNKNOWN_JOB",
            f"no waiting epoch executes a job {name}",
            hint=f"`penstock recover show {state.path}` lists the epochs that wait.",
        )
    return found
