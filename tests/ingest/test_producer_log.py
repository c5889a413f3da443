"""A segment log read by producer is the same in the logs of two gateways, however the lines were interleaved."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ExternalError, UserError
from penstock.ingest.frames import GAP, JUMP, Frame
from penstock.ingest.partition import FORGOTTEN_AFTER
from penstock.ingest.producer_log import ProducerLog
from penstock.ingest.readers import read_floors
from penstock.ingest.segment_log import SegmentLog
from penstock.ingest.segments import list_segments
from penstock.ingest.store import Retention, Store
from penstock.logs.contract import Log, Partition, Span
from penstock.logs.replicated import ReplicatedLog
from penstock.testing.log_contract import LogContract, read_all, whole
from tests.ingest.test_segment_log import fill, lines


class TestProducers(LogContract):
    @pytest.fixture
    def log(self, tmp_path: Path) -> Log:
        store = Store(tmp_path / "s", partitions=2, segment_bytes=2_000)
        fill(store)
        store.close()
        return ProducerLog(tmp_path / "s")


class TestCopiesOfTwoGateways(LogContract):
    @pytest.fixture
    def log(self, tmp_path: Path) -> Log:
        for seed, partitions in ((1, 1), (2, 3)):
            append_interleaved(tmp_path / f"g{seed}", partitions, producer_frames(frames=12), seed)
        return ReplicatedLog(ProducerLog(tmp_path / "g1"), ProducerLog(tmp_path / "g2"))


def producer_frames(frames: int) -> dict[str, list[Frame]]:
    """Return the frames that three producers send."""
    frames_by_producer: dict[str, list[Frame]] = {}
    for number in range(3):
        producer, at = f"agent-{number}", 0
        for one in range(frames):
            data = lines(producer, one * 20, 20)
            frames_by_producer.setdefault(producer, []).append(Frame.of(producer, at, data))
            at += len(data)
    return frames_by_producer


def append_interleaved(directory: Path, partitions: int, frames: dict[str, list[Frame]], seed: int) -> None:
    """Append frames of several producers, each one's in order, interleaved at random; some are sent again."""
    draw, waiting = random.Random(seed), {name: list(ones) for name, ones in frames.items()}
    store = Store(directory, partitions=partitions, segment_bytes=3_000)
    while any(waiting.values()):
        name = draw.choice([name for name, ones in waiting.items() if ones])
        store.take(waiting[name][0], now=1)
        if draw.random() < 0.8:
            waiting[name].pop(0)
        if draw.random() < 0.5:
            store.commit()
    store.commit()
    store.close()


def test_two_gateways_differ_by_partition_and_agree_by_producer(tmp_path: Path) -> None:
    frames = producer_frames(frames=10)
    for seed in (1, 2):
        append_interleaved(tmp_path / f"g{seed}", 1, frames, seed)
    by_partition = [
        read_all(log, whole(log.partitions({})[0]))
        for log in (SegmentLog(tmp_path / f"g{n}") for n in (1, 2))
    ]
    assert by_partition[0] != by_partition[1]
    assert sorted(by_partition[0].splitlines()) == sorted(by_partition[1].splitlines())
    expected = {name: b"".join(one.lines() for one in ones) for name, ones in frames.items()}
    for seed in (1, 2):
        log = ProducerLog(tmp_path / f"g{seed}")
        assert {one.id: read_all(log, whole(one)) for one in log.partitions({})} == expected


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1 << 30), st.lists(st.integers(1, 1_500), min_size=1, max_size=12))
def test_gateways_with_different_progress_are_read_as_one_log(
    tmp_path_factory: pytest.TempPathFactory, seed: int, cut_bytes: list[int]
) -> None:
    """Each gateway has random progress when an epoch is cut; at the end both have all lines."""
    folder, draw = tmp_path_factory.mktemp("gateways"), random.Random(seed)
    frames = producer_frames(frames=6)
    stores = [Store(folder / f"g{n}", partitions=1 + n, segment_bytes=3_000) for n in (0, 1)]
    waiting = [{name: list(ones) for name, ones in frames.items()} for _ in stores]
    log = ReplicatedLog(*(ProducerLog(folder / f"g{n}") for n in (0, 1)))
    at: dict[str, int] = {}
    taken: dict[str, bytes] = {}

    def epoch(most: int) -> None:
        for one in log.partitions(at):
            start = at.setdefault(one.id, one.earliest)
            at[one.id] = log.cut(one.id, start, most)
            taken[one.id] = taken.get(one.id, b"") + read_all(
                log, Span(one.id, start, at[one.id], log.route(one.id))
            )

    for most in cut_bytes:
        for store, left in zip(stores, waiting, strict=True):
            for _ in range(draw.randrange(5)):
                if names := [name for name, ones in left.items() if ones]:
                    store.take(left[draw.choice(names)].pop(0), now=1)
            store.commit()
        epoch(most)
    for store, left in zip(stores, waiting, strict=True):
        for ones in left.values():
            for frame in ones:
                store.take(frame, now=1)
        store.commit()
        store.close()
    for _ in range(3):
        epoch(1 << 30)
    assert taken == {name: b"".join(one.lines() for one in ones) for name, ones in frames.items()}


@pytest.mark.parametrize("flag", [GAP, JUMP])
def test_a_gap_ends_a_copy_and_another_copy_continues(tmp_path: Path, flag: int) -> None:
    data = [lines("agent", n * 5, 5) for n in range(3)]
    offsets = [0, len(data[0]), len(data[0] + data[1]), len(b"".join(data))]
    holed, complete = Store(tmp_path / "holed", partitions=1), Store(tmp_path / "whole", partitions=1)
    holed.append([Frame.of("agent", 0, data[0]), Frame.of("agent", offsets[2], data[2], flags=flag)])
    complete.append([Frame.of("agent", 0, data[0])])
    log = ProducerLog(tmp_path / "holed")
    assert log.partitions({}) == [Partition("agent", 0, offsets[1])]
    assert log.cut("agent", 0, 1 << 20) == offsets[1]
    with pytest.raises(ExternalError) as raised:
        log.partitions({"agent": offsets[1]})
    assert raised.value.condition == "LOG_GAP"
    assert log.partitions({"agent": offsets[2]}) == [Partition("agent", offsets[2], offsets[3])]
    both = ReplicatedLog(log, ProducerLog(tmp_path / "whole"))
    assert both.partitions({"agent": offsets[1]}) == [Partition("agent", 0, offsets[1])]
    complete.append([Frame.of("agent", offsets[1], data[1])])
    assert both.partitions({"agent": offsets[1]}) == [Partition("agent", 0, offsets[2])]
    assert both.cut("agent", offsets[1], 1 << 20) == offsets[2]
    assert both.route("agent") == 1
    assert both.partitions({"agent": offsets[2]}) == [Partition("agent", offsets[2], offsets[3])]
    assert both.route("agent") == 0
    holed.close()
    complete.close()


def test_two_copies_with_gaps_in_different_producers_are_complete_together(tmp_path: Path) -> None:
    data = [lines("agent", n * 5, 5) for n in range(3)]
    offsets = [0, len(data[0]), len(data[0] + data[1]), len(b"".join(data))]
    for directory, holed in (("one", "a"), ("two", "b")):
        store = Store(tmp_path / directory, partitions=2)
        for producer in "ab":
            frames = [Frame.of(producer, offsets[n], data[n]) for n in (0, 1)]
            last = Frame.of(producer, offsets[2], data[2], flags=GAP if producer == holed else 0)
            store.append([frames[0], last] if producer == holed else [*frames, last])
        store.close()
    log = ReplicatedLog(ProducerLog(tmp_path / "one"), ProducerLog(tmp_path / "two"))
    at = {"a": offsets[1], "b": offsets[1]}
    assert [(one.id, one.latest) for one in log.partitions(at)] == [("a", offsets[3]), ("b", offsets[3])]
    assert [log.route(name) for name in "ab"] == [1, 0]
    for name in "ab":
        assert read_all(log, Span(name, 0, offsets[3], log.route(name))) == b"".join(data)


def test_a_gap_in_every_copy_is_an_error(tmp_path: Path) -> None:
    data = lines("agent", 0, 5)
    for directory in ("one", "two"):
        store = Store(tmp_path / directory, partitions=1)
        store.append([Frame.of("a", 0, data), Frame.of("a", 2 * len(data), data, flags=GAP)])
        store.close()
    log = ReplicatedLog(ProducerLog(tmp_path / "one"), ProducerLog(tmp_path / "two"))
    assert log.partitions({})[0].latest == len(data)
    with pytest.raises(ExternalError) as raised:
        log.partitions({"a": len(data)})
    assert raised.value.condition == "LOG_GAP"


def test_a_damaged_segment_is_read_from_the_other_copy(tmp_path: Path) -> None:
    frames = producer_frames(frames=10)
    for seed in (1, 2):
        append_interleaved(tmp_path / f"g{seed}", 1, frames, seed)
    log = ReplicatedLog(ProducerLog(tmp_path / "g1"), ProducerLog(tmp_path / "g2"))
    spans = [Span(one.id, one.earliest, one.latest, 0) for one in log.partitions({})]
    expected = {name: b"".join(one.lines() for one in ones) for name, ones in frames.items()}
    for segment in (tmp_path / "g1" / "p0").glob("*.seg"):
        content = bytearray(segment.read_bytes())
        content[len(content) // 2 :: 97] = b"?" * len(content[len(content) // 2 :: 97])
        segment.write_bytes(content)
    for reader in (log, ReplicatedLog(ProducerLog(tmp_path / "g1"), ProducerLog(tmp_path / "g2"))):
        assert {span.partition: read_all(reader, span) for span in spans} == expected
    fresh = ReplicatedLog(ProducerLog(tmp_path / "g1"), ProducerLog(tmp_path / "g2"))
    ends = {one.id: one.latest for one in fresh.partitions({})}
    assert ends == {name: len(data) for name, data in expected.items()}
    assert {fresh.route(name) for name in ends} == {1}
    assert "damaged" in fresh.away[0]


def test_a_producer_that_restarts_its_offsets_is_read_up_to_there(tmp_path: Path) -> None:
    data = lines("agent", 0, 5)
    store = Store(tmp_path / "s", partitions=1, segment_bytes=1)
    store.append([Frame.of("a", 0, data)], now=1)
    store.append(
        [Frame.of("b", 0, data)], now=FORGOTTEN_AFTER + 2
    )  # with a new segment, the first is forgotten
    store.append([Frame.of("a", 0, data)], now=FORGOTTEN_AFTER + 3)
    store.close()
    log = ProducerLog(tmp_path / "s")
    for _ in range(2):
        assert log.partitions({}) == [Partition("a", 0, len(data)), Partition("b", 0, len(data))]
    with pytest.raises(ExternalError) as raised:
        log.partitions({"a": len(data)})
    assert raised.value.condition == "LOG_GAP"
    assert log.as_copy({"a": len(data)})[1].keys() == {"a"}
    assert read_all(log, Span("a", 0, len(data))) == data


def forget_producer(folder: Path) -> tuple[list[Store], dict[str, int]]:
    """Return two gateways that have forgotten producer a and its lines, all of which were read, and the offsets."""
    data = lines("agent", 0, 50)
    stores = [Store(folder / f"g{n}", partitions=1, segment_bytes=1) for n in (0, 1)]
    for store in stores:
        store.append([Frame.of("a", 0, data)], now=1)
    log, at = open_both(folder), {"a": len(data)}
    log.start(None, {})
    for store in stores:
        store.append([Frame.of("b", 0, data)], now=FORGOTTEN_AFTER + 2)
    log.prune(at)
    for store in stores:
        store.prune(Retention(), 0.0)
        assert len(list_segments(store.directory / "p0")) == 1
    return stores, at


def open_both(folder: Path) -> ReplicatedLog:
    return ReplicatedLog(*(ProducerLog(folder / f"g{n}") for n in (0, 1)))


@pytest.mark.parametrize("reached_gateways", [1, 2])
def test_a_producer_that_restarts_its_offsets_after_pruning_is_an_error(
    tmp_path: Path, reached_gateways: int
) -> None:
    stores, at = forget_producer(tmp_path)
    assert [one.id for one in open_both(tmp_path).partitions(at)] == ["b"]
    for store in stores[:reached_gateways]:
        store.append([Frame.of("a", 0, lines("other", 0, 1))], now=FORGOTTEN_AFTER + 3)
        store.close()
    with pytest.raises(ExternalError) as raised:
        open_both(tmp_path).partitions(at)
    assert raised.value.condition == "LOG_GAP"
    one_away = ReplicatedLog(ProducerLog(tmp_path / "g0"), ProducerLog(tmp_path / "away" / "g1"))
    assert one_away.partitions(at)[0].latest == at["a"]  # the other may have it
    assert one_away.away.keys() == {1}


def test_a_reader_of_the_old_lines_reads_none_of_the_restarted_ones(tmp_path: Path) -> None:
    data = lines("agent", 0, 50)
    stores = [Store(tmp_path / f"g{n}", partitions=1, segment_bytes=1) for n in (0, 1)]
    log, at = open_both(tmp_path), {"a": len(data)}
    for store in stores:
        store.append([Frame.of("a", 0, data)], now=1)
    log.start(None, {})
    assert log.partitions({})[0].latest == len(data)
    for store in stores:
        store.append([Frame.of("b", 0, data)], now=FORGOTTEN_AFTER + 2)
    log.prune(at)
    for store in stores:
        store.prune(Retention(), 0.0)
    for number, store in enumerate(stores):  # longer than the old lines, in one append
        store.append([Frame.of("a", 0, lines("other", 0, 90))], now=FORGOTTEN_AFTER + 3)
        if number == 0:  # the other copy may continue where it was
            assert [one.id for one in log.partitions(at | {"b": 0})] == ["b"]
    with pytest.raises(ExternalError) as raised:
        log.partitions(at | {"b": 0})
    assert raised.value.condition == "LOG_GAP"
    for store in stores:
        store.close()


def test_the_reader_waits_for_a_copy_that_lags_behind_a_pruned_one(tmp_path: Path) -> None:
    data, rest = lines("agent", 0, 5), lines("agent", 5, 5)
    late, early = (Store(tmp_path / f"g{n}", partitions=1, segment_bytes=1) for n in (0, 1))
    late.append([Frame.of("a", 0, data)], now=1)
    early.append([Frame.of("a", 0, data + rest)], now=1)
    log, at = open_both(tmp_path), {"a": len(data + rest)}
    log.start(None, {})
    early.append([Frame.of("b", 0, data)], now=2)
    log.prune(at)
    early.prune(Retention(), 0.0)
    for one in (log, open_both(tmp_path)):
        assert {part.id: part.latest for part in one.partitions(at)} == {"a": at["a"], "b": len(data)}
    late.append([Frame.of("a", len(data), rest), Frame.of("a", at["a"], data)], now=3)
    assert log.partitions(at)[0].latest == at["a"] + len(data)
    assert (log.cut("a", at["a"], 1 << 20), log.route("a")) == (at["a"] + len(data), 0)
    late.close()
    early.close()


def test_frames_are_in_the_order_of_arrival_in_any_directory(tmp_path: Path) -> None:
    old, new, filler = lines("agent", 0, 5), lines("other", 0, 9), lines("any", 0, 1)
    store = Store(tmp_path / "s", partitions=2, segment_bytes=1)
    for now, names in ((1, "za"), (FORGOTTEN_AFTER + 2, "cd")):
        for name in names:
            store.append([Frame.of(name, 0, old if name == "a" else filler)], now=now)
    running = ProducerLog(tmp_path / "s")
    running.partitions({})
    store.close()
    store = Store(tmp_path / "s", partitions=2, segment_bytes=1)
    store.append([Frame.of("a", 0, new)], now=FORGOTTEN_AFTER + 3)
    store.close()
    directories = {
        one.parent.name for one in (tmp_path / "s").glob("p*/*.seg") if b"agent" in one.read_bytes()
    }
    assert directories == {"p1"}
    for log in (running, ProducerLog(tmp_path / "s")):
        assert log.partitions({})[0] == Partition("a", 0, len(old))
        assert read_all(log, Span("a", 0, len(old))) == old
        with pytest.raises(ExternalError) as raised:
            log.partitions({"a": len(old)})
        assert raised.value.condition == "LOG_GAP"


def test_lines_without_a_producer_are_refused(tmp_path: Path) -> None:
    store = Store(tmp_path / "s")
    store.append([Frame.of("http", 0, b"anybody's\n")])
    store.close()
    with pytest.raises(UserError) as refused:
        ProducerLog(tmp_path / "s").partitions({})
    assert refused.value.condition == "NO_PRODUCER"


def test_segments_that_a_reader_has_finished_are_pruned_and_the_rest_is_read(tmp_path: Path) -> None:
    store = Store(tmp_path / "s", partitions=1, segment_bytes=1_000)
    everything = fill(store, producers=2, frames=10)
    log = ProducerLog(tmp_path / "s")
    log.start(None, {})
    assert read_floors(tmp_path / "s") == {"p0": 0}
    half = {one.id: log.cut(one.id, 0, one.latest // 2) for one in log.partitions({})}
    log.prune(half)
    before = list_segments(tmp_path / "s" / "p0")
    assert store.prune(Retention(), 0.0).unread_bytes == 0
    assert list_segments(tmp_path / "s" / "p0")[0] > before[0]
    for again in (log, ProducerLog(tmp_path / "s")):
        for one in again.partitions(half):
            assert one.earliest <= half[one.id]
            rest = read_all(again, Span(one.id, half[one.id], one.latest))
            assert rest == everything[one.id][half[one.id] :]
            with pytest.raises(ExternalError) as gone:
                read_all(again, Span(one.id, 0, one.latest))
            assert gone.value.condition == "LOG_SPAN_GONE"
    log.prune({name: len(data) for name, data in everything.items()})
    store.prune(Retention(), 0.0)
    assert len(list_segments(tmp_path / "s" / "p0")) == 1
    store.close()
