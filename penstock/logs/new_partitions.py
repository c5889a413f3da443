"""Makes partitions of the files that continue none, and leaves out those that are copies.

Receives the files and what is known of the partitions that are away; gives ids, and says which files wait: a file that
may still be written is not decided on. What it leaves out or starts at its end is remembered in a fingerprint, so that
a start decides the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from penstock.logs.file_copies import Copies, Key
from penstock.logs.file_doubts import Doubts
from penstock.logs.file_identity import Identity
from penstock.logs.file_matching import LEAST_COMMON_BYTES, Away, find_original, find_shorter, new_id
from penstock.logs.forgotten_files import ForgottenFiles
from penstock.logs.new_files import (
    Former,
    OnRewrite,
    cut_error,
    find_cut,
    find_read_original,
    find_repeated,
)
from penstock.logs.textfile import Inode, TextFile

#: files that were cut, and the partitions of which they have a part
Cuts = list[tuple[TextFile, Former]]


class NewPartitions:
    """The decisions about new files, and what they depend on."""

    def __init__(self, copies: Copies, doubts: Doubts, settle_seconds: float, on_rewrite: OnRewrite) -> None:
        self._copies, self._doubts = copies, doubts
        self._settle_seconds, self._on_rewrite = settle_seconds, on_rewrite
        #: files that are not read again
        self.forgotten = ForgottenFiles()
        #: of files that wait as copies of others: a start must know them if the others are truncated
        self.waiting_copies: list[Identity] = []
        #: where partitions start that are not read from their first line
        self.starts: dict[str, int] = {}
        #: since when files are seen to be cut
        self._cut_since: dict[Inode, float] = {}

    def add(
        self,
        new: list[TextFile],
        away: Away,
        *,
        can_be_copies: bool,
    ) -> tuple[set[str], Cuts]:
        """Make partitions of the files that continue none; return the paths of those that wait, and those that were
        cut."""
        waiting: set[str] = set()
        cuts: Cuts = []
        self.waiting_copies = []
        if not any(text.id is None for text in new):
            return waiting, cuts
        taken = {*away.ids, *(text.id for text in away.listed.values() if text.id)}
        for text in sorted(
            (text for text in new if text.id is None), key=lambda text: (-text.latest, text.path)
        ):  # the longest first: others may be copies of it
            key = (*text.inode, text.size, text.mtime_ns)
            if can_be_copies:
                if self._copies.has(key):
                    continue
                original = find_original(text, away)
                if original is not None and self._is_copy_of_present(text, key, original, waiting):
                    continue
                if original is None and self._is_copy_of_read(text, key, away, waiting):
                    continue
                if original is None and (cut := find_cut(text, away)) is not None:
                    cuts.append((text, cut))
                    continue
            self._start_partition(text, taken, away if can_be_copies else None)
        return waiting, cuts

    def _start_partition(self, text: TextFile, taken: set[str], away: Away | None) -> None:
        """Make a partition of a file that is a log of its own; it may be one that was read and forgotten."""
        text.id = new_id(str(text.label), taken)
        taken.add(text.id)
        is_known = self.recall(text.id, Identity.of_seen(text))
        if away is None or is_known:
            return
        if (shorter := find_shorter(text, away)) is not None:
            self._skip_shared(text, shorter)
            return
        former = find_read_original(text, away)
        repeated = find_repeated(text, away) if former is None else former.identity
        if repeated is not None:
            self._doubts.report_repeated(text.path, repeated.path)

    def _skip_shared(self, text: TextFile, shorter: TextFile) -> None:
        """Read of a file that has all lines of another, which is there, only those that the other has not."""
        own = Identity.of_seen(shorter)
        if own.length >= LEAST_COMMON_BYTES or (not own.is_weak and own.is_related_to(text.path)):
            self.starts[str(text.id)] = shorter.latest
            self._doubts.report_continuation(text.path, shorter.path, shorter.latest)
        elif not own.is_weak:
            self._doubts.report_repeated(text.path, shorter.path)

    def recall(self, id: str, identity: Identity) -> bool:
        """Continue a file that was read and forgotten where it was left; whether it is one."""
        if not self.forgotten.has(identity):
            return False
        self.starts[id] = identity.length
        self._doubts.report_recalled(identity.path, identity.length)
        return True

    def _is_copy_of_present(self, text: TextFile, key: Key, original: TextFile, waiting: set[str]) -> bool:
        """Whether a file with the first lines of one that is there is left out, or waits, as its copy."""
        own = Identity.of_seen(text)
        if not self._copies.is_settled(key):
            waiting.add(text.path)
            self._copies.wait(key, str(original.id))
            self.waiting_copies.append(own)
            return True
        is_related = Identity.of_seen(original).is_related_to(text.path)
        if own.length < LEAST_COMMON_BYTES and (own.is_weak or not is_related):
            if not own.is_weak:
                self._doubts.report_repeated(text.path, original.path)
            return False
        self._copies.leave_out(key)
        self.forgotten.add([own])
        self._doubts.report_copy(text.path, original.path)
        return True

    def _is_copy_of_read(self, text: TextFile, key: Key, away: Away, waiting: set[str]) -> bool:
        """Whether a file is left out, or waits, as a copy of what was read of a file that is gone or empty now."""
        original = self._copies.original_of(key) or ""
        former = find_read_original(text, away)
        if away.offsets.get(original, -1) >= text.latest:
            path, length = away.homes.get(original, original), away.offsets[original]
        elif former is not None and former.is_copy:
            path, length = former.identity.path, former.identity.length
        else:
            is_known = self.forgotten.has(Identity.of_seen(text))
            is_unsure = former is not None and not is_known and not self._copies.is_settled(key)
            waiting.update([text.path] if is_unsure else [])
            return is_unsure
        self._copies.leave_out(key)
        self.forgotten.add([Identity.of_seen(text)])
        self._doubts.report_shorter_copy(text.path, path, length)
        return True

    def add_cut(
        self, cuts: Cuts, away: Away, may_be_waiting: Callable[[str], bool]
    ) -> tuple[list[TextFile], set[str]]:
        """Decide on the files that have only a part of what was read, unless that is found elsewhere; return those that
        are partitions now, and the paths of those that wait, because they may still be written or because a file that
        waits may have the rest."""
        now, waiting, added = time.monotonic(), set(), []
        self._cut_since = {text.inode: self._cut_since.get(text.inode, now) for text, _ in cuts}
        taken = {*away.ids, *(one for one in away.held if one)}
        for text, former in cuts:
            is_away = former.id not in away.held
            is_written = now - self._cut_since[text.inode] < self._settle_seconds
            if is_away and (is_written or may_be_waiting(former.identity.path)):
                waiting.add(text.path)
                continue
            if is_away and self._on_rewrite == "error":
                raise cut_error(text, former)
            text.id = new_id(str(text.label), taken)
            taken.add(text.id)
            added.append(text)
            if not is_away:
                self._doubts.report_repeated(text.path, former.identity.path)
                continue
            self._doubts.report_rewritten(text.path, former.identity.length, self._on_rewrite)
            if self._on_rewrite == "skip":
                self.starts[text.id] = text.latest
        return added, waiting
