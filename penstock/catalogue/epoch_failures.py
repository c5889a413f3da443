"""Record the jobs that failed in an epoch: it is executed without them, also when it is repeated.

DIR/failures/EPOCH.json   by number, and of each whether its state was dropped
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from penstock.errors import PenstockError
from penstock.state.generation import FencedDirectory


class Failures:
    """The failures under one state directory."""

    def __init__(self, directory: Path) -> None:
        self._folder = directory / "failures"

    def of(self, epoch: int) -> dict[int, bool]:
        """The jobs that failed in an epoch, by number, and whether their state was dropped."""
        path = self._path(epoch)
        facts: dict[str, Any] = json.loads(path.read_bytes()) if path.exists() else {}
        # a text alone: written when the state was always dropped
        return {int(number): isinstance(one, str) or one["lost"] for number, one in facts.items()}

    def put(
        self,
        fenced_directory: FencedDirectory,
        epoch: int,
        errors: Mapping[int, PenstockError],
        lost: Collection[int],
    ) -> None:
        """Record that jobs failed in an epoch, besides earlier ones; FENCED if another engine leads by now."""
        known = {number: {"lost": gone} for number, gone in self.of(epoch).items()}
        new = {number: {"error": error.text(), "lost": number in lost} for number, error in errors.items()}
        self._folder.mkdir(parents=True, exist_ok=True)
        fenced_directory.write_whole(self._path(epoch), json.dumps({**known, **new}).encode())

    def _path(self, epoch: int) -> Path:
        return self._folder / f"{epoch:012d}.json"
