"""Leave a job out of epochs that are recorded and cannot be executed with it, because somebody decided so.

It is recorded as when the job had failed in those epochs (see `job_epochs`), so every repetition does the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.catalogue.broken_jobs import fail_command
from penstock.catalogue.catalogue import JobEntry
from penstock.catalogue.command_log import CommandHistory
from penstock.catalogue.job_epochs import Failures, failure_key
from penstock.catalogue.known_outputs import known_outputs
from penstock.errors import UserError
from penstock.state.directory import StateDirectory


def exclude_job(state: StateDirectory, name: str, epochs: Sequence[int]) -> list[int]:
    """Execute waiting epochs without a job, which keeps its state and counts as failed; returns those that had it. The
    caller holds the lock of the state directory."""
    history, failures = CommandHistory(state.path, known_outputs(state.path)), Failures(state.path)
    history.load(owned=True)
    error = UserError(
        "JOB_EXCLUDED", "the job was excluded with `penstock recover exclude-job`", hint="Alter or resume it."
    )
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
    now = history.latest.jobs.get(name)
    if now is not None and any(now.number == one.number for one in found.values()) and not now.left_out:
        history.log.append([fail_command(now, error, lost=False)], state.fenced_directory)
    for epoch, entry in found.items():
        failures.put(state.fenced_directory, epoch, {failure_key(entry): error}, lost=())
    return list(found)
