"""Decides what a file is that continues no partition: a log of its own, a copy of what was read, or one that was cut.

Receives a file that was inspected, and the partitions whose files are away. A file that is longer than what was read of
a partition, or as long, is compared byte by byte elsewhere (`file_matching`); one that is shorter can only be compared
where what was read has a checksum: at `STEPS`, or, while the engine runs, within the first 4 KB.

Invariants:
- A copy is left out only if it has 4 KB in common with what was read, or all of it is known to be the same, and if the
  original was emptied, or was there just before.
- A file that has lost lines that were read, or has others in their place, is not read without the user's consent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from penstock.errors import ExternalError
from penstock.logs.file_identity import Identity
from penstock.logs.file_matching import LEAST_COMMON_BYTES, Away
from penstock.logs.textfile import TextFile, line_of

#: what to do with a file that was cut or rewritten: stop, read all of it, or read only what is added
OnRewrite = Literal["error", "read", "skip"]


@dataclass(frozen=True)
class Former:
    """A partition with which a file has its first lines in common; whether there is no doubt that it is a copy."""

    id: str
    identity: Identity
    is_copy: bool = False


def find_read_original(text: TextFile, away: Away) -> Former | None:
    """The partition of which a file may be a copy that is shorter than what was read: lines came between the copy and
    the truncation, or an archive is being unpacked."""
    own, unsure = Identity.of_seen(text), None
    for id in away.by_line.get(line_of(str(text.label)), []):
        for identity in away.known(id)[:1]:
            is_its_file = _is_its_file(text, identity) and not _is_unpacked(text, id, away)
            if identity.length <= own.length or is_its_file or not _was_here(text, id, away):
                continue
            shared = identity.count_shared(own)
            if shared >= LEAST_COMMON_BYTES or (not own.is_weak and _has_its_head(text, id, away)):
                return Former(id, identity, is_copy=True)
            if shared:
                unsure = Former(id, identity)
    return unsure


def find_cut(text: TextFile, away: Away) -> Former | None:
    """The partition whose file was cut or rewritten, so that it has some of the lines that were read, and not all. A
    copy of the file may have the partition."""
    own = Identity.of_seen(text)
    for id in away.all_by_line.get(line_of(str(text.label)), []):
        for identity in away.known(id)[:1]:
            is_cut = _is_its_file(text, identity) if id not in away.held else _was_created_as(text, identity)
            if is_cut and identity.count_common(own) >= LEAST_COMMON_BYTES:
                return Former(id, identity)
    return None


def find_repeated(text: TextFile, away: Away) -> Identity | None:
    """That of a partition whose lines a file repeats, as far as it shows, which is read as a log of its own."""
    own = Identity.of_seen(text)
    for id in away.by_line.get(line_of(str(text.label)), []):
        for identity in away.known(id):
            is_same = identity.has_content_of(own) and (not own.is_weak or away.is_emptied(id, text))
            if is_same or (_is_its_file(text, identity) and identity.count_common(own) > own.WEAK_BYTES):
                return identity
            if identity.is_related_to(text.path) and identity.count_shared(own) >= LEAST_COMMON_BYTES:
                return identity
    return None


def cut_error(text: TextFile, former: Former) -> ExternalError:
    """The error for a file that has some of the lines that were read."""
    return ExternalError(
        "LOG_TRUNCATED",
        f"{text.path} was truncated or rewritten, but still starts with lines that were read",
        where=f"partition {former.id}, of which {former.identity.length} bytes were known",
        detail=f"It has {text.size} bytes. Which of its lines are new is not known.",
        hint="To read none of them, move the file away, out of its directory; to read all of them, rename it so that "
        "its name does not start as before. Or set on_rewrite='read' or 'skip' for the stream's files. Rotate by "
        "renaming, or truncate to nothing.",
    )


def _is_its_file(text: TextFile, identity: Identity) -> bool:
    """Whether a file is at the path of a partition, or was created as its file."""
    return identity.path == text.path or _was_created_as(text, identity)


def _was_created_as(text: TextFile, identity: Identity) -> bool:
    return text.birth > 0 and text.birth == identity.birth


def _was_here(text: TextFile, id: str, away: Away) -> bool:
    """Whether the file of a partition is one that a copy was just made of: it was emptied, or was there when files were
    listed before; or it is an archive that is unpacked to this file."""
    if _is_unpacked(text, id, away):
        return True
    if away.known(id)[0].path.endswith(".gz"):
        return False
    if away.is_emptied(id, text):
        return True
    return id in away.recent and away.known(id)[0].is_related_to(text.path)


def _is_unpacked(text: TextFile, id: str, away: Away) -> bool:
    """Whether a file is what unpacking the archive of a partition makes."""
    return text.path + ".gz" in (away.known(id)[0].path, away.homes.get(id))


def _has_its_head(text: TextFile, id: str, away: Away) -> bool:
    """Whether all lines of a file are the first ones that were seen of a partition; a long file does not show."""
    seen, head = away.seen.get(id), text.head[: text.latest - text.start]
    return (
        seen is not None
        and len(head) == text.latest - text.start
        and seen.start == text.start
        and seen.head.startswith(head)
    )
