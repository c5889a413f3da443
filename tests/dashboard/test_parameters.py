"""The form of a job's parameters: typed text becomes values, and the changed ones become one ALTER."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.dashboard.backend import Backend
from penstock.dashboard.parameters import Inputs, parse_value
from penstock.errors import UserError
from penstock.server.request_bodies import Value
from tests.server import kit

FEW = """CREATE JOB few AS SELECT page FROM clicks WHERE status >= $least AND page <> $but
WITH ($least = 404, $but = '/a')"""


@pytest.mark.parametrize(
    ("typed", "current", "value"),
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
def test_typed_text_becomes_a_value_of_the_type_of_the_current_one(
    typed: str, current: Value, value: Value
) -> None:
    parsed = parse_value("p", typed, current)
    assert (type(parsed), parsed) == (type(value), value)


@pytest.mark.parametrize(
    ("typed", "current"),
    [("abc", 404), ("", 404), ("1" * 5_000, 404), ("nan", 0.5), ("inf", 0.5), ("", None)],
)
def test_typed_text_of_another_type_is_refused(typed: str, current: Value) -> None:
    with pytest.raises(UserError, match="BAD_VALUE"):
        parse_value("p", typed, current)


def inputs(**values: Value) -> Inputs:
    form = Inputs()
    form.update(values)
    return form


@pytest.mark.parametrize("value", [None, True, False, 404, -1, 0.25, 1e300, "text", "it's \\ 'so'", ""])
def test_a_value_that_was_not_edited_is_not_changed(value: Value) -> None:
    assert inputs(p=value).changes() == {}


def test_only_changed_values_are_set() -> None:
    form = inputs(least=404, but="/a", flag=True, size=1)
    form.texts |= {"least": "404 ", "but": "/b", "flag": "false", "size": "1.0"}
    assert form.changes() == {"but": "/b", "flag": False, "size": 1.0}


def test_an_edited_input_stays_when_the_job_is_altered_elsewhere() -> None:
    form = inputs(least=404, but="/a")
    form.texts["least"] = "many"
    form.update({"least": 200, "but": "/c", "new": 1})
    assert form.texts == {"least": "many", "but": "/c", "new": "1"}
    form.update({"new": 1})
    assert form.texts == {"new": "1"}


def test_changed_values_are_checked_and_set_by_one_alter(state: Path) -> None:
    with kit.site(state, FEW, events=50) as site:
        backend, form = Backend(site.running.service), Inputs()

        def current_parameters() -> dict[str, Value]:
            parameters: dict[str, Value] = site.get("/jobs/few")["parameters"]
            return parameters

        form.update(current_parameters())
        assert form.texts == {"least": "404", "but": "/a"}
        assert form.check(backend, "few") is None, "nothing is changed"
        form.texts |= {"least": "500", "but": "/it's; DROP JOB few"}
        checked = form.check(backend, "few")
        assert checked is not None
        assert (checked.says, checked.command) == ("altered job few; it needs no state", None)
        assert current_parameters() == {"least": 404, "but": "/a"}, "the values are only checked"
        done = form.set(backend, "few")
        assert (done.says, done.command) == (checked.says, 2)
        assert current_parameters() == {"least": 500, "but": "/it's; DROP JOB few"}
        form.update(current_parameters())
        assert form.check(backend, "few") is None
        form.texts["least"] = "many"
        with pytest.raises(UserError, match="BAD_VALUE"):
            form.set(backend, "few")
        assert current_parameters()["least"] == 500


def test_a_value_that_the_query_cannot_use_is_refused(state: Path) -> None:
    with kit.site(state, FEW, events=5) as site:
        backend = Backend(site.running.service)
        with pytest.raises(UserError):
            backend.set_parameters("few", {"least": "text"}, check=True)
        with pytest.raises(UserError, match="UNKNOWN_JOB"):
            backend.set_parameters("nobody", {"least": 1})
