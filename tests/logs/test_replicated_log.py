"""A replicated log meets the log contract, with copies that lag, fail or differ."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ExternalError, UserError
from penstock.logs import FileLog, Log, Partition, ReplicatedLog, Span
from penstock.logs.contract import Chunk
from penstock.logs.copy_choice import Extent
from penstock.testing.list_log import ListLog
from penstock.testing.log_contract import LogContract, read_all, whole
from penstock.testing.manual_clock import ManualClock

LINES = [f"line {i} {'x' * (i * 7 % 90)}" for i in range(600)]


class Frail(ListLog):
    """A list log that can be unreachable."""

    away = False
    #: how many chunks can be read before it fails
    breaks_after = 1 << 30

    def _check(self) -> None:
        if self.away:
            raise ExternalError("LOG_PATH_MISSING", "it is away")

    def partitions(self, offsets: Mapping[str, int]) -> list[Partition]:
        self._check()
        return super().partitions(offsets)

    def read(self, span: Span, chunk_bytes: int = 16 << 20) -> Iterator[Chunk]:
        self._check()
        for number, chunk in enumerate(super().read(span, chunk_bytes)):
            if number >= self.breaks_after:
                raise ExternalError("LOG_SPAN_GONE", "it broke")
            yield chunk


class TestLists(LogContract):
    @pytest.fixture
    def log(self) -> Log:
        parts = {"p0": LINES, "p1": LINES[:200]}
        return ReplicatedLog(ListLog(parts), ListLog(dict(reversed(parts.items()))))


class TestListsOfWhichOneLags(LogContract):
    @pytest.fixture
    def log(self) -> Log:
        return ReplicatedLog(
            ListLog({"p0": LINES[:20], "p1": LINES[:150]}, finished=False),
            ListLog({"p1": LINES[:200], "p0": LINES}, finished=False),
        )


def test_an_unreachable_copy_is_skipped_and_read_again_later() -> None:
    one, two = Frail({"p": LINES[:10]}, finished=False), Frail({"p": LINES[:6]}, finished=False)
    log = ReplicatedLog(one, two)
    assert log.partitions({}) == [Partition("p", 0, 10)]
    assert (log.cut("p", 0, 4), log.route("p")) == (4, 0)
    one.away = True
    assert log.partitions({"p": 4}) == [Partition("p", 0, 6)]
    assert (log.cut("p", 4, 9), log.route("p")) == (6, 1)
    assert "it is away" in log.away[0]
    assert log.partitions({"p": 6}) == [Partition("p", 0, 6)]
    assert log.cut("p", 6, 9) == 6
    one.away = False
    assert log.partitions({"p": 6}) == [Partition("p", 0, 10)]
    assert (log.cut("p", 6, 9), log.route("p")) == (10, 0)
    one.away = two.away = True
    with pytest.raises(ExternalError, match="it is away"):
        log.partitions({"p": 10})


def test_only_events_that_all_replicas_have_are_read() -> None:
    log = ReplicatedLog(ListLog({"p": LINES[:10]}, finished=False), ListLog({"p": LINES[:8]}, finished=False))
    # the second replica reaches no copy: none waits for it
    log.set_reports({"e2": {"p": {0: Extent(0, 3), 1: Extent(0, 7)}}, "e3": {}})
    assert log.partitions({}) == [Partition("p", 0, 7)]
    assert (log.cut("p", 0, 100), log.route("p")) == (7, 1)
    log.set_reports({"e2": {"p": {0: Extent(0, 9)}}})
    assert log.partitions({"p": 7}) == [Partition("p", 0, 9)]
    assert log.route("p") == 0
    log.set_reports({"e2": {"q": {0: Extent(0, 9)}}})
    assert log.partitions({"p": 9}) == [Partition("p", 0, 9)]
    assert log.withheld == {"p"}
    assert log.cut("p", 9, 100) == 9
    assert log.partitions({}) == [
        Partition("p", 0, 0)
    ]  # the partition exists, so its event time is waited for
    log.set_reports({})
    assert log.partitions({"p": 9})[0].latest == 10
    assert not log.withheld


def test_a_replica_reads_only_as_far_as_the_current_reports() -> None:
    log = ReplicatedLog(
        ListLog({"p": LINES[:10]}, finished=False), ListLog({"p": LINES[:10]}, finished=False)
    )
    assert log.partitions({})[0].latest == 10
    assert log.cut("p", 0, 2) == 2
    log.set_reports({"e2": {"p": {}, "q": {0: Extent(0, 1)}}})
    assert log.partitions({"p": 2}) == [Partition("p", 0, 2)]
    assert log.cut("p", 2, 5) == 2


@pytest.mark.parametrize("breaks_after", [0, 2])
def test_a_span_whose_copy_is_lost_is_read_from_another(breaks_after: int) -> None:
    one, two = Frail({"p": LINES}), Frail({"p": LINES})
    log, span = ReplicatedLog(one, two), Span("p", 7, 500, 0)
    expected = read_all(log, span)
    one.breaks_after = breaks_after
    assert read_all(log, span, 3_000) == expected
    two.away = True
    with pytest.raises(ExternalError, match="it broke"):
        read_all(log, span, 3_000)


def test_a_span_of_a_lost_copy_is_awaited_from_the_other() -> None:
    one, two = Frail({"p": LINES[:100]}, finished=False), Frail({"p": LINES[:40]}, finished=False)
    log, span = ReplicatedLog(one, two), Span("p", 20, 90, 0)
    expected = read_all(log, span)
    one.away = True
    log.patience_seconds = 0.0
    with pytest.raises(ExternalError, match="it is away"):
        read_all(log, span)
    log.patience_seconds = 60.0
    with pytest.raises(ExternalError, match="it is away"):  # no leader decided on it, so it is not waited for
        read_all(log, Span("p", 20, 90))
    timer = threading.Timer(0.3, lambda: two.add("p", *LINES[40:95]))
    timer.start()
    assert read_all(log, span) == expected
    timer.join()


def test_copies_in_another_order_are_refused_when_the_copy_is_changed() -> None:
    one, two = ListLog({"p": LINES[:10]}, finished=False), ListLog({"p": LINES[9::-1]}, finished=False)
    log = ReplicatedLog(one, two)
    log.partitions({})
    assert log.cut("p", 0, 10) == 10
    two.add("p", "more")
    with pytest.raises(UserError) as refused:
        log.partitions({"p": 10})
    assert refused.value.condition == "COPIES_DIFFER"


def test_copies_that_end_at_different_offsets_are_refused() -> None:
    log = ReplicatedLog(ListLog({"p": LINES[:10]}), ListLog({"p": LINES[:11]}))
    with pytest.raises(UserError) as refused:
        log.partitions({})
    assert refused.value.condition == "COPIES_DIFFER"


def test_one_log_or_logs_of_different_kinds_are_refused(tmp_path: Path) -> None:
    for logs in ([], [ListLog([])], [ListLog([]), FileLog(str(tmp_path / "*"))]):
        with pytest.raises(UserError) as refused:
            ReplicatedLog(*logs)
        assert refused.value.condition == "COPIES_DIFFER"


def test_a_partition_is_finished_once_all_replicas_have_all_of_it() -> None:
    log = ReplicatedLog(ListLog({"p": LINES[:10]}), ListLog({"p": LINES[:10]}))
    log.set_reports({"e2": {"p": {0: Extent(0, 6), 1: Extent(0, 4)}}})
    assert log.partitions({}) == [Partition("p", 0, 6, finished=False)]
    log.set_reports({"e2": {"p": {0: Extent(0, 10), 1: Extent(0, 4)}}})
    assert log.partitions({}) == [Partition("p", 0, 10, finished=True)]
    assert log.closed()


def test_an_engine_that_lacks_a_partition_is_waited_for_and_then_skipped() -> None:
    log = ReplicatedLog(
        ListLog({"p": LINES[:10]}, finished=False), ListLog({"p": LINES[:10]}, finished=False)
    )
    clock = log.clock = ManualClock()
    lacking = {"e2": {"q": {0: Extent(0, 1)}}}
    log.set_reports(lacking, patience_seconds=2.0)
    for passed, latest in ((0.0, 0), (1.9, 0), (0.2, 10)):
        clock.turn(passed)
        assert [one.latest for one in log.partitions({})] == [latest]
    assert log.find_skipped() == {"e2": ["p"]}
    log.set_reports({"e2": {"p": {1: Extent(0, 10)}}}, patience_seconds=2.0)
    assert log.partitions({"p": 4}) == [Partition("p", 0, 10)]
    assert (log.find_skipped(), log.route("p")) == ({}, 1)
    log.set_reports(lacking, patience_seconds=2.0)
    log.partitions({})
    clock.turn(2.1)
    log.partitions({})
    log.set_reports({}, patience_seconds=2.0)
    assert log.find_skipped() == {}
    log.set_reports(lacking, patience_seconds=0.0)
    assert [one.latest for one in log.partitions({})] == [10]
    log.set_reports({"e3": {}})
    assert log.find_skipped() == {"e3": ["p"]}


def test_copies_with_different_partitions_are_read_as_far_as_any_copy_goes() -> None:
    one = Frail({"p": LINES[:10], "q": LINES[:5]})
    log = ReplicatedLog(one, Frail({"p": LINES[:10], "r": LINES[:7]}))
    assert [(part.id, part.latest) for part in log.partitions({})] == [("p", 10), ("q", 5), ("r", 7)]
    assert [log.route(name) for name in "pqr"] == [0, 0, 1]
    ends = {"p": 10, "q": 3, "r": 7}
    one.away = True  # also the partition that only it has, which is waited for
    assert [(part.id, part.latest, part.finished) for part in log.partitions(ends)] == [
        ("p", 10, True),
        ("q", 3, False),
        ("r", 7, True),
    ]
    one.away = False
    assert log.cut("q", 3, 9) == 3
    assert log.partitions(ends)[1] == Partition("q", 0, 5, finished=True)


class Pruned(Frail):
    """A list log without its first lines."""

    def partitions(self, offsets: Mapping[str, int]) -> list[Partition]:
        return [replace(one, earliest=5) for one in super().partitions(offsets)]


def test_a_partition_without_its_first_events_waits_for_the_unreachable_copy() -> None:
    complete, pruned = Frail({"p": LINES[:10], "q": LINES[:10]}), Pruned({"p": LINES[:10], "r": LINES[:10]})
    log = ReplicatedLog(complete, pruned)
    clock = log.clock = ManualClock()
    complete.away = True
    for offsets in ({}, {"q": 3}):
        known = [Partition("q", 3, 3)] if offsets else []
        assert [replace(one, earliest=one.latest) for one in log.partitions(offsets)] == known
        assert (log.withheld, log.started_late, log.closed()) == ({"p", "r"}, frozenset(), False)
        clock.turn(log.patience_seconds - 1)
        log.partitions(offsets)
        assert log.withheld == {"p", "r"}
        complete.away = False
        assert [(one.id, one.earliest) for one in log.partitions(offsets)] == [("p", 0), ("q", 0), ("r", 5)]
        assert (log.withheld, log.started_late, log.closed()) == (frozenset(), frozenset(), True)
        complete.away = True
    log.partitions({})
    clock.turn(log.patience_seconds)
    assert [(one.id, one.earliest) for one in log.partitions({})] == [("p", 5), ("r", 5)]
    assert (log.withheld, log.started_late, log.closed()) == (frozenset(), {"p", "r"}, True)
    log.partitions({"p": 5, "r": 7})
    assert log.started_late == frozenset()


def test_before_the_first_epoch_all_partitions_wait_for_their_first_events() -> None:
    away, pruned, third = Frail({}), Pruned({"p": LINES[:10]}), Frail({"q": LINES[:10]})
    away.away = True
    log = ReplicatedLog(away, pruned, third)
    clock = log.clock = ManualClock()
    assert log.partitions({}) == []
    assert log.withheld == {"p", "q"}
    clock.turn(log.patience_seconds)
    pruned.add("s", *LINES[:10])  # has just been seen, but all have waited
    assert [one.id for one in log.partitions({})] == ["p", "q", "s"]
    assert (log.withheld, log.started_late) == (frozenset(), {"p", "s"})


_steps = st.lists(
    st.one_of(
        st.tuples(st.just("grow"), st.integers(0, 1), st.sampled_from("pq"), st.integers(1, 30)),
        st.tuples(st.just("away"), st.integers(0, 1), st.booleans()),
        st.tuples(st.just("epoch"), st.integers(1, 60)),
        st.tuples(st.just("restart")),
    ),
    max_size=40,
)


@settings(max_examples=100, deadline=None)
@given(_steps)
def test_every_line_is_read_once_and_in_order_whatever_copies_do(steps: list[tuple[object, ...]]) -> None:
    lines = {"p": [f"p{n}" for n in range(2_000)], "q": [f"q{n}" for n in range(2_000)]}
    copies = [Frail({}, finished=False), Frail({}, finished=False)]
    grown = [{"p": 0, "q": 0}, {"p": 0, "q": 0}]
    log, at, taken = ReplicatedLog(*copies), {}, {"p": b"", "q": b""}
    recorded: list[tuple[Span, bytes]] = []
    for step in steps:
        match step:
            case ("grow", int(copy), str(name), int(count)):
                start = grown[copy][name]
                grown[copy][name] += count
                copies[copy].add(name, *lines[name][start : start + count])
            case ("away", int(copy), bool(away)) if not (away and copies[1 - copy].away):
                copies[copy].away = away
            case ("restart",):
                log = ReplicatedLog(*copies)
            case ("epoch", int(units)):
                for one in log.partitions(at):
                    start = at.setdefault(one.id, one.earliest)
                    end = log.cut(one.id, start, units) if one.latest > start else start
                    if end > start:
                        span = Span(one.id, start, end, log.route(one.id))
                        data = read_all(log, span)
                        taken[one.id] += data
                        recorded.append((span, data))
                    at[one.id] = end
    for name, data in taken.items():
        assert data.decode().split() == lines[name][: at.get(name, 0)]
    for copy in copies:
        copy.away = False
    assert all(read_all(log, span) == data for span, data in recorded)
    for one in log.partitions(at):
        assert one.latest == max(grown[0][one.id], grown[1][one.id]) or 2 * (
            one.latest - at.get(one.id, 0)
        ) >= (max(grown[0][one.id], grown[1][one.id]) - at.get(one.id, 0))
        assert whole(one).end <= max(grown[0][one.id], grown[1][one.id])
