"""Reports what cannot be known of files and is decided by a rule: loudly, and counted.

Two files can have the same lines because one is a copy of the other, or because a writer wrote them twice. Nothing in
the files tells which; each rule says what is likely, and the warning names the files and what to do if it is not so.
"""

from __future__ import annotations

import logging

_LOG = logging.getLogger(__name__)


class Doubts:
    """The decisions by a rule, since the start."""

    def __init__(self) -> None:
        self.count = 0

    def report(self, message: str, *values: object) -> None:
        """Say what was decided, of which files."""
        self.count += 1
        _LOG.warning(message, *values)

    def report_copy(self, path: str, original: str) -> None:
        """A file is left out, because another has its lines."""
        self.report(
            "%s has the same lines as %s: it is left out as a copy of it. If it is a log of its own, give it a first "
            "line of its own",
            path,
            original,
        )

    def report_shorter_copy(self, path: str, original: str, length: int) -> None:
        """A file is left out, because all of it was read of another that is gone or empty now."""
        self.report(
            "%s has only lines that were read of %s, which had %d bytes then: it is left out as a copy of it. If it is "
            "a log of its own, rename it so that its name does not start as that one's",
            path,
            original,
            length,
        )

    def report_continuation(self, path: str, former: str, length: int) -> None:
        """A file is read on where another ended."""
        self.report(
            "%s starts with all that was read of %s, up to offset %d, and continues it: these lines are not read "
            "again. If it is a log of its own, give it a first line of its own",
            path,
            former,
            length,
        )

    def report_repeated(self, path: str, former: str) -> None:
        """A file is read although its lines may have been read of another."""
        self.report(
            "%s is read from its start, although it has lines that were read of %s, which is gone or empty now. If it "
            "is a copy, these lines count twice: keep copies where no glob matches them",
            path,
            former,
        )

    def report_recalled(self, path: str, length: int) -> None:
        """A file is not read, because one with its name and its content was."""
        self.report(
            "%s has all %d bytes of a file of its name that was read, or was left out as a copy: only what is added to "
            "it is read. If it is a log of its own, give it another name",
            path,
            length,
        )

    def report_lost(self, path: str, length: int) -> None:
        """Lines that were seen are in no file any more."""
        self.report(
            "%s was replaced by a file that has what was read of it, up to offset %d, but not the lines after "
            "that: they are lost",
            path,
            length,
        )

    def report_emptied(self, path: str, length: int) -> None:
        """A file was emptied, and no copy has what was written to it last."""
        self.report(
            "%s was truncated or replaced, and no copy of it was found beside it. Lines that were added after "
            "it was read to offset %d are lost. Rotate by renaming, or copy into the same directory",
            path,
            length,
        )

    def report_rewritten(self, path: str, length: int, action: str) -> None:
        """A file has some of the lines that were read, and the user has said what to do."""
        self.report(
            "%s was truncated or rewritten after it was read to offset %d, and still starts with lines that were read. "
            "As on_rewrite='%s' says, %s",
            path,
            length,
            action,
            "all of its lines are read"
            if action == "read"
            else "its lines are not read, only those added from now on",
        )
