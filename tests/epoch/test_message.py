"""Messages between tasks and driver arrive as they were sent."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.epoch import message
from penstock.epoch.message import (
    Envelope,
    EpochError,
    JobError,
    Message,
    PendingRows,
    Rows,
    ScanReport,
    SideOutput,
    SliceReport,
    SliceWork,
    Times,
    encode_rows,
    error_from_json,
    error_to_json,
    open_message,
)
from penstock.errors import ExternalError, InternalError, PenstockError, UserError
from penstock.query.steps import EdgeTarget, TargetKind
from penstock.state.collection import Changes
from penstock.state.ipc import stream_bytes
from penstock.state.run import RunEntry

FRAME = pl.DataFrame(
    {
        "user": ["ada", None, "żółw 🐢"],
        "list": [["a", None], [], None],
        "time": [datetime(2026, 1, 1, tzinfo=UTC), None, None],
        "hash": pl.Series([2**64 - 1, 0, None], dtype=pl.UInt64),
    }
)


@pytest.mark.parametrize(
    "frame", [FRAME, FRAME.clear(), FRAME.slice(1, 1), pl.concat([FRAME, FRAME], rechunk=False)]
)
@pytest.mark.parametrize("spilled", [False, True])
def test_rows_arrive_with_their_types(
    frame: pl.DataFrame, spilled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message, "SPILL_BYTES", 0)
    sent = Rows(EdgeTarget("stage", "1-ż"), frame, 1)
    data = sent.to_bytes(str(tmp_path) if spilled else None)
    assert len(list(tmp_path.iterdir())) == spilled
    found = open_message(data)
    assert isinstance(found, Rows)
    assert (found.target, found.port) == (sent.target, 1)
    assert found.frame.equals(frame)
    assert found.frame.schema == frame.schema


def test_many_rows_travel_in_several_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pl.concat([FRAME] * 50)
    monkeypatch.setattr(message, "FRAME_BYTES", rows.estimated_size() // 4)
    target = EdgeTarget("output", "rows")
    found = [open_message(data) for data in encode_rows(target, rows, 2)]
    assert len(found) > 3
    assert all(isinstance(one, Rows) and (one.target, one.port) == (target, 2) for one in found)
    assert pl.concat([one.payload for one in found if one.payload is not None]).equals(rows)
    assert list(encode_rows(target, rows.clear())) == []


names = st.text(max_size=5)
numbers = st.integers(-(2**62), 2**62)
seconds = st.floats(0, 1e6)
common = {
    "seconds": seconds,
    "cpu_seconds": seconds,
    "executor": names,
    "memory": st.dictionaries(numbers, st.tuples(numbers, numbers), max_size=2),
    "job_seconds": st.dictionaries(numbers, seconds, max_size=2),
}
scan_reports = st.builds(
    ScanReport,
    **common,
    events=numbers,
    bytes=numbers,
    late=numbers,
    dead_letters=numbers,
    oldest=st.none() | numbers,
    newest=st.none() | numbers,
)
entries = st.builds(
    RunEntry,
    names,
    numbers,
    numbers,
    numbers,
    st.dictionaries(st.integers(0, 9), st.tuples(numbers, numbers), max_size=3),
    st.none() | numbers,
    st.none() | numbers,
)
changes = st.builds(
    Changes,
    st.lists(entries, max_size=2).map(tuple),
    st.lists(st.tuples(names, st.frozensets(st.integers(0, 9))), max_size=2).map(tuple),
)
lists = st.lists(numbers, max_size=3)
slice_reports = st.builds(
    SliceReport,
    **common,
    level=st.integers(1, 9),
    slice=st.integers(0, 9),
    rows=numbers,
    changes=st.lists(st.tuples(names, names, changes), max_size=2).map(tuple),
    work=st.dictionaries(names, st.builds(SliceWork, seconds, numbers, numbers, lists, lists), max_size=2),
    pending=st.lists(
        st.builds(PendingRows, names, lists.map(tuple), st.dictionaries(numbers, numbers, max_size=2)),
        max_size=2,
    ).map(tuple),
)
times = st.builds(Times, st.dictionaries(names, st.dictionaries(names, numbers, max_size=3), max_size=3))


@pytest.mark.slow
@given(scan_reports | slice_reports | times)
def test_reports_of_tasks_arrive_as_they_were_sent(sent: Message) -> None:
    data = sent.to_bytes()
    assert open_message(data) == sent
    assert Envelope(data).target is None


@given(st.sampled_from(["stage", "output"]), names, st.integers(0, 3))
def test_the_target_of_rows_is_read_without_the_frame(kind: TargetKind, name: str, port: int) -> None:
    data = Rows(EdgeTarget(kind, name), FRAME, port).to_bytes()
    header = data[: len(data) - len(stream_bytes(FRAME))]
    assert Envelope(header).target == EdgeTarget(kind, name)


def test_side_output_arrives() -> None:
    found = open_message(SideOutput(FRAME).to_bytes())
    assert isinstance(found, SideOutput)
    assert found.frame.equals(FRAME)


@pytest.mark.parametrize("kind", [UserError, ExternalError, InternalError])
def test_an_error_arrives_complete(kind: type[PenstockError]) -> None:
    sent = kind("SOME_CONDITION", "it broke", detail="d", hint="h", where="app.py:3 `x`")
    for message_ in (EpochError(sent), JobError(7, sent)):
        found = open_message(message_.to_bytes())
        assert isinstance(found, EpochError | JobError)
        assert type(found.error) is kind
        assert str(found.error) == str(sent)
        assert (found.error.retry, found.error.exit_code) == (sent.retry, sent.exit_code)
        assert not isinstance(found, JobError) or found.job == 7


def test_an_error_of_an_unknown_class_is_an_internal_error() -> None:
    body = error_to_json(UserError("X", "y"))
    assert isinstance(error_from_json({**body, "class": "SomethingElse"}), InternalError)
