"""How far each reader of a segment log needs it no more: a small file a reader, written by engines, read by the
gateway.

Receives the offsets that a reader's checkpoints have passed; hands the least of all readers.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path

from penstock.state.durable import write_whole

#: a reader that has said nothing for so long is not waited for
SILENT_SECONDS = 7 * 86_400.0


def bookmark(stream: Path, reader: str, offsets: Mapping[str, int]) -> None:
    """Remember that a reader needs nothing before these offsets."""
    write_whole(stream / "readers" / f"{reader}.json", json.dumps(dict(offsets)).encode())


def forget(stream: Path, reader: str) -> None:
    """Nobody waits for this reader any longer."""
    (stream / "readers" / f"{reader}.json").unlink(missing_ok=True)


def floors(stream: Path, now: float = 0.0) -> dict[str, int] | None:
    """Per partition, what no reader needs any more; None if no reader is known.

    A partition that some reader has not begun is needed from its start, and is left out. A reader that has said nothing
    for a week does not count.
    """
    found = []
    for path in (stream / "readers").glob("[!.]*.json"):
        with contextlib.suppress(FileNotFoundError):  # forgotten in the meantime
            if now - path.stat().st_mtime < SILENT_SECONDS:
                found.append(json.loads(path.read_bytes()))
    if not found:
        return None
    common = set.intersection(*(set(one) for one in found))
    return {partition: min(one[partition] for one in found) for partition in common}
