"""Upgrade a state directory of format 1 when an engine claims it.

    DIR/backup-format-1/penstock.json, manifests/    what the engine found: the way back to the older Penstock

Only penstock.json changes. Runs, manifests and epoch records stay as they are: a manifest names its own format, and
its ids are translated when it is read.

Guarantees: the directory is of one format or the other at any moment, since the last step replaces penstock.json.
Killed before that, the upgrade starts again and replaces the backup. A fenced engine changes nothing.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from penstock.state.durable import make_private
from penstock.state.generation import FencedDirectory
from penstock.state.shared_records import list_epochs
from penstock.state.state_facts import FORMAT, StateFacts

BACKUP = "backup-format-1"


def upgrade(
    path: Path, fenced_directory: FencedDirectory, facts: StateFacts, query: str, summary: str
) -> StateFacts:
    """Back up the newest manifest and penstock.json, then write the new format and fingerprint to penstock.json."""
    backup = path / BACKUP
    make_private(backup / "manifests")
    newest = [f"{epoch:012d}.json" for epoch in list_epochs(path / "manifests")[-1:]]
    for former in (backup / "manifests").glob("*.json"):
        if former.name not in newest:
            former.unlink()
    for name in newest:
        fenced_directory.write_whole(backup / "manifests" / name, (path / "manifests" / name).read_bytes())
    fenced_directory.write_whole(backup / "penstock.json", (path / "penstock.json").read_bytes())
    upgraded = replace(facts, format=FORMAT, query=query, summary=summary)
    fenced_directory.write_whole(path / "penstock.json", json.dumps(upgraded.to_json(), indent=1).encode())
    return upgraded
