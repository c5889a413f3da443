"""How far each reader of a segment log needs it no more: a small file a reader, written by engines, read by the
gateway.

Receives the offsets that a reader's checkpoints have passed; hands the least of all readers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from penstock.state.durable import write_whole


def bookmark(stream: Path, reader: str, offsets: Mapping[str, int]) -> None:
    """Remember that a reader needs nothing before these offsets."""
    write_whole(stream / "readers" / f"{reader}.json", json.dumps(dict(offsets)).encode())


def forget(stream: Path, reader: str) -> None:
    """Nobody waits for this reader any longer."""
    (stream / "readers" / f"{reader}.json").unlink(missing_ok=True)


def floors(stream: Path) -> dict[str, int] | None:
    """Per partition, what no reader needs any more; None if no reader is known.

    A partition that some reader has not begun is needed from its start, and is left out.
    """
    try:
        found = [json.loads(path.read_bytes()) for path in (stream / "readers").glob("[!.]*.json")]
    except FileNotFoundError:
        return None
    if not found:
        return None
    common = set.intersection(*(set(one) for one in found))
    return {partition: min(one[partition] for one in found) for partition in common}
