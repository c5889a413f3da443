"""Going back: makes an earlier epoch the last one again, so that the engine repeats what came after it.

Receives a state directory that no engine holds; hands it back with the state after an epoch that is whole.

Guarantees: the epoch records stay, so the epochs that follow are repeated with the very spans they had, and
sinks drop what they hold already. A crash in between leaves a directory that can be rolled back again: the newest
manifest goes first.
Does not guarantee that the log can still give the old spans; the engine says so if it cannot.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import InternalError, UserError
from penstock.state.directory import StateDirectory
from penstock.state.run_file import unwritable_error


@dataclass(frozen=True)
class Checked:
    """An epoch and what is wrong with its state (nothing: it is whole)."""

    epoch: int
    problems: tuple[str, ...]


def check_all(state: StateDirectory) -> list[Checked]:
    """Every kept epoch, newest first. An epoch that is recycled meanwhile is left out."""
    found = []
    for epoch in reversed(state.epochs()):
        problems = state.verify(epoch)
        if not problems or epoch in state.epochs():
            found.append(Checked(epoch, tuple(problems)))
    return found


def last_good(state: StateDirectory) -> int | None:
    """The newest epoch whose state is whole; -1 when all can be repeated from the beginning; else None."""
    for epoch in reversed(state.epochs()):
        if not state.verify(epoch):
            return epoch
    return -1 if _from_the_beginning(state) else None


def rolled_back(state: StateDirectory, to: int | None = None) -> tuple[int, list[int]]:
    """Go back to the last good epoch, or to the one given; returns it and the epochs taken back.

    The caller holds the directory (`StateDirectory.held`).
    """
    target = last_good(state) if to is None else to
    if target is None:
        raise InternalError(
            "NO_GOOD_EPOCH",
            f"no epoch in {state.path} is whole",
            hint="Start anew with another state directory; the results written so far stay where they are.",
        )
    if to is not None:
        _check_target(state, to)
    taken = [epoch for epoch in state.epochs() if epoch > target]
    try:
        state.remove_manifests_after(target)
    except OSError as failure:
        raise unwritable_error(state.path, failure) from failure
    return target, taken


def _check_target(state: StateDirectory, to: int) -> None:
    if to == -1 and _from_the_beginning(state):
        return
    epochs = state.epochs()
    if to not in epochs:
        raise UserError(
            "NO_SUCH_EPOCH",
            f"the state after epoch {to} is not kept",
            detail=f"kept are epochs {epochs[0]} to {epochs[-1]}." if epochs else "no epoch is kept.",
            hint="See `penstock state ls DIR`.",
        )
    if problems := state.verify(to):
        raise InternalError("STATE_DAMAGED", f"epoch {to} is not whole itself", detail=problems[0])


def _from_the_beginning(state: StateDirectory) -> bool:
    """Whether the record of the first epoch is still there: then everything can be repeated."""
    return state.recorded_end(0) is not None
