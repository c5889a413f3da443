"""What state of format 1 was known by is worked out from kinds, whatever classes and fields are called today."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from penstock.operators.custom import CustomOperator
from penstock.operators.identity import kind_of
from penstock.query.format_1 import former_group_id, former_id, former_repr
from tests.operators.samples import SAMPLES, SUM, WINDOW, Throttle

#: what `repr` of the samples was when the format was 1, a line each
REPRS = Path(__file__).with_name("format_1_reprs.txt").read_text().splitlines()


@pytest.mark.parametrize(
    ("sample", "then"), list(zip(SAMPLES, REPRS, strict=True)), ids=[str(kind_of(one)) for one in SAMPLES]
)
def test_the_former_repr_of_everything_is_known(sample: Any, then: str) -> None:
    assert former_repr(sample) == then


def test_a_renamed_class_with_reordered_fields_has_the_former_repr() -> None:
    fields = dataclasses.fields(WINDOW)[::-1]
    made = dataclasses.make_dataclass(
        "Renamed",
        [(one.name, int, dataclasses.field(kw_only=True)) for one in fields],
        namespace={"kind": "time-window"},
    )
    assert former_repr(made(size=60, advance=10, offset=5)) == "TimeWindow(size=60, advance=10, offset=5)"


@pytest.mark.parametrize(
    ("id_", "kind", "then"),
    [
        ("1-time-window-aggregate", "time-window-aggregate", "1-aggregation"),
        ("j12.3-interval-join", "interval-join", "j12.3-timejoin"),
        ("2-deduplicate", "deduplicate", "2-distinct"),
    ],
)
def test_the_former_id_ends_with_the_name_that_the_class_had(id_: str, kind: str, then: str) -> None:
    operator = next(one for one in SAMPLES if kind_of(one) == kind)
    assert former_id(id_, operator) == then


def test_the_former_id_of_a_template_group_was_a_digest_of_its_shape() -> None:
    key_types = (pl.String(),)
    assert former_group_id("clicks", key_types, (SUM,), None) == "jobs-17498fdcf041"
    assert former_group_id("clicks", key_types, (SUM,), WINDOW) == "jobs-390afe7d4063"


def test_a_users_operator_that_says_its_own_repr_is_known_by_that() -> None:
    class Own(CustomOperator):
        def __repr__(self) -> str:
            return "mine"

    assert former_repr(Own()) == "mine"
    assert former_repr(Throttle(2)).startswith("Throttle(most=2, per=")
