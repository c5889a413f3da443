"""Records up to where each reader of a segment log no longer needs it: engines write a small file each, the gateway
reads them.

Receives the offsets that a reader's checkpoints have passed; returns the least of all readers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from penstock.ingest.private_directories import make_private_directory
from penstock.state.durable import write_whole

#: a reader that has been silent for longer does not count
SILENT_SECONDS = 7 * 86_400.0


def write_bookmark(stream: Path, reader: str, offsets: Mapping[str, int]) -> None:
    """Record that a reader needs nothing before these offsets."""
    make_private_directory(stream / "readers")
    write_whole(stream / "readers" / f"{reader}.json", json.dumps(dict(offsets)).encode())


def remove_bookmark(stream: Path, reader: str) -> None:
    """Remove a reader, so that the gateway retains nothing for it."""
    (stream / "readers" / f"{reader}.json").unlink(missing_ok=True)


def read_floors(stream: Path, now: float = 0.0) -> dict[str, int] | None:
    """Read, per partition, the offset before which no reader needs anything; None if no reader is known.

    A partition that some reader has not started is needed from its start, and is left out. A reader that has been
    silent for a week does not count.
    """
    found = []
    for path in (stream / "readers").glob("[!.]*.json"):
        try:
            if now - path.stat().st_mtime < SILENT_SECONDS:
                found.append(json.loads(path.read_bytes()))
        except FileNotFoundError:  # forgotten in the meantime
            continue
        except OSError:  # of another user: it may need everything
            found.append({})
    if not found:
        return None
    common = set.intersection(*(set(one) for one in found))
    return {partition: min(one[partition] for one in found) for partition in common}
