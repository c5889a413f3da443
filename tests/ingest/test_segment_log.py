"""The segment log meets the log contract, drops lines that are sent again, and recovers from a crash."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ExternalError
from penstock.ingest.frames import GAP, JUMP, Frame
from penstock.ingest.partition import SequenceGap
from penstock.ingest.readers import remove_bookmark
from penstock.ingest.segment_log import SegmentLog
from penstock.ingest.segments import list_segments, read_index, segment_path
from penstock.ingest.store import Retention, Store
from penstock.logs.contract import Log, Span
from penstock.testing.log_contract import LogContract, read_all, whole


def lines(producer: str, first: int, count: int) -> bytes:
    return b"".join(
        b"%s line %d %s\n" % (producer.encode(), n, b"x" * (n % 40)) for n in range(first, first + count)
    )


def fill(store: Store, producers: int = 4, frames: int = 30, count: int = 20) -> dict[str, bytes]:
    """Append frames of several producers, one of each per group; return the lines of each producer."""
    sent = {f"agent-{n}": b"" for n in range(producers)}
    for number in range(frames):
        for producer, before in sent.items():
            data = lines(producer, number * count, count)
            store.take(Frame.of(producer, len(before), data), now=number * 1000)
            sent[producer] = before + data
        store.commit()
    return sent


def content_by_producer(directory: Path) -> dict[str, bytes]:
    """Return the lines of each producer, by the first word of a line, in the order of the log."""
    log = SegmentLog(directory)
    foundby_producer: dict[str, list[bytes]] = {}
    for partition in log.partitions({}):
        for line in read_all(log, whole(partition)).splitlines(keepends=True):
            foundby_producer.setdefault(line.split()[0].decode(), []).append(line)
    return {producer: b"".join(found) for producer, found in foundby_producer.items()}


class TestSegmentLog(LogContract):
    @pytest.fixture
    def log(self, tmp_path: Path) -> Log:
        store = Store(tmp_path / "s", partitions=2, segment_bytes=2_000)
        fill(store)
        store.close()
        assert len(list_segments(tmp_path / "s" / "p0")) > 2
        return SegmentLog(tmp_path / "s")


def test_every_producer_keeps_its_order_and_its_partition(tmp_path: Path) -> None:
    store = Store(tmp_path, partitions=3)
    sent = fill(store, producers=7)
    assert content_by_producer(tmp_path) == sent
    assert sorted(len(one.producers) for one in store.partitions) == [2, 2, 3]
    store.close()


def test_foundsent_again_are_dropped_also_after_a_restart(tmp_path: Path) -> None:
    data = lines("a", 0, 50)
    store = Store(tmp_path)
    store.append([Frame.of("a", 0, data)])
    assert not store.take(Frame.of("a", 0, data), 0)
    store.close()
    store = Store(tmp_path)
    assert store.position("a") == len(data)
    assert not store.take(Frame.of("a", 0, data), 0)
    more = lines("a", 50, 5)
    store.append([Frame.of("a", 0, data + more)])  # cut elsewhere this time
    store.close()
    assert content_by_producer(tmp_path) == {"a": data + more}


def test_a_gap_is_refused_unless_the_producer_declares_it(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.append([Frame.of("a", 0, b"a 1\n")])
    with pytest.raises(SequenceGap) as caught:
        store.take(Frame.of("a", 10, b"a 3\n"), 0)
    assert caught.value.expected == 4
    store.append([Frame.of("a", 10, b"a 3\n", flags=GAP)])
    assert store.given_up == 6
    store.append([Frame.of("a", 1 << 40, b"a 4\n", flags=JUMP)])
    assert store.given_up == 6
    store.close()
    assert content_by_producer(tmp_path) == {"a": b"a 1\na 3\na 4\n"}


@settings(max_examples=15, deadline=None)
@given(cut=st.integers(0, 4000), junk=st.binary(max_size=300))
def test_a_torn_tail_is_cut_and_can_be_sent_again(
    tmp_path_factory: pytest.TempPathFactory, cut: int, junk: bytes
) -> None:
    """After a power loss any part of the last, unacknowledged group may be on disk, and garbage after it."""
    directory = tmp_path_factory.mktemp("log")
    store = Store(directory, partitions=1)
    sent = fill(store, producers=2, frames=3)
    one = store.partitions[0]
    committed_bytes = one.committed.length
    more = lines("agent-0", 60, 40)
    store.take(Frame.of("agent-0", len(sent["agent-0"]), more), 9)
    one.write()
    store.close()
    path = segment_path(one.directory, 0)
    torn = path.read_bytes()[: committed_bytes + cut]
    path.write_bytes(torn + junk)
    store = Store(directory, partitions=1)
    if store.position("agent-0") == len(sent["agent-0"]):
        assert store.cut_bytes == len(torn) + len(junk) - committed_bytes
    else:
        assert store.position("agent-0") == len(sent["agent-0"]) + len(more), "the group is whole"
    store.append([Frame.of("agent-0", len(sent["agent-0"]), more)])
    store.close()
    assert content_by_producer(directory) == sent | {"agent-0": sent["agent-0"] + more}


def test_a_tail_is_also_cut_when_the_commit_file_was_lost(tmp_path: Path) -> None:
    store = Store(tmp_path, partitions=1)
    sent = fill(store, producers=1, frames=5)
    store.close()
    (tmp_path / "p0" / "commit").write_bytes(b"")
    with open(segment_path(tmp_path / "p0", 0), "ab") as file:
        file.write(b"PSF1 half a frame")
    store = Store(tmp_path, partitions=1)
    assert store.cut_bytes == 17
    store.close()
    assert content_by_producer(tmp_path) == sent


@pytest.mark.parametrize("commit_file", [True, False])
def test_writer_and_reader_report_where_a_log_is_damaged(tmp_path: Path, commit_file: bool) -> None:
    store = Store(tmp_path, partitions=1)
    fill(store, producers=1, frames=10)
    store.close()
    path = segment_path(tmp_path / "p0", 0)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    log = SegmentLog(tmp_path)
    with pytest.raises(ExternalError, match="LOG_DAMAGED") as caught:
        read_all(log, whole(log.partitions({})[0]))
    assert str(path) in str(caught.value)
    if not commit_file:  # a later frame proves that what is damaged was on disk
        (tmp_path / "p0" / "commit").unlink()
    with pytest.raises(ExternalError, match="LOG_DAMAGED") as caught:
        Store(tmp_path, partitions=1)
    assert str(path) in str(caught.value)
    assert ".." not in str(caught.value)
    assert "BAD_FRAME" not in str(caught.value)


def test_a_half_created_segment_is_created_again(tmp_path: Path) -> None:
    store = Store(tmp_path, partitions=1, segment_bytes=1000)
    sent = fill(store, producers=1, frames=3)
    end = store.partitions[0].committed.latest
    store.close()
    segment_path(tmp_path / "p0", end).write_bytes(b"PSF1")
    store = Store(tmp_path, partitions=1, segment_bytes=1000)
    more = lines("agent-0", 60, 20)
    store.append([Frame.of("agent-0", len(sent["agent-0"]), more)])
    store.close()
    assert content_by_producer(tmp_path) == {"agent-0": sent["agent-0"] + more}


def test_a_group_that_cannot_be_written_leaves_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path, partitions=2)
    sent = fill(store, producers=2, frames=2)
    more = {id: lines(id, 40, 3) for id in sent}
    frames = [Frame.of(id, len(sent[id]), data) for id, data in more.items()]
    with monkeypatch.context() as patch:

        def full(fd: int) -> None:
            raise OSError(28, "No space left on device")

        patch.setattr("os.fdatasync", full)
        with pytest.raises(ExternalError, match="LOG_UNWRITABLE"):
            store.append(frames)
    assert content_by_producer(tmp_path) == sent
    assert store.position("agent-0") == len(sent["agent-0"])
    store.append(frames)
    store.close()
    assert content_by_producer(tmp_path) == {id: sent[id] + more[id] for id in sent}


def test_only_one_gateway_writes(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(ExternalError, match="LOG_TAKEN"):
        Store(tmp_path)
    store.close()
    Store(tmp_path).close()


def test_segments_that_every_reader_has_finished_are_pruned(tmp_path: Path) -> None:
    store = Store(tmp_path, partitions=1, segment_bytes=1_000)
    fill(store, producers=1)
    firsts = list_segments(tmp_path / "p0")
    assert store.prune(Retention(), now=0).segments == 0  # nobody has read anything
    one, other = SegmentLog(tmp_path), SegmentLog(tmp_path)
    remembered = one.start(None, {})
    assert one.start(None, {}) == remembered  # as engines do when they start
    other.start(None, {})
    one.prune({"p0": firsts[4]})
    assert store.prune(Retention(), now=0).segments == 0  # the other has not started
    other.prune({"p0": firsts[2] + 1})
    pruned = store.prune(Retention(), now=0)
    assert (pruned.segments, pruned.unread_bytes) == (2, 0)
    assert one.partitions({})[0].earliest == firsts[2]
    with pytest.raises(ExternalError, match="LOG_SPAN_GONE"):
        read_all(one, Span("p0", 0, firsts[1]))
    again = SegmentLog(tmp_path)
    assert again.start(remembered, {"p0": firsts[4]}) == remembered
    remove_bookmark(tmp_path, str(other.start(None, {})["reader"]))
    store.close()


def test_a_reader_that_was_away_for_long_prevents_no_pruning(tmp_path: Path) -> None:
    store = Store(tmp_path, partitions=1, segment_bytes=1_000)
    fill(store, producers=1)
    here, away = SegmentLog(tmp_path), SegmentLog(tmp_path)
    here.start(None, {})
    here.prune({"p0": 1 << 40})
    lost = tmp_path / "readers" / f"{away.start(None, {})['reader']}.json"
    now = lost.stat().st_mtime
    assert store.prune(Retention(), now).segments == 0
    os.utime(lost, (now - 8 * 86_400,) * 2)
    assert store.prune(Retention(), now).segments > 3
    store.close()


def test_retention_removes_segments_although_a_reader_has_not_read_them(tmp_path: Path) -> None:
    store = Store(tmp_path, partitions=1, segment_bytes=1_000)
    fill(store, producers=1)
    SegmentLog(tmp_path).start(None, {})
    firsts = list_segments(tmp_path / "p0")
    for first in firsts[:2]:
        os.utime(segment_path(tmp_path / "p0", first), (1, 1))
    pruned = store.prune(Retention(keep_seconds=3600), now=os.stat(tmp_path).st_mtime)
    assert pruned.segments == 2
    assert pruned.unread_bytes == pruned.freed_bytes > 0
    store.prune(Retention(keep_bytes=1), now=0)
    assert list_segments(tmp_path / "p0") == firsts[-1:]
    position = store.position("agent-0")
    store.close()
    assert Store(tmp_path).position("agent-0") == position  # also of frames long gone


def test_the_index_finds_offsets_and_times_and_is_only_a_hint(tmp_path: Path) -> None:
    store = Store(tmp_path, partitions=1)
    sent = fill(store, producers=1, frames=10)
    store.close()
    index = read_index(tmp_path / "p0", 0)
    assert [entry[2] for entry in index] == [n * 1000 for n in range(10)]
    log, middle = SegmentLog(tmp_path), index[5][0]
    assert read_all(log, Span("p0", middle, len(sent["agent-0"]))) == sent["agent-0"][middle:]
    path = tmp_path / "p0" / f"{0:020}.idx"
    for wrong in (b"", b"\xff" * 30, path.read_bytes()[:100], bytes(24) + path.read_bytes()[24:]):
        path.write_bytes(wrong)
        assert read_all(log, Span("p0", middle, len(sent["agent-0"]))) == sent["agent-0"][middle:]
        assert log.cut("p0", middle, 1) == index[6][0]


def test_a_commit_file_behind_a_reader_does_not_move_it_back(tmp_path: Path) -> None:
    store = Store(tmp_path, partitions=1)
    fill(store, producers=1, frames=2)
    store.close()
    assert SegmentLog(tmp_path).partitions({"p0": 10_000})[0].latest == 10_000


def test_a_missing_log_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ExternalError, match="LOG_PATH_MISSING") as caught:
        SegmentLog(tmp_path / "none" / "clicks").start(None, {})
    assert f"Make the directory {tmp_path / 'none'}," in str(caught.value.hint)
    assert SegmentLog(tmp_path / "clicks").partitions({}) == []  # no agent has come yet
    assert json.dumps(SegmentLog(tmp_path / "clicks").start(None, {}))
