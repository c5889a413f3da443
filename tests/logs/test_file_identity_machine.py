"""Whatever happens to a directory of logs between, during and after epochs, every line is read once, or an error names
the file.

The oracle is the multiset of lines ever written. All files start with the same line, which is not counted: where no
more than it was read of a file, another that starts with it cannot be distinguished from its continuation.
"""

from __future__ import annotations

import gzip
import os
import shutil
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.errors import ExternalError
from penstock.logs.file_identity import Identity
from penstock.logs.file_matching import LEAST_COMMON_BYTES
from tests.disk import DISK
from tests.logs.file_reader import FileReader

HEADER = b"time,user,page and so on\n"
NAMES = ("a.log", "b.log")


class Directory(RuleBasedStateMachine):
    """Writers of two names, and a reader of all or of the current ones."""

    @initialize(pattern=st.sampled_from(["*.log*", "?.log"]), units=st.sampled_from([700, 5000, 1 << 30]))
    def start(self, pattern: str, units: int) -> None:
        self.directory = Path(tempfile.mkdtemp(dir=DISK))
        self.is_all = pattern == "*.log*"
        self.reader = FileReader(self.directory / pattern)
        self.units = units
        self.written: Counter[bytes] = Counter()
        self.number = self.rotations = 0
        #: the inodes of the files of which a copy was made that they may have outgrown
        self.copied: set[int] = set()

    def teardown(self) -> None:
        if hasattr(self, "directory"):
            try:
                self.reader.settle()
                self.check()
            finally:
                shutil.rmtree(self.directory)

    def check(self) -> None:
        read = Counter({line: n for line, n in self.reader.lines.items() if line + b"\n" != HEADER})
        assert not self.written - read, "lines are lost"
        assert not read - self.written, "lines are repeated"

    @invariant()
    def nothing_is_repeated(self) -> None:
        if hasattr(self, "reader"):
            read = Counter({line: n for line, n in self.reader.lines.items() if line + b"\n" != HEADER})
            assert not read - self.written, "lines are repeated"

    def make_lines(self, count: int) -> bytes:
        numbers = range(self.number, self.number + count)
        self.number += count
        made = [b"%06d,%s" % (n, b"x" * (n * 7 % 80)) for n in numbers]
        self.written.update(made)
        return b"".join(line + b"\n" for line in made)

    def rotated_name(self, name: str) -> Path:
        self.rotations += 1
        return self.directory / f"{name}.{self.rotations}"

    @rule(name=st.sampled_from(NAMES), count=st.integers(1, 60))
    def append(self, name: str, count: int) -> None:
        path = self.directory / name
        start = b"" if path.exists() and path.stat().st_size else HEADER + self.make_lines(12)
        with open(path, "ab") as file:
            file.write(start + self.make_lines(count))

    @rule(name=st.sampled_from(NAMES))
    def rotate_by_renaming(self, name: str) -> None:
        path = self.directory / name
        if path.exists():
            self.see_all()
            path.rename(self.rotated_name(name))

    @rule(name=st.sampled_from(NAMES), keeps_writing=st.booleans())
    def copy_and_truncate(self, name: str, keeps_writing: bool) -> None:
        path = self.directory / name
        if path.exists() and path.stat().st_size:
            self.see_all()
            self.rotated_name(name).write_bytes(path.read_bytes())
            os.truncate(path, 0)
            if keeps_writing:
                self.append(name, 30)

    @rule(name=st.sampled_from(NAMES), is_related=st.booleans())
    def copy_first(self, name: str, is_related: bool) -> None:
        """The first step of copytruncate, long before the second. A small copy under an unrelated name is a log."""
        path = self.directory / name
        if path.exists() and path.stat().st_size > (0 if is_related else LEAST_COMMON_BYTES):
            self.see_all()
            copy = self.rotated_name(name if is_related else "keep.log")
            copy.write_bytes(path.read_bytes())
            self.copied.add(path.stat().st_ino)
            if (
                not is_related
            ):  # under such a name it must be seen beside its original, or have all that was read
                self.reader.settle()

    @rule(name=st.sampled_from(NAMES), keeps_writing=st.booleans())
    def truncate_after_all(self, name: str, keeps_writing: bool) -> None:
        """The second step, after lines that are in no copy were written and read."""
        path = self.directory / name
        if path.exists() and path.stat().st_ino in self.copied:
            self.copied.discard(path.stat().st_ino)
            self.reader.settle()
            os.truncate(path, 0)
            if keeps_writing:
                self.append(name, 30)

    @rule(name=st.sampled_from(NAMES), keeps_writing=st.booleans())
    def copy_to_an_unrelated_name_and_empty(self, name: str, keeps_writing: bool) -> None:
        """Beside another copy, the one under the unrelated name would be a log of its own, if it is small; and so it
        would be if the file that was emptied were gone."""
        path = self.directory / name
        if (
            path.exists()
            and path.stat().st_size > Identity.WEAK_BYTES
            and path.stat().st_ino not in self.copied
        ):
            self.reader.settle()
            self.rotated_name("keep.log").write_bytes(path.read_bytes())
            os.truncate(path, 0)
            if keeps_writing:
                self.append(name, 30)
            self.reader.step(self.units)

    @rule(name=st.sampled_from(NAMES))
    def cut(self, name: str) -> None:
        """Truncate a file to a part of what was read: an error names it, and its user removes it. If there is a copy,
        it is read again, with a warning."""
        path = self.directory / name
        others = [p for p in self.directory.glob("*.log*") if p != path]
        if not path.exists() or any(p.suffix == ".gz" for p in others):
            return
        head = path.read_bytes()[:LEAST_COMMON_BYTES]
        if any(p.read_bytes().startswith(head) for p in others):
            return
        if path.stat().st_size > LEAST_COMMON_BYTES + 500:
            self.reader.settle()
            os.truncate(path, LEAST_COMMON_BYTES + 400)
            with pytest.raises(ExternalError) as cut:
                self.reader.settle()
            assert cut.value.condition == "LOG_TRUNCATED"
            assert str(path) in str(cut.value)
            path.unlink()
            self.reader.restart()

    @rule(data=st.data(), part=st.floats(0.2, 0.95))
    def compress_and_damage(self, data: st.DataObject, part: float) -> None:
        """What is left of a small file is recognised under a related name only."""
        rotated = sorted(p for p in self.directory.glob("?.log.*") if p.suffix != ".gz")
        if rotated:
            self.reader.settle()
            path = data.draw(st.sampled_from(rotated))
            packed = gzip.compress(path.read_bytes())
            path.with_name(path.name + ".gz").write_bytes(packed[: int(len(packed) * part)])
            path.unlink()

    @rule(data=st.data(), part=st.floats(0.1, 0.9))
    def unpack_slowly(self, data: st.DataObject, part: float) -> None:
        """As gunzip does."""
        packed = sorted(self.directory.glob("*.log.*.gz"))
        if packed:
            self.reader.settle()
            path = data.draw(st.sampled_from(packed))
            try:
                text = gzip.decompress(path.read_bytes())
            except EOFError:
                return
            unpacked = path.with_suffix("")
            if len(text) * part >= LEAST_COMMON_BYTES:  # fewer bytes are written at once
                unpacked.write_bytes(text[: int(len(text) * part)])
                self.reader.step(self.units)
            unpacked.write_bytes(text)
            path.unlink()

    @rule(data=st.data(), is_hard=st.booleans(), is_removed=st.booleans())
    def link(self, data: st.DataObject, is_hard: bool, is_removed: bool) -> None:
        """A file has two names for a while. The link goes first, or stays as the file's only name for an epoch."""
        link = self.directory / "current.log"
        files = [self.directory / name for name in NAMES if (self.directory / name).exists()]
        if files:
            path = data.draw(st.sampled_from(files))
            (os.link if is_hard else os.symlink)(path, link)
            self.reader.step(self.units)
            with open(link, "ab") as file:
                file.write(self.make_lines(12))
            self.reader.settle()
            if is_removed and is_hard:
                path.unlink()
                self.reader.step(self.units)
                link.rename(path)
            else:
                link.unlink()

    @rule(name=st.sampled_from(NAMES))
    def replace_by_a_longer_copy(self, name: str) -> None:
        path = self.directory / name
        if path.exists() and path.stat().st_size:
            self.see_all()
            temporary = self.directory / f".{name}.tmp"
            temporary.write_bytes(path.read_bytes() + self.make_lines(5))
            temporary.rename(path)

    @rule(data=st.data())
    def compress(self, data: st.DataObject) -> None:
        rotated = sorted(p for p in self.directory.glob("*.log.*") if p.suffix != ".gz")
        if rotated:
            path = data.draw(st.sampled_from(rotated))
            path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()

    @rule(data=st.data())
    def rename_rotated(self, data: st.DataObject) -> None:
        rotated = sorted(self.directory.glob("*.log.*"))
        if rotated:
            path = data.draw(st.sampled_from(rotated))
            name = path.name.split(".log")[0] + ".log"
            path.rename(str(self.rotated_name(name)) + (".gz" if path.suffix == ".gz" else ""))

    @rule(data=st.data(), recreates=st.booleans())
    def delete_what_was_read(self, data: st.DataObject, recreates: bool) -> None:
        files = sorted(self.directory.glob("*.log*"))
        if files:
            self.reader.settle()
            path = data.draw(st.sampled_from(files))
            path.unlink()
            if recreates and path.name in NAMES:
                self.append(path.name, 20)

    def see_all(self) -> None:
        """A file that was never listed cannot be followed out of the glob."""
        if not self.is_all:
            self.reader.execute()
            self.reader.admit(self.units)

    @rule()
    def record(self) -> None:
        self.reader.admit(self.units)

    @rule()
    def execute(self) -> None:
        self.reader.execute()

    @rule()
    def run_an_epoch(self) -> None:
        self.reader.step(self.units)

    @rule()
    def restart(self) -> None:
        """Kill the process, with or without an epoch that is recorded and not executed."""
        self.reader.restart()


Directory.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.mark.slow
class TestDirectory(Directory.TestCase):
    """The machine, run by pytest."""
