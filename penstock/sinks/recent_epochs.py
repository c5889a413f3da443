"""What a sink remembers of the newest epochs that it has: their numbers, and the digests of their records.

As text, the oldest first: `150=0f3a6c51d2b7e984;151=...;`. Redis has a script that reads and writes the same.

An epoch is delivered again with the digest it had. Another digest is of another epoch with the same number: the state
directory went back to a copy, and continued otherwise.
"""

from __future__ import annotations

import re

from penstock.errors import UserError

#: so many epochs are remembered
RECENT_EPOCHS = 32
#: the condition of an error that says that a sink has epochs which are not this state's
STATE_RESTORED = "STATE_RESTORED"
_EPOCH = re.compile(r"(\d+)=([0-9a-f]+);")


def add_epoch(recent: str, epoch: int, digest: str) -> str:
    """The text with a further epoch, without the oldest of too many; unchanged if no digest is known."""
    if not digest:
        return recent
    known = {int(number): of for number, of in _EPOCH.findall(recent)} | {epoch: digest}
    return "".join(f"{number}={known[number]};" for number in sorted(known)[-RECENT_EPOCHS:])


def digest_in(recent: str, epoch: int) -> str:
    """The digest of an epoch; empty if it is not among them."""
    return next((of for number, of in _EPOCH.findall(recent) if int(number) == epoch), "")


def newest_in(recent: str) -> int:
    """The newest epoch among them; -1 if there is none."""
    return max((int(number) for number, _ in _EPOCH.findall(recent)), default=-1)


def check_same(place: str, recent: str, epoch: int, digest: str) -> None:
    """Raise if a sink has an epoch of this number with another digest."""
    known = digest_in(recent, epoch)
    if known and digest and known != digest:
        raise other_epoch_error(place, epoch)


def other_epoch_error(place: str, epoch: int) -> UserError:
    """The error of a sink that has another epoch of this number."""
    return UserError(
        STATE_RESTORED,
        f"{place} has another epoch {epoch} than this state directory",
        detail="Either the directory was restored from a copy, or two engines run on copies of one directory.",
        hint="Start with the directory that wrote these rows.",
    )
