"""Every function returns the result of its example in the docs."""

from __future__ import annotations

import pytest

from penstock.sql.functions import FAMILIES, FUNCTIONS
from tests.sql.functions.evaluator import evaluate


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_a_function_returns_the_result_of_its_example(name: str) -> None:
    function = FUNCTIONS[name]
    shown, expected = evaluate(function.example), evaluate(function.result)
    assert shown == expected
    assert type(shown) is type(expected)
    assert function.example.startswith(function.name + "(")


def test_no_two_families_share_a_name() -> None:
    assert sum(len(family.by_name) for family in FAMILIES) == len(FUNCTIONS)
    assert all(name == name.lower() for name in FUNCTIONS)
