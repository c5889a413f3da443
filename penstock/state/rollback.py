"""Check the state after each epoch, and roll a state directory back to an earlier one.

The epoch records stay. So the engine repeats the later epochs with the very spans they had, and sinks drop what they
have already.

Guarantees: a crash in between leaves a directory that can be rolled back again: the newest manifest goes first.
Does not guarantee that the log still has the old spans; the engine reports an error if it does not.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import ExternalError, InternalError, UserError
from penstock.state.directory import StateDirectory
from penstock.state.run_file import check_run, unwritable_error


@dataclass(frozen=True)
class EpochCheck:
    """An epoch and what is wrong with the state after it; no problems: it is whole."""

    epoch: int
    problems: tuple[str, ...]


def check_epochs(state: StateDirectory) -> list[EpochCheck]:
    """Check every epoch that has a manifest, newest first. One that is removed meanwhile is left out."""
    checks = []
    for epoch in reversed(state.manifests.epochs()):
        problems = find_problems(state, epoch)
        if not problems or epoch in state.manifests.epochs():
            checks.append(EpochCheck(epoch, tuple(problems)))
    return checks


def find_problems(state: StateDirectory, epoch: int) -> list[str]:
    """What is wrong with the state after an epoch; an empty list when it is whole."""
    try:
        manifest = state.manifests.read(epoch)
    except InternalError as damage:
        return [str(damage)]
    problems = []
    for run in sorted(manifest.runs()):
        try:
            check_run(state.runs / run)
        except (InternalError, ExternalError) as damage:
            problems.append(str(damage))
    return problems


def last_good_epoch(state: StateDirectory) -> int | None:
    """The newest epoch whose state is whole; -1 when everything can be repeated from the beginning; else None."""
    for epoch in reversed(state.manifests.epochs()):
        if not find_problems(state, epoch):
            return epoch
    return -1 if _can_repeat_all(state) else None


def roll_back(state: StateDirectory, to: int | None = None) -> tuple[int, list[int]]:
    """Roll back to the last good epoch, or to the given one; returns it and the epochs whose manifests were removed.

    The caller holds the lock (`StateDirectory.locked`).
    """
    target = last_good_epoch(state) if to is None else to
    if target is None:
        raise InternalError(
            "NO_GOOD_EPOCH",
            f"no epoch in {state.path} is whole",
            hint="Start with another state directory; the results written so far stay where they are.",
        )
    if to is not None:
        _check_target(state, to)
    removed = [epoch for epoch in state.manifests.epochs() if epoch > target]
    try:
        state.manifests.remove_after(target)
    except OSError as failure:
        raise unwritable_error(state.path, failure) from failure
    return target, removed


def _check_target(state: StateDirectory, to: int) -> None:
    if to == -1 and _can_repeat_all(state):
        return
    epochs = state.manifests.epochs()
    if to not in epochs:
        raise UserError(
            "NO_SUCH_EPOCH",
            f"the state after epoch {to} is not kept",
            detail=f"kept are epochs {epochs[0]} to {epochs[-1]}." if epochs else "no epoch is kept.",
            hint="See `penstock state ls DIR`.",
        )
    if problems := find_problems(state, to):
        raise InternalError("STATE_DAMAGED", f"epoch {to} is not whole itself", detail=problems[0])


def _can_repeat_all(state: StateDirectory) -> bool:
    """Whether the record of the first epoch is still there: then everything can be repeated."""
    return state.records.read(0) is not None
