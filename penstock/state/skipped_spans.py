"""Record that an epoch executes without some spans, because somebody gave up what the log no longer has.

    DIR/epochs/000000000007.skipped    beside the record of epoch 7, which stays as it is: a JSON list of
                                       [stream, partition]

Guarantees: what is recorded holds for every repetition of the epoch.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

from penstock.errors import InternalError
from penstock.state.durable import write_whole

#: streams and partitions
SkippedPartitions = frozenset[tuple[str, str]]


def skips_path(epochs: Path, epoch: int) -> Path:
    """Where it is recorded, in a directory of epoch records."""
    return epochs / f"{epoch:012d}.skipped"


def read_skips(epochs: Path, epoch: int) -> SkippedPartitions:
    """The partitions whose spans an epoch does without."""
    path = skips_path(epochs, epoch)
    try:
        return frozenset((stream, partition) for stream, partition in json.loads(path.read_bytes()))
    except FileNotFoundError:
        return frozenset()
    except (OSError, ValueError, TypeError) as failure:
        raise InternalError(
            "STATE_DAMAGED",
            f"what epoch {epoch} skips cannot be read",
            detail=f"{failure!r} ({path})",
            hint="Remove the file, then decide again with `penstock recover skip-span`.",
        ) from failure


def add_skips(epochs: Path, epoch: int, skips: Collection[tuple[str, str]]) -> None:
    """Record that an epoch does without the spans of more partitions."""
    known = read_skips(epochs, epoch) | set(skips)
    write_whole(skips_path(epochs, epoch), json.dumps(sorted(known), separators=(",", ":")).encode())
