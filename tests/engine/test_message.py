"""Messages arrive as they were sent."""

from __future__ import annotations

from datetime import UTC, datetime

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.message import Message, address, error_message, error_of
from penstock.words.errors import ExternalError, InternalError, PenstockError, UserError

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
def test_a_frame_arrives_with_its_types(frame: pl.DataFrame) -> None:
    message = Message.from_bytes(Message("rows", "1-ż", {"n": 1}, frame).to_bytes())
    assert (message.kind, message.to, message.facts) == ("rows", "1-ż", {"n": 1})
    assert message.frame is not None
    assert message.frame.equals(frame)
    assert message.frame.schema == frame.schema


facts = st.dictionaries(
    st.text(), st.none() | st.integers() | st.text() | st.lists(st.integers()), max_size=4
)


@given(st.text(), st.text(), facts)
def test_facts_of_any_length_arrive_without_a_frame(kind: str, to: str, sent: dict[str, object]) -> None:
    data = Message(kind, to, sent).to_bytes()
    assert Message.from_bytes(data) == Message(kind, to, sent)
    assert address(data) == (kind, to)


@given(facts)
def test_the_address_is_read_without_the_frame(sent: dict[str, object]) -> None:
    data = Message("rows", "out:x", sent, FRAME).to_bytes()
    assert address(data) == ("rows", "out:x")
    found = Message.from_bytes(data).frame
    assert found is not None
    assert found.equals(FRAME)


@pytest.mark.parametrize("kind", [UserError, ExternalError, InternalError])
def test_an_error_arrives_whole(kind: type[PenstockError]) -> None:
    sent = kind("SOME_CONDITION", "it broke", detail="d", hint="h", where="app.py:3 `x`")
    found = error_of(Message.from_bytes(error_message(sent).to_bytes()))
    assert type(found) is kind
    assert str(found) == str(sent)
    assert (found.retry, found.exit_code) == (sent.retry, sent.exit_code)


def test_an_error_of_an_unknown_class_is_ours() -> None:
    message = error_message(UserError("X", "y"))
    message.facts["class"] = "SomethingElse"
    assert isinstance(error_of(message), InternalError)
