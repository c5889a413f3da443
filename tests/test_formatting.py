"""Texts of senders do nothing to the terminal that shows them."""

from __future__ import annotations

import json

import pytest

from penstock.cli import jobs
from penstock.formatting import printable

HOSTILE = "a\x1b[31mred\x1b]0;title\x07\x9b2J\u202egpj.exe\x7f\r\x00b"


def test_control_characters_are_shown_and_not_executed() -> None:
    shown = printable(HOSTILE)
    assert shown.isprintable()
    assert shown.startswith("a\\u001b[31mred")
    assert printable("ä 漢\t\n🙂") == "ä 漢\t\n🙂"


def test_json_stays_the_same_json() -> None:
    text = json.dumps({"a": HOSTILE + "\u2028"}, ensure_ascii=False)
    assert printable(text).isprintable()
    assert json.loads(printable(text)) == json.loads(text)


@pytest.mark.parametrize(
    "value", [HOSTILE, "[red]x[/red]", "[/x]", "\\[/x]", "[link=http://x]y[/link]", "x\\"]
)
def test_a_table_of_results_shows_what_is_in_the_rows(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    jobs._table([value], [[value], [None]], None)
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "\x9b" not in shown
    first = value if value is not HOSTILE else "a\\u001b"
    assert shown.count(first) == 2
