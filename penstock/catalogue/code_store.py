"""Store the source of jobs under the state directory, beside the command log, so that every engine finds it.

    DIR/code/DIGEST/FILE             the text of each file
    DIR/code/DIGEST/manifest.json    where it was read, and a checksum of each file; written last

Guarantees: what `put` has returned from is on disk, whole; what `get` returns is what was put, and nobody but the user
of this process and root could have written it. Written through the `FencedDirectory` of an engine that decides, nothing
is put in place once another has taken over.
Does not guarantee: anything about code that no command names; it is removed when commands are folded.
On failure: `InternalError` STATE_DAMAGED where a byte is not as it was, or something is missing; `UserError`
CODE_NOT_TRUSTED.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Collection
from pathlib import Path

from penstock.catalogue.code import CodeBundle, check_trusted
from penstock.errors import InternalError
from penstock.state.durable import make_private, write_whole
from penstock.state.generation import FencedDirectory
from penstock.state.run_file import unwritable_error

_FORMAT = 1
_MANIFEST = "manifest.json"
#: code that was put less than this before a fold is left: the command that brings it may not be written yet
GRACE_SECONDS = 3600.0


class CodeStore:
    """The source of the jobs of one state directory, by digest."""

    def __init__(self, state: Path) -> None:
        self._folder = state / "code"

    def place(self, digest: str) -> Path:
        """Where code lies, or would."""
        return self._folder / digest

    def has(self, digest: str) -> bool:
        """Whether code is stored."""
        return (self.place(digest) / _MANIFEST).exists()

    def put(self, bundle: CodeBundle, fenced_directory: FencedDirectory | None = None) -> None:
        """Store code, unless it is there."""
        place = self.place(bundle.digest)
        manifest = {
            "format": _FORMAT,
            "path": bundle.path,
            "files": {name: _checksum(text) for name, text in sorted(bundle.files.items())},
        }
        try:
            if (place / _MANIFEST).exists():
                os.utime(place / _MANIFEST)  # renew it, in case commands are folded at this moment
                return
            make_private(self._folder)  # nobody else needs what is in it
            for name, text in bundle.files.items():
                _write(place / name, text, fenced_directory)
            _write(place / _MANIFEST, json.dumps(manifest), fenced_directory)
        except OSError as failure:
            raise unwritable_error(place, failure) from failure

    def get(self, digest: str) -> CodeBundle:
        """The code of a digest."""
        place = self.place(digest)
        try:
            check_trusted(str(self._folder), self._folder.stat())
            manifest = json.loads(_text(place / _MANIFEST))
            if manifest["format"] != _FORMAT:
                raise ValueError(f"its format is {manifest['format']}, this Penstock knows {_FORMAT}")
            files = {name: _text(place / name) for name in manifest["files"]}
            bundle = CodeBundle(manifest["path"], files)
            changed = [name for name, text in files.items() if _checksum(text) != manifest["files"][name]]
            if changed or bundle.digest != digest:
                raise ValueError(f"the checksum of {changed[0] if changed else 'all of it'} does not match")
        except (OSError, ValueError, KeyError, TypeError) as failure:
            raise InternalError(
                "STATE_DAMAGED",
                f"the code {digest} of a job cannot be read",
                detail=f"{failure} ({place})",
                hint="Bring it back from a copy of the state, or alter or drop the job.",
            ) from failure
        return bundle

    def keep_only(self, digests: Collection[str], grace_seconds: float = GRACE_SECONDS) -> list[str]:
        """Remove all other code, unless it was put recently; returns what was removed."""
        removed = []
        names = os.listdir(self._folder) if self._folder.exists() else []
        for name in names:
            if name[0] == "." or name in digests:
                continue
            if not self._is_new(self._folder / name, grace_seconds):
                # first what makes it whole: a kill in between leaves what the next `put` writes again
                (self._folder / name / _MANIFEST).unlink(missing_ok=True)
                shutil.rmtree(self._folder / name, ignore_errors=True)
                removed.append(name)
        return removed

    def _is_new(self, place: Path, seconds: float) -> bool:
        """Whether code was put less than this ago, by the clock of its file system."""
        clock = self._folder / ".clock"
        with contextlib.suppress(FileNotFoundError):
            clock.touch()
            newest = max(path.stat().st_mtime for path in (place, place / _MANIFEST) if path.exists())
            return clock.stat().st_mtime - newest < seconds
        return False


def _write(path: Path, text: str, fenced_directory: FencedDirectory | None) -> None:
    content = text.encode("utf-8", "surrogatepass")
    if fenced_directory is None:
        write_whole(path, content)
    else:
        fenced_directory.write_whole(path, content)


def _text(path: Path) -> str:
    with open(path, "rb") as file:
        check_trusted(str(path), os.fstat(file.fileno()))
        return file.read().decode("utf-8", "surrogatepass")


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
