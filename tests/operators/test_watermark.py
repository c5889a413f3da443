"""The watermark never moves back, never passes a partition that may still have events, and waits for no idle one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.operators.contract import FOREVER, NEVER
from penstock.operators.watermark import (
    add_partitions,
    advance_watermark,
    forget_partitions,
    skip_idle_streams,
)
from penstock.state.manifest import PartitionTime, StreamTime


def stream(*highest: int | None, watermark: int | None = None) -> StreamTime:
    names = "abcdef"
    return StreamTime(
        {names[at]: PartitionTime(at, value) for at, value in enumerate(highest)}, watermark=watermark
    )


def test_the_slowest_partition_holds_the_watermark() -> None:
    after = advance_watermark(stream(10, 10), {"a": 50, "b": 30}, 5)
    assert after.watermark == 25
    assert [p.highest for p in after.partitions.values()] == [50, 30]


def test_a_partition_without_events_holds_the_watermark() -> None:
    assert advance_watermark(stream(10, None), {"a": 50}, 5).watermark == NEVER
    assert advance_watermark(stream(10, None, watermark=3), {"a": 50}, 5).watermark == 3


def test_an_idle_or_finished_partition_does_not_hold_the_watermark() -> None:
    assert advance_watermark(stream(10, None), {"a": 50}, 5, idle=["b"]).watermark == 45
    assert advance_watermark(stream(10, 12), {"a": 50}, 5, finished=["b"]).watermark == 45


def test_a_partition_that_becomes_active_holds_the_watermark_but_does_not_move_it_back() -> None:
    idle = advance_watermark(stream(10, 0), {"a": 50}, 5, idle=["b"])
    active = advance_watermark(idle, {"b": 20}, 5)
    assert active.watermark == 45
    assert advance_watermark(active, {"a": 99}, 5).watermark == 45
    assert advance_watermark(active, {"a": 99, "b": 80}, 5).watermark == 75


def test_when_all_partitions_are_finished_the_watermark_is_at_its_end() -> None:
    assert advance_watermark(stream(10, 20), {}, 5, finished=["a", "b"], closed=True).watermark == FOREVER


def test_when_all_partitions_are_idle_the_watermark_is_that_of_the_newest_event() -> None:
    assert advance_watermark(stream(10, 20), {}, 5, idle=["a", "b"]).watermark == 15
    assert advance_watermark(stream(10, 20), {}, 5, idle=["a"], finished=["b"]).watermark == 15
    assert advance_watermark(stream(None, None), {}, 5, idle=["a", "b"]).watermark == NEVER


def test_a_stream_without_partitions_has_no_watermark() -> None:
    assert advance_watermark(StreamTime(), {}, 5).watermark == NEVER


def test_a_limited_watermark_stays_until_the_limit_is_raised() -> None:
    held = advance_watermark(stream(10), {"a": 50}, 5, limit=(20, 3))
    assert (held.watermark, held.ahead, held.late_before) == (20, 3, 21)
    assert advance_watermark(stream(10), {"a": 25}, 5, limit=(20, 3)) == advance_watermark(
        stream(10), {"a": 25}, 5
    ), "not reached"
    assert (held_again := advance_watermark(held, {}, 5, limit=(20, 2))).ahead == 3, (
        "emitted batches stay emitted"
    )
    assert advance_watermark(held_again, {}, 5, limit=(20, 9)).ahead == 9
    assert advance_watermark(held, {}, 5, limit=(0, 1)) == held, "never back"
    freed = advance_watermark(held, {}, 5)
    assert (freed.watermark, freed.ahead, freed.late_before) == (45, 0, 45)
    ended = advance_watermark(held, {}, 5, finished=["a"], closed=True, limit=(30, 0))
    assert (ended.watermark, ended.ahead) == (30, 0)


def test_batches_emitted_ahead_stay_so_while_an_active_partition_holds_the_watermark() -> None:
    idle = advance_watermark(stream(10, 0), {"a": 50}, 5, idle=["b"], limit=(20, 3))
    active = advance_watermark(idle, {"b": 22}, 5)
    assert (active.watermark, active.ahead) == (20, 3)
    assert advance_watermark(active, {"b": 40}, 5).ahead == 0


def test_an_idle_stream_does_not_follow_an_ended_stream_whose_watermark_is_limited() -> None:
    """The limit may lie behind its last event; events of the other stream must not be late for it."""
    quiet = StreamTime({"a": PartitionTime(0, 10, idle=True)}, watermark=5)
    held = StreamTime({"b": PartitionTime(1, 50, finished=True)}, watermark=90)
    times = {"quiet": quiet, "held": held}
    assert skip_idle_streams(times, [("quiet", "held")])["quiet"].watermark == 90
    assert skip_idle_streams(times, [("quiet", "held")], ended={"held"}) == times


epochs = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from("abc"), st.integers(-1000, 1000)),
        st.sets(st.sampled_from("abc")),
        st.sets(st.sampled_from("abc")),
    )
)


@given(epochs, st.integers(0, 50))
def test_a_watermark_never_moves_back(
    seen: list[tuple[dict[str, int], set[str], set[str]]], lateness: int
) -> None:
    now = stream(None, None, None)
    for highest, idle, finished in seen:
        after = advance_watermark(now, highest, lateness, idle=idle, finished=finished)
        assert after.watermark is not None
        assert after.watermark >= (NEVER if now.watermark is None else now.watermark)
        for name, partition in after.partitions.items():
            was = now.partitions[name].highest
            assert partition.highest == max(
                [x for x in (was, highest.get(name)) if x is not None], default=None
            )
        now = after


def test_partitions_keep_their_ordinals_for_life() -> None:
    first = add_partitions(StreamTime(), ["a", "b"], 3)
    again = add_partitions(first, ["c", "b", "a"], 5)
    assert {name: p.ordinal for name, p in again.partitions.items()} == {"a": 3, "b": 4, "c": 5}


def test_partitions_seen_together_are_numbered_as_the_log_lists_them() -> None:
    seen = add_partitions(StreamTime(), ["b", "c", "a"], 0)
    assert {name: partition.ordinal for name, partition in seen.partitions.items()} == {
        "b": 0,
        "c": 1,
        "a": 2,
    }


def test_a_log_of_finished_files_that_may_get_more_is_not_at_its_end() -> None:
    only = StreamTime({"a": PartitionTime(0)})
    live = advance_watermark(only, {"a": 1_000}, 10, finished=["a"])
    assert live.watermark == 990
    assert advance_watermark(only, {"a": 1_000}, 10, finished=["a"], closed=True).watermark == FOREVER


@given(
    highest=st.lists(st.none() | st.integers(0, 100), min_size=1, max_size=5),
    forgotten=st.sets(st.integers(0, 4)),
    seen=st.dictionaries(st.sampled_from("abcde"), st.integers(0, 200)),
    idle=st.sets(st.sampled_from("abcde")),
)
def test_a_forgotten_partition_counts_as_the_idle_one_that_it_was(
    highest: list[int | None], forgotten: set[int], seen: dict[str, int], idle: set[str]
) -> None:
    before = stream(*highest)
    gone = {name for at, name in enumerate(before.partitions) if at in forgotten}
    seen = {name: time for name, time in seen.items() if name in before.partitions and name not in gone}
    remaining = before.partitions.keys() - gone
    whole = advance_watermark(before, seen, 5, idle=idle | gone)
    less = advance_watermark(forget_partitions(before, remaining), seen, 5, idle=idle)
    assert less.watermark == whole.watermark
    assert less.partitions == {name: whole.partitions[name] for name in remaining}
    others = {"other": stream(50, watermark=45)}
    times = [skip_idle_streams({"s": one, **others}, [("s", "other")])["s"] for one in (whole, less)]
    assert times[0].watermark == times[1].watermark


def test_the_ordinal_of_a_forgotten_partition_is_not_given_again() -> None:
    once = forget_partitions(stream(10, 20, 30), ["a"])
    assert once.forgotten is not None
    assert (once.forgotten.ordinal, once.forgotten.highest, once.forgotten.idle) == (2, 30, True)
    twice = forget_partitions(add_partitions(once, ["z"], 3), ["z"])
    assert twice.forgotten is not None
    assert (twice.forgotten.ordinal, twice.forgotten.highest) == (2, 30)
    assert forget_partitions(twice, ["z"]) is twice
