"""Whatever happens to a directory of logs, every whole line is read once and in order."""

from __future__ import annotations

import gzip
import pickle
import tempfile
from collections import defaultdict
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.logs import FileLog, Span
from tests.disk import DISK

WRITERS = 3
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, WRITERS - 1), st.integers(1, 400)),
        st.tuples(st.just("rotate"), st.integers(0, WRITERS - 1), st.booleans()),
        st.tuples(st.just("compress"), st.integers(0, WRITERS - 1), st.booleans()),
        st.tuples(st.just("take"), st.integers(1, 300), st.booleans()),
        st.tuples(st.just("restart"), st.just(0), st.booleans()),
    ),
    max_size=40,
)


class LogDirectory:
    """Writers that append to a file each and rotate it, and an engine that reads spans by `cut`."""

    def __init__(self, directory: Path, glob: str) -> None:
        self.directory = directory
        self.glob = glob
        self.log = self.fresh_log()
        self.offsets: dict[str, int] = {}
        self.read: dict[str, bytes] = defaultdict(bytes)
        self.written: dict[tuple[int, int], bytes] = defaultdict(bytes)
        self.generation = [0] * WRITERS
        self.planned: list[Span] = []

    def write(self, writer: int, size: int) -> None:
        """Append the next part of an endless text of numbered lines, cut anywhere."""
        key = (writer, self.generation[writer])
        done = len(self.written[key])
        text = b"".join(b"%d.%d %s %d\n" % (*key, b"y" * (i * 37 % 100), i) for i in range(200))
        part = text[done : done + size]
        self.written[key] += part
        with open(self.directory / f"w{writer}.log", "ab") as file:
            file.write(part)

    def rotate(self, writer: int, within_glob: bool) -> None:
        current = self.directory / f"w{writer}.log"
        if current.exists():
            suffix = "log" if within_glob else "old"
            current.rename(self.directory / f"w{writer}-{self.generation[writer]}.{suffix}")
            self.generation[writer] += 1

    def compress(self, writer: int) -> None:
        """Put an archive in the place of the file rotated last; its half last line becomes a whole one."""
        key = (writer, self.generation[writer] - 1)
        for path in self.directory.glob(f"w{writer}-{key[1]}.*"):
            if path.suffix != ".gz" and b"\n" in self.written[key]:
                path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
                path.unlink()
                self.written[key] += b"" if self.written[key].endswith(b"\n") else b"\n"

    def fresh_log(self) -> FileLog:
        return FileLog(str(self.directory / self.glob), gz_settle_seconds=0)

    def plan(self, units: int) -> None:
        for partition in self.log.partitions(self.offsets):
            start = self.offsets.setdefault(partition.id, partition.earliest)
            if start < partition.latest:
                end = self.log.cut(partition.id, start, units)
                assert start < end <= partition.latest
                self.planned.append(Span(partition.id, start, end))
                self.offsets[partition.id] = end

    def run(self) -> None:
        for span in self.planned:
            for chunk in self.log.read(span, chunk_bytes=64):
                assert chunk.data.endswith(b"\n")
                self.read[span.partition] += chunk.data
        self.planned.clear()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS, glob=st.sampled_from(["*.log", "w?.log", "*"]))
def test_every_whole_line_is_read_once_and_in_order(
    steps: list[tuple[str, int, int | bool]], glob: str
) -> None:
    with tempfile.TemporaryDirectory(dir=DISK) as directory:
        directory_ = LogDirectory(Path(directory), glob)
        for step, number, value in steps:
            if step == "write":
                directory_.write(number, int(value))
            elif step == "rotate":
                if glob != "*":
                    directory_.plan(1)  # a file must have been seen once to be followed out of the glob
                directory_.rotate(number, bool(value))
            elif step == "compress":
                if glob == "*":
                    directory_.compress(number)
            elif step == "take":
                directory_.plan(number)
                if value:
                    directory_.run()
            else:
                directory_.log = (
                    pickle.loads(pickle.dumps(directory_.log)) if value else directory_.fresh_log()
                )
        for _ in range(8):
            directory_.plan(1 << 20)
            directory_.run()
        whole = [text[: text.rfind(b"\n") + 1] for text in directory_.written.values()]
        assert sorted(directory_.read.values()) == sorted(text for text in whole if text)
