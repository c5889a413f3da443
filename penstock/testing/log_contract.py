"""The tests that every log must pass: the logs of Penstock and those that users write.

To use them, derive a test class with a fixture `log`, a log of at least a few hundred records::

    class TestMyLog(LogContract):
        @pytest.fixture
        def log(self): ...
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from hashlib import sha256

from penstock.logs.contract import Chunk, Log, Partition, Span

_CHILD = """
import pickle, sys
from hashlib import sha256
log, spans = pickle.load(sys.stdin.buffer)
for span in spans:
    print(sha256(b"".join(chunk.data for chunk in log.read(span))).hexdigest())
"""


def read_all(log: Log, span: Span, chunk_bytes: int = 16 << 20) -> bytes:
    """The bytes of a span."""
    return b"".join(chunk.data for chunk in log.read(span, chunk_bytes))


def whole(partition: Partition) -> Span:
    """The span of everything that a partition has now."""
    return Span(partition.id, partition.earliest, partition.latest)


def cuts(log: Log, partition: Partition, units: int) -> list[Span]:
    """Cut a partition into spans of about `units`, as an engine does."""
    spans: list[Span] = []
    start = partition.earliest
    while start < partition.latest:
        end = log.cut(partition.id, start, units)
        assert start < end <= partition.latest, f"cut from {start} by {units} gave {end}"
        spans.append(Span(partition.id, start, end))
        start = end
    return spans


def check_chunks(log: Log, span: Span, chunk_bytes: int) -> None:
    """Check that chunks follow each other without a gap, have whole records and are not much larger than requested."""
    at, longest = span.start, 0
    for chunk in log.read(span, chunk_bytes):
        assert chunk.partition == span.partition
        assert chunk.start == at or (not log.dense and chunk.start > at), f"{chunk.start} after {at}"
        assert chunk.data.endswith(b"\n") or (chunk.damage and not chunk.data)
        longest = max([longest, *map(len, chunk.data.split(b"\n"))])
        assert len(chunk.data) <= chunk_bytes + chunk_bytes // 2 + 2 * longest + 2
        at = chunk.start + _units(log, chunk)
    assert at >= span.end or not log.dense


class LogContract:
    """The tests. A log may be live: they read only what `partitions` has reported."""

    def test_there_is_something_to_read(self, log: Log) -> None:
        partitions = log.partitions({})
        assert partitions
        assert all(partition.earliest < partition.latest for partition in partitions)
        assert len({partition.id for partition in partitions}) == len(partitions)

    def test_the_same_span_twice_gives_the_same_bytes(self, log: Log) -> None:
        for partition in log.partitions({}):
            assert read_all(log, whole(partition)) == read_all(log, whole(partition))

    def test_a_span_is_the_sum_of_its_parts_wherever_it_is_cut(self, log: Log) -> None:
        for partition in log.partitions({}):
            data = read_all(log, whole(partition))
            extent = partition.latest - partition.earliest
            for units in {max(extent // 50, 1), extent // 7 + 1, extent, extent * 10}:
                spans = cuts(log, partition, units)
                assert b"".join(read_all(log, span) for span in spans) == data

    def test_cuts_are_ends_of_records(self, log: Log) -> None:
        for partition in log.partitions({}):
            for span in cuts(log, partition, max((partition.latest - partition.earliest) // 20, 1)):
                chunks = list(log.read(span))
                assert chunks[0].start == span.start
                assert all(chunk.data.endswith(b"\n") or chunk.damage for chunk in chunks)

    def test_the_smallest_cut_still_goes_forward(self, log: Log) -> None:
        for partition in log.partitions({}):
            end = log.cut(partition.id, partition.earliest, 1)
            assert partition.earliest < end <= partition.latest
            assert read_all(log, Span(partition.id, partition.earliest, end)).endswith(b"\n")

    def test_nothing_is_cut_from_the_end(self, log: Log) -> None:
        for partition in log.partitions({}):
            assert log.cut(partition.id, partition.latest, 1000) >= partition.latest

    def test_latest_never_goes_back(self, log: Log) -> None:
        before: dict[str, int] = {}
        for _ in range(5):
            offsets = {id: latest // 2 for id, latest in before.items()}
            now = {partition.id: partition.latest for partition in log.partitions(offsets)}
            assert all(now[id] >= latest for id, latest in before.items())
            before = now

    def test_chunks_are_whole_records_of_any_size_requested(self, log: Log) -> None:
        for partition in log.partitions({}):
            for chunk_bytes in (1, 300, 5_000, 16 << 20):
                spans = cuts(log, partition, max((partition.latest - partition.earliest) // 3, 1))
                check_chunks(log, spans[0] if chunk_bytes < 5_000 else whole(partition), chunk_bytes)

    def test_an_empty_span_has_no_records(self, log: Log) -> None:
        for partition in log.partitions({}):
            assert read_all(log, Span(partition.id, partition.earliest, partition.earliest)) == b""

    def test_a_copy_in_another_process_reads_the_same(self, log: Log) -> None:
        spans = [whole(partition) for partition in log.partitions({})]
        child = subprocess.run(
            [sys.executable, "-c", _CHILD],
            input=pickle.dumps((log, spans)),
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [os.getcwd(), *sys.path]))},
            stdout=subprocess.PIPE,
            check=True,
            timeout=60,
        )
        here = [sha256(read_all(log, span)).hexdigest() for span in spans]
        assert child.stdout.decode().split() == here

    def test_it_describes_itself(self, log: Log) -> None:
        assert log.describe()
        assert "\n" not in log.describe()


def _units(log: Log, chunk: Chunk) -> int:
    if chunk.damage:
        return 1
    return chunk.data.count(b"\n") if log.unit == "records" else len(chunk.data)
