"""Epoch records: their format on disk does not change, and a record that is read equals the one written."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import UserError
from penstock.logs.contract import Span
from penstock.state.bucket_map import BucketMaps, ExecutorLocation
from penstock.state.epoch_record import EpochRecord, Offset, WatermarksAndCounters
from penstock.state.state_facts import FORMAT

#: records of format 1: with the required fields only, and with all fields
LEAST = (
    b'{"start":{"epoch":-1,"at":{},"from":{},"finished":{},"idle":{},"closed":{}},'
    b'"end":{"epoch":0,"at":{"s":{"p":7}},"from":{"s":{"p":2}},"finished":{"s":[]},"idle":{"s":[]},'
    b'"closed":{"s":false},"now":1790000000000000},"slices":2,"buckets":4,'
    b'"maps":{"version":0,"default":[0,0,1,1],"operators":{},"places":[]},"generation":1}'
)
MOST = (
    b'{"start":{"epoch":4,"at":{"s":{"p":7}},"from":{"s":{}},"finished":{"s":[]},"idle":{"s":["p"]},'
    b'"closed":{"s":false},"now":1790000000000000},'
    b'"end":{"epoch":5,"at":{"s":{"p":9,"q":5}},"from":{"s":{"q":3}},"finished":{"s":["p"]},"idle":{"s":[]},'
    b'"closed":{"s":true},"now":1790000001000000,"commands":3,"begun_late":{"s":["q"]},"upto":{"s":[19,2]},'
    b'"copies":{"s":{"q":1}}},"slices":2,"buckets":4,"checkpoint_every":3,'
    b'"before":{"watermarks":{"s":12,"t":null},"counters":{"events":8}},'
    b'"maps":{"version":2,"default":[0,0,1,1],"operators":{"a":[0,1,0,1]},"places":[["h","1"],null]},"generation":7}'
)


@pytest.mark.parametrize("content", [LEAST, MOST], ids=["least", "most"])
def test_a_record_of_format_1_is_read_and_written_with_the_same_fields(content: bytes) -> None:
    assert EpochRecord.from_bytes(content).to_bytes() == content[:-1] + b',"format":%d}' % FORMAT


def test_a_record_of_a_newer_format_is_refused() -> None:
    with pytest.raises(UserError) as refused:
        EpochRecord.from_bytes(LEAST[:-1] + b',"format":%d}' % (FORMAT + 1), "the epoch record 0.json")
    assert refused.value.condition == "STATE_OF_NEWER_FORMAT"
    assert "0.json" in refused.value.primary


def test_the_keys_on_disk_are_the_fields_of_a_record() -> None:
    end = Offset(
        5,
        at={"s": {"p": 9, "q": 5}},
        starts={"s": {"q": 3}},
        finished={"s": ("p",)},
        idle={"s": ()},
        closed={"s": True},
        admitted_at=1_790_000_001_000_000,
        commands=3,
        started_late={"s": ("q",)},
        watermark_limits={"s": (19, 2)},
        copies={"s": {"q": 1}},
    )
    record = EpochRecord.from_bytes(MOST)
    assert record == EpochRecord(
        Offset.from_json(json.loads(MOST)["start"]),
        end,
        slices=2,
        buckets=4,
        maps=BucketMaps((0, 0, 1, 1), {"a": (0, 1, 0, 1)}, (ExecutorLocation("h", "1"), None), 2),
        checkpoint_interval=3,
        before=WatermarksAndCounters({"s": 12, "t": None}, {"events": 8}),
        generation=7,
    )
    assert list(record.spans) == [("s", Span("p", 7, 9)), ("s", Span("q", 3, 5, 1))]


@pytest.mark.parametrize(
    "change",
    [
        {"end": None},
        {"start": []},
        {"end": {}},
        {"end": {"epoch": 0}},
        {"end": {"epoch": "0", "at": {}}},
        {"end": {"epoch": 0, "at": []}},
        {"end": {"epoch": 0, "at": {"s": 7}}},
        {"end": {"epoch": 0, "at": {"s": {"p": 7.5}}}},
        {"end": {"epoch": 0, "at": {}, "idle": {"s": "p"}}},
        {"end": {"epoch": 0, "at": {}, "upto": {"s": [1]}}},
        {"end": {"epoch": 0, "at": {}, "now": "noon"}},
        {"maps": {}},
        {"maps": 3},
        {"before": {}},
        {"checkpoint_every": "often"},
        {"generation": True},
    ],
)
def test_an_invalid_record_is_refused(change: dict[str, Any]) -> None:
    content = json.dumps({**json.loads(LEAST), **change}).encode()
    with pytest.raises(ValueError, match=r"."):
        EpochRecord.from_bytes(content)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"3", b"null", b"\xff", LEAST[:-9]])
def test_a_truncated_record_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        EpochRecord.from_bytes(content)


names = st.sampled_from(["s", "t", "äöü", ""])
numbers = st.integers(-1, 2**62)
lists = st.dictionaries(names, st.lists(names, max_size=3).map(tuple), max_size=2)
per_partition = st.dictionaries(names, st.dictionaries(names, numbers, max_size=3), max_size=2)
offsets = st.builds(
    Offset,
    epoch=numbers,
    at=per_partition,
    starts=per_partition,
    finished=lists,
    idle=lists,
    closed=st.dictionaries(names, st.booleans(), max_size=2),
    admitted_at=st.none() | numbers,
    commands=st.integers(0, 5),
    started_late=lists,
    watermark_limits=st.dictionaries(names, st.tuples(numbers, numbers), max_size=2),
    copies=per_partition,
)
records = st.builds(
    EpochRecord,
    offsets,
    offsets,
    slices=st.integers(0, 3),
    buckets=st.integers(0, 3),
    maps=st.none() | st.just(BucketMaps((0, 1), {"a": (1, 0)}, (None,), 3)),
    checkpoint_interval=st.none() | st.integers(1, 9),
    before=st.none() | st.just(WatermarksAndCounters({"s": None}, {"events": 1})),
    generation=st.integers(0, 3),
)


@given(records)
def test_a_record_that_is_read_back_equals_the_one_that_was_written(record: EpochRecord) -> None:
    assert EpochRecord.from_bytes(record.to_bytes()) == record


@given(records)
def test_a_record_that_is_read_is_written_with_the_same_bytes(record: EpochRecord) -> None:
    content = record.to_bytes()
    assert EpochRecord.from_bytes(content).to_bytes() == content
