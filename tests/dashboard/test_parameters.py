"""The form of a job's parameters: what is typed becomes values, and what is set is one ALTER."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.dashboard.board import Board
from penstock.dashboard.parameters import Draft, value_of
from penstock.errors import UserError
from penstock.server.request_bodies import Value
from tests.server import kit

FEW = """CREATE JOB few AS SELECT page FROM clicks WHERE status >= $least AND page <> $but
WITH ($least = 404, $but = '/a')"""


@pytest.mark.parametrize(
    ("typed", "now", "value"),
    [
        ("500", 404, 500),
        (" -3 ", 404, -3),
        ("0.5", 404, 0.5),
        ("1e3", 2.5, 1000.0),
        ("true", False, True),
        ("NULL", 404, None),
        ("500", "404", "500"),
        ("null", "x", "null"),
        ("", "x", ""),
        (" it's ", "x", " it's "),
        ("7", None, 7),
        ("/b", None, "/b"),
    ],
)
def test_what_is_typed_is_a_value_like_the_one_before(typed: str, now: Value, value: Value) -> None:
    found = value_of("p", typed, now)
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(
    ("typed", "now"), [("abc", 404), ("", 404), ("1" * 5_000, 404), ("nan", 0.5), ("inf", 0.5), ("", None)]
)
def test_what_is_no_value_is_said(typed: str, now: Value) -> None:
    with pytest.raises(UserError, match="BAD_VALUE"):
        value_of("p", typed, now)


def draft(**known: Value) -> Draft:
    made = Draft()
    made.seen(known)
    return made


@pytest.mark.parametrize("value", [None, True, False, 404, -1, 0.25, 1e300, "text", "it's \\ 'so'", ""])
def test_a_value_that_nobody_touched_is_not_changed(value: Value) -> None:
    assert draft(p=value).changed() == {}


def test_only_what_is_changed_is_said() -> None:
    form = draft(least=404, but="/a", flag=True, size=1)
    form.typed |= {"least": "404 ", "but": "/b", "flag": "false", "size": "1.0"}
    assert form.changed() == {"but": "/b", "flag": False, "size": 1.0}


def test_what_somebody_types_stays_when_the_job_is_altered_elsewhere() -> None:
    form = draft(least=404, but="/a")
    form.typed["least"] = "many"
    form.seen({"least": 200, "but": "/c", "new": 1})
    assert form.typed == {"least": "many", "but": "/c", "new": "1"}
    form.seen({"new": 1})
    assert form.typed == {"new": "1"}


def test_what_is_typed_is_checked_and_set_as_one_alter(state: Path) -> None:
    with kit.site(state, FEW, events=50) as site:
        board, form = Board(site.running.service), Draft()

        def in_force() -> dict[str, Value]:
            found: dict[str, Value] = site.get("/jobs/few")["parameters"]
            return found

        form.seen(in_force())
        assert form.typed == {"least": "404", "but": "/a"}
        assert form.check(board, "few") is None, "nothing is changed"
        form.typed |= {"least": "500", "but": "/it's; DROP JOB few"}
        would = form.check(board, "few")
        assert would is not None
        assert (would.says, would.command) == ("altered job few; it needs no state", None)
        assert in_force() == {"least": 404, "but": "/a"}, "only checked so far"
        done = form.set(board, "few")
        assert (done.says, done.command) == (would.says, 2)
        assert in_force() == {"least": 500, "but": "/it's; DROP JOB few"}
        form.seen(in_force())
        assert form.check(board, "few") is None
        form.typed["least"] = "many"
        with pytest.raises(UserError, match="BAD_VALUE"):
            form.set(board, "few")
        assert in_force()["least"] == 500


def test_what_the_query_cannot_take_is_refused(state: Path) -> None:
    with kit.site(state, FEW, events=5) as site:
        board = Board(site.running.service)
        with pytest.raises(UserError):
            board.set_parameters("few", {"least": "text"}, check=True)
        with pytest.raises(UserError, match="UNKNOWN_JOB"):
            board.set_parameters("nobody", {"least": 1})
