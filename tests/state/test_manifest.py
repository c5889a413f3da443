"""A manifest is read exactly as it was written, or reported as damaged."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.state.collection import Changes
from penstock.state.manifest import Manifest, PartitionTime, StreamTime
from penstock.state.run import RunEntry

SHARED = RunEntry("op.t/000000000002-b.run", 2, 3, 70, {1: (0, 3)})
MANIFEST = Manifest(
    epoch=12,
    collections={
        "1-last-n": {
            "last": (RunEntry("op.t/000000000001-a.run", 1, 4, 50, {0: (0, 1), 9: (1, 3)}, -7, 8), SHARED),
            "waiting": (),
        },
        "out-ż": {"best": (SHARED,)},
    },
    streams={
        "clicks": StreamTime(
            {"p/ü": PartitionTime(0, 17, idle=True), "q": PartitionTime(1, None, finished=True)}, -(2**62)
        ),
        "none": StreamTime(),
    },
    last_results={"top": "QUJD"},
    counters={"events": 2**60},
)


def test_a_manifest_is_read_as_it_was_written() -> None:
    assert Manifest.from_bytes(MANIFEST.to_bytes()) == MANIFEST
    assert Manifest.from_bytes(Manifest().to_bytes()) == Manifest()


def test_a_manifest_counts_a_run_once() -> None:
    assert MANIFEST.runs() == {"op.t/000000000001-a.run", "op.t/000000000002-b.run"}
    assert MANIFEST.state_bytes() == 120


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_a_changed_byte_anywhere_is_detected(data: st.DataObject) -> None:
    content = MANIFEST.to_bytes()
    at = data.draw(st.integers(0, len(content) - 2))
    byte = data.draw(st.integers(0, 255).filter(lambda b: b != content[at]))
    changed = content[:at] + bytes([byte]) + content[at + 1 :]
    with contextlib.suppress(ValueError):
        assert Manifest.from_bytes(changed) == MANIFEST, "only the notation of the checksum may differ"


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_a_manifest_truncated_anywhere_is_detected(data: st.DataObject) -> None:
    content = MANIFEST.to_bytes()
    size = data.draw(st.integers(0, len(content) - 2))
    with pytest.raises(ValueError):
        Manifest.from_bytes(content[:size])


def test_advancing_a_manifest_does_not_change_it() -> None:
    before = MANIFEST.to_bytes()
    added = RunEntry("new", 13, 1, 1, {0: (0, 1)})
    after = MANIFEST.advance(
        13,
        [
            ("1-last-n", "last", Changes((added,), ((SHARED.name, frozenset({1})),))),
            ("new-op", "t", Changes((added,))),
        ],
        counters={"events": 1},
    )
    assert MANIFEST.to_bytes() == before
    assert [entry.name for entry in after.entries("1-last-n", "last")] == ["op.t/000000000001-a.run", "new"]
    assert after.entries("out-ż", "best") == (SHARED,)
    assert after.entries("new-op", "t") == (added,)
    assert (after.epoch, after.counters, after.last_results) == (13, {"events": 1}, MANIFEST.last_results)
