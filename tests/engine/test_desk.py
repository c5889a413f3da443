"""The desk that Spark's source asks: what Spark hears before there is an engine, and where the engine goes on from."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.engine import desk as desk_module
from penstock.engine.desk import SourceDesk


class Told:
    """An admission that admits what it is told to."""

    def __init__(self, *ends: dict[str, Any]) -> None:
        self.asked: list[dict[str, Any]] = []
        self._ends = list(ends)
        self.failure: BaseException | None = None

    def initial(self) -> dict[str, Any]:
        return {"epoch": -1, "at": {}}

    def latest(self, start: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(start)
        return self._ends.pop(0) if self._ends else start


@pytest.fixture
def desk() -> Iterator[SourceDesk]:
    made = SourceDesk()
    yield made
    made.close()


def asked(desk: SourceDesk, *question: Any) -> Any:
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(desk.path)
        with line.makefile("rw", encoding="utf-8") as file:
            file.write(json.dumps(question) + "\n")
            file.flush()
            kind, answer = json.loads(file.readline())
    assert kind == "ok", answer
    return answer


def test_spark_gets_one_batch_and_then_waits(desk: SourceDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk_module, "_WAIT_SECONDS", 0.01)
    before = asked(desk, "initial")
    waiting = asked(desk, "latest", before)
    assert waiting != before
    assert asked(desk, "latest", waiting) == waiting
    assert asked(desk, "latest", waiting) == waiting


def test_an_engine_goes_on_from_where_it_says(desk: SourceDesk) -> None:
    waiting = asked(desk, "latest", asked(desk, "initial"))
    reached, eight, nine = ({"epoch": epoch, "at": {"clicks": {"a": epoch}}} for epoch in (7, 8, 9))
    admission = Told(reached, eight, nine)
    desk.take_over(admission, reached)  # type: ignore[arg-type]
    assert asked(desk, "latest", waiting) == waiting, "nothing yet"
    assert asked(desk, "latest", waiting) == eight
    asked(desk, "planned", waiting, eight)
    assert desk.planned == (reached, eight)
    assert asked(desk, "latest", eight) == nine
    asked(desk, "planned", eight, nine)
    assert desk.planned == (eight, nine)
    assert admission.asked == [reached, reached, eight]


def test_who_waits_is_answered_as_soon_as_there_is_an_engine(desk: SourceDesk) -> None:
    waiting = asked(desk, "latest", asked(desk, "initial"))
    first = {"epoch": 0, "at": {}}
    answers: list[Any] = []

    def ask() -> None:
        while not answers or answers[-1] == waiting:
            answers.append(asked(desk, "latest", waiting))

    thread = threading.Thread(target=ask)
    thread.start()
    desk.take_over(Told(first), {"epoch": -1, "at": {}})  # type: ignore[arg-type]
    thread.join(30)
    assert answers[-1] == first
