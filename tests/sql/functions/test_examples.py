"""Every function does what its example in the docs says."""

from __future__ import annotations

import pytest

from penstock.sql.functions import FAMILIES, FUNCTIONS
from tests.sql.functions.evaluator import value


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_the_example_gives_its_result(name: str) -> None:
    function = FUNCTIONS[name]
    shown, expected = value(function.example), value(function.result)
    assert shown == expected
    assert type(shown) is type(expected)
    assert function.example.startswith(function.name + "(")


def test_no_two_families_share_a_name() -> None:
    assert sum(len(family.by_name) for family in FAMILIES) == len(FUNCTIONS)
    assert all(name == name.lower() for name in FUNCTIONS)
