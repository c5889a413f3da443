"""The error tree: what went wrong, where, who has to fix it, and whether a retry can help.

Every error is one readable message of the form ``[CONDITION] primary. Detail: ... Hint: ...``.

Invariants:
- Everything Penstock raises on purpose derives from :class:`PenstockError`.
- A condition is a stable upper-case name on which tests, docs and scripts may rely.
"""

from __future__ import annotations

import errno
import re

#: errors of the system that pass by themselves, or once somebody makes room: of disks, mounts and networks
_PASSING = frozenset(
    {
        errno.EIO,
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EROFS,
        errno.ESTALE,
        errno.EAGAIN,
        errno.EBUSY,
        errno.ENFILE,
        errno.ETIMEDOUT,
        errno.ENOTCONN,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.ECONNABORTED,
    }
)


class PenstockError(Exception):
    """Root of the tree.

    ``retry``: whether the same run, unchanged, may succeed later. ``is_transient``: something outside is away and comes
    back by itself, so an engine waits for it in the process. ``where``: the place, such as an operator, a span or the
    user's line.
    """

    exit_code = 1
    retry = False

    def __init__(
        self,
        condition: str,
        primary: str | None = None,
        *,
        detail: str | None = None,
        hint: str | None = None,
        where: str | None = None,
        is_transient: bool = False,
    ) -> None:
        if primary is None:  # restored from its text: Polars does that with errors of functions that it calls
            condition, primary, detail, hint = _parts(condition)
        self.condition = condition
        self.primary = primary.rstrip(".")
        self.detail = detail
        self.hint = hint
        self.where = where
        self.is_transient = is_transient
        super().__init__(self.text())

    def text(self) -> str:
        """The whole message in one line."""
        return " ".join(self.parts())

    def parts(self) -> list[str]:
        """The parts of the message, the headline first."""
        parts = [f"[{self.condition}] {self.primary}."]
        if self.where:
            parts.append(f"At: {self.where}.")
        if self.detail:
            parts.append(f"Detail: {self.detail}")
        if self.hint:
            parts.append(f"Hint: {self.hint}")
        return parts

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (
            type(self),
            self.condition,
            self.primary,
            self.detail,
            self.hint,
            self.where,
            self.is_transient,
        )


def _parts(text: str) -> tuple[str, str, str | None, str | None]:
    """The condition, the primary message, the detail and the hint of a whole message."""
    text = text.partition("\n\nThis error occurred in the following")[0]
    match = re.fullmatch(r"\[(\w+)\] (.*?)(?: Detail: (.*?))?(?: Hint: (.*))?", text, re.DOTALL)
    return ("UNKNOWN", text, None, None) if match is None else (match[1], match[2], match[3], match[4])


def _rebuild(
    kind: type[PenstockError],
    condition: str,
    primary: str,
    detail: str | None,
    hint: str | None,
    where: str | None,
    is_transient: bool = False,
) -> PenstockError:
    return kind(condition, primary, detail=detail, hint=hint, where=where, is_transient=is_transient)


def is_transient(failure: BaseException) -> bool:
    """Whether a failure passes without a change here: what failed may be tried again in the same process."""
    if isinstance(failure, PenstockError):
        return failure.is_transient
    return isinstance(failure, OSError) and failure.errno in _PASSING


class UserError(PenstockError):
    """The query, its settings or its functions must change before a retry can help."""

    exit_code = 2


class UnknownMethod(UserError, AttributeError):
    """A method that does not exist. It is an AttributeError too, so that `hasattr` and `copy` work."""


class ExternalError(PenstockError):
    """Something outside Penstock failed (a disk, a path, a server); the run can be resumed once that is fixed."""

    exit_code = 3
    retry = True


class InternalError(PenstockError):
    """A defect of Penstock, or damaged state."""

    exit_code = 4
