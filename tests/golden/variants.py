"""Cases whose state comes of more than an engine that runs some epochs: killed, upgraded, with dropped state, on Spark,
over what agents reduce, over text files."""

from __future__ import annotations

import gzip
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.golden import archive, lives
from tests.golden.case import Case, given_of
from tests.golden.given import Given, Lines

#: the stream that agents reduce
REDUCED = "events"


@dataclass(frozen=True)
class Killed(Case):
    """A case whose engine is killed at a step of an epoch, in a process of its own."""

    step: str = "recorded"

    def first(self, given: Given, folder: Path) -> None:
        killed = subprocess.run(
            [sys.executable, "-m", "tests.golden.dying", self.name, str(folder)],
            env=os.environ
            | {"PENSTOCK_KILL_AT": f"{self.step}:{self.cut}", "PYTHONPATH": os.pathsep.join(sys.path)},
            start_new_session=True,
            timeout=120,
            check=False,
        )
        assert killed.returncode == -signal.SIGKILL, f"{self.name} did not die: {killed.returncode}"

    def die(self, given: Given, folder: Path) -> None:
        """Live until killed; in the process that is to be."""
        lives.live(self.build(given), folder / "state", **self._cutting)


@dataclass(frozen=True)
class Upgraded(Case):
    """A case that began in format 1, was upgraded and has continued under the format of today. `of`: the case whose
    archive of format 1 it continues, at `began`."""

    of: str = ""
    began: int = 5

    def first(self, given: Given, folder: Path) -> None:
        lines = archive.read_lines(folder)
        archive.unpack(archive.path_of("format-1", self.of), folder)
        assert archive.read_lines(folder) == lines, f"{self.of} of format 1 has other lines"
        done = lives.live(
            self.build(given),
            folder / "state",
            epochs=self.cut - self.began,
            commands=self.commands,
            **self._cutting,
        )
        assert done == self.cut - self.began


@dataclass(frozen=True)
class WithDroppedState(Case):
    """A case whose app was another one until the cut. The engine that started with the present app dropped the state
    that this has no use for, and was killed before its first epoch: only penstock.json says what is dropped."""

    former: Callable[[Given], lives.Query] | None = None
    #: operators that start empty
    empty: frozenset[str] = frozenset()

    def first(self, given: Given, folder: Path) -> None:
        self._former(given, folder, self._cutting)
        lives.live(self.build(given), folder / "state", epochs=0, drop_state=True)

    def whole(self, given: Given, folder: Path) -> None:
        self._former(given, folder, self._cutting)
        lives.live(self.build(given), folder / "state", drop_state=True)

    def _former(self, given: Given, folder: Path, cutting: Mapping[str, Any]) -> None:
        assert self.former is not None
        lives.live(self.former(given), folder / "state", epochs=self.cut, **cutting)

    def operators(self, given: Given, folder: Path) -> dict[str, str]:
        found = super().operators(given, folder)
        assert self.empty <= found.keys()
        return {id_: kind for id_, kind in found.items() if id_ not in self.empty}


@dataclass(frozen=True)
class Reduced(Case):
    """A case over lines that agents have reduced. No public name makes such an app: `--reduced` does."""

    def lines(self, made: Mapping[str, Lines]) -> Mapping[str, Lines]:
        app = self.build(Given(made, Path("out")))
        parts = made[REDUCED].items()
        return {REDUCED: {part: lives.reduced_lines(app, REDUCED, lines) for part, lines in parts}}

    def first(self, given: Given, folder: Path) -> None:
        self._over(given).first(given, folder)

    def whole(self, given: Given, folder: Path) -> None:
        self._over(given).whole(given, folder)

    def rest(self, given: Given, folder: Path) -> None:
        self._over(given).rest(given, folder)

    def operators(self, given: Given, folder: Path) -> dict[str, str]:
        return self._over(given).operators(given, folder)

    def planned(self, given: Given, folder: Path) -> list[object]:
        return self._over(given).planned(given, folder)

    def _over(self, given: Given) -> Case:
        """The case over partial answers."""
        return Case(
            self.name, lambda given: lives.reduced(self.build(given), REDUCED), self.cut, self.epoch_units
        )


@dataclass(frozen=True)
class OnSpark(Case):
    """A case whose state directory a real Spark wrote; in format 1 also the offsets and commits of its streaming query,
    which engines no longer write."""

    def first(self, given: Given, folder: Path) -> None:
        lives.live_on_spark(
            self.build(given), folder / "state", epochs=self.cut, epoch_units=self.epoch_units
        )


@dataclass(frozen=True)
class Files(Case):
    """A case over text files, whose partitions are known by inode and first line.

    A backup brought to another place has files of other inodes, so what is unpacked would be read as new files. The
    archive says which file was which partition; `restore` writes the files again and puts their inodes into the epoch
    records and manifests (and a manifest's checksum), as a tool that restores backups would. Nothing else of the state
    directory names a place: the glob is relative, and a case works in its folder.

    `rotate` instead packs the files, as a rotation does: an archive takes the identity of the text file it was made of,
    so nothing is rewritten.
    """

    def first(self, given: Given, folder: Path) -> None:
        self._write(given, folder)
        super().first(given, folder)

    def whole(self, given: Given, folder: Path) -> None:
        self._write(given, folder)
        super().whole(given, folder)

    def facts(self, folder: Path) -> dict[str, Any]:
        ids = archive.offsets(folder / "state", archive.newest_record(folder / "state"))["events"]
        inodes = {f"{path.stat().st_ino:x}": path.name for path in (folder / "logs").iterdir()}
        return {"files": {inodes[id.split("-")[0]]: id for id in ids}, "offsets": self._by_part(folder, ids)}

    def _by_part(self, folder: Path, ids: Mapping[str, int]) -> dict[str, dict[str, int]]:
        """How many lines of every file have been read."""
        inodes = {f"{path.stat().st_ino:x}": path for path in (folder / "logs").iterdir()}
        read = {inodes[id.split("-")[0]]: offset for id, offset in ids.items()}
        return {"events": {path.stem: path.read_bytes()[:at].count(b"\n") for path, at in read.items()}}

    def restore(self, folder: Path) -> None:
        shutil.rmtree(folder / "logs")
        self._write(given_of(folder), folder)
        for name, before in archive.about(folder)["files"].items():
            inode = (folder / "logs" / name).stat().st_ino
            archive.rename(folder / "state", before, f"{inode:x}-{before.split('-')[1]}")

    def rotate(self, folder: Path) -> None:
        """Bring the files back packed."""
        for path in sorted((folder / "logs").iterdir()):
            path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))
            path.unlink()

    def _write(self, given: Given, folder: Path) -> None:
        (folder / "logs").mkdir(exist_ok=True)
        for part, lines in given.lines["events"].items():
            (folder / "logs" / f"{part}.log").write_text("".join(f"{line}\n" for line in lines))
