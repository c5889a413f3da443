"""Where Spark keeps its offsets and commits: a directory per generation of the engine.

    DIR/spark/generation-000000000007/    offsets, commits, metadata of the engine of generation 7
    DIR/spark/                            the same, of an engine before there were generations

Receives a state directory that a generation has taken; hands Spark a directory that no other engine writes.

Guarantees: it begins with what the one before had when it was shut out: files by hard link, since Spark replaces and
never changes them. A commit is there only with its offsets. What a paused Spark writes later is not seen.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from penstock.state.durable import sync_directory

_GENERATION = "generation-"


def spark_log(state: Path) -> Path:
    """The directory that the last engine's Spark wrote, or will write."""
    found = _generations(state / "spark")
    return found[-1] if found else state / "spark"


def spark_log_of(state: Path, generation: int) -> Path:
    """The directory for the Spark of a generation that has just taken the state directory."""
    folder = state / "spark"
    own, before = folder / f"{_GENERATION}{generation:012d}", spark_log(state)
    if before == own:
        return own
    draft = folder / f".{own.name}"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    for part in ("commits", "offsets", ""):  # what is added meanwhile must be offsets without a commit
        _linked(before / part, draft / part)
    os.rename(draft, own)
    sync_directory(folder)
    for old in _generations(folder):
        if old != own:
            shutil.rmtree(old, ignore_errors=True)
    return own


def cut_after(log: Path, epoch: int) -> None:
    """Have Spark go on after an epoch, if it has committed later ones: their state was in memory, and is lost."""
    names = os.listdir(log / "commits") if (log / "commits").is_dir() else []
    if any(name.isdigit() and int(name) > epoch for name in names):
        for part in ("commits", "offsets"):
            remove_after(log / part, epoch)


def _generations(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"{_GENERATION}*"))


def _linked(source: Path, target: Path) -> None:
    """Give every finished file of a directory a second name in another."""
    if not source.is_dir():
        return
    target.mkdir(exist_ok=True)
    for name in os.listdir(source):
        if name[0] == "." or not (source / name).is_file():
            continue
        with contextlib.suppress(FileNotFoundError):  # old ones are removed by Spark
            try:
                os.link(source / name, target / name)
            except FileNotFoundError:
                raise
            except OSError:  # a file system without hard links
                shutil.copyfile(source / name, target / name)
    sync_directory(target)


def remove_after(directory: Path, epoch: int) -> None:
    """Remove the files of later epochs (`12`, `.12.crc`, `000000000012.json`), the newest first."""
    if not os.path.isdir(directory):
        return
    numbered = []
    for name in os.listdir(directory):
        digits = name.strip(".").split(".")[0]
        if digits.isdigit() and int(digits) > epoch:
            numbered.append((int(digits), name))
    for _, name in sorted(numbered, reverse=True):
        os.unlink(os.path.join(directory, name))
    sync_directory(directory)
