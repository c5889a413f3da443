"""What a sink remembers of its newest epochs: a bounded text."""

from __future__ import annotations

import pytest

from penstock.errors import UserError
from penstock.sinks.recent_epochs import RECENT_EPOCHS, add_epoch, check_same, digest_in, newest_in


def test_the_newest_are_remembered() -> None:
    recent = ""
    for epoch in range(3 * RECENT_EPOCHS):
        recent = add_epoch(recent, epoch, f"{epoch:016x}")
    assert recent.count(";") == RECENT_EPOCHS
    assert newest_in(recent) == 3 * RECENT_EPOCHS - 1
    assert digest_in(recent, 2 * RECENT_EPOCHS) == f"{2 * RECENT_EPOCHS:016x}"
    assert digest_in(recent, 2 * RECENT_EPOCHS - 1) == ""


def test_an_epoch_of_a_former_version_is_not_remembered() -> None:
    assert add_epoch("7=ab;", 8, "") == "7=ab;"
    assert newest_in("") == -1


def test_numbers_that_end_alike_are_different_epochs() -> None:
    recent = add_epoch(add_epoch("", 115, "aa"), 15, "bb")
    assert (digest_in(recent, 15), digest_in(recent, 115), digest_in(recent, 5)) == ("bb", "aa", "")


@pytest.mark.parametrize("damaged", ["\0\0\0", "x=1;", "12", "=;=;"])
def test_damaged_text_counts_as_nothing(damaged: str) -> None:
    assert newest_in(damaged) == -1
    assert add_epoch(damaged, 3, "ab") == "3=ab;"


def test_another_digest_is_refused() -> None:
    check_same("a table", "3=ab;", 3, "ab")
    check_same("a table", "3=ab;", 3, "")
    check_same("a table", "3=ab;", 4, "cd")
    with pytest.raises(UserError, match=r"STATE_RESTORED.*another epoch 3"):
        check_same("a table", "3=ab;", 3, "cd")
