"""The identity of an operator's state depends on kinds and settings, and on no name of a class."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, ClassVar

import numpy as np
import polars as pl
import pytest

from penstock.errors import InternalError
from penstock.operators.aggregate import Aggregation
from penstock.operators.contract import Operator
from penstock.operators.custom import CustomOperator
from penstock.operators.functions.contract import AggregateFunction
from penstock.operators.identity import (
    NOT_STATE,
    digest_of,
    encode,
    kind_of,
    readable_versions,
    settings_of,
    stored_as,
    versions_of,
)
from penstock.origin import Origin
from tests.operators.samples import SAMPLES, SETTINGS, SUM, TUMBLING, Throttle, fold, kinds, other

named = pytest.mark.parametrize("sample", SAMPLES, ids=lambda one: str(kind_of(one)))


def below(base: type) -> set[type]:
    return {one for found in base.__subclasses__() for one in (found, *below(found))}


def test_every_operator_and_aggregate_function_has_a_kind_and_a_version_of_its_own() -> None:
    declared = set(kinds())
    concrete = {
        one
        for one in below(Operator) | below(AggregateFunction)
        if not inspect.isabstract(one) and one.__module__.startswith("penstock.")
    }
    unnamed = {one for one in concrete if "kind" not in vars(one)}
    # bases of several operators, which nobody makes by themselves
    assert {one.__name__ for one in unnamed} <= {
        "PaneOperator",
        "StrictOperator",
        "EventWindows",
        "KeyedJoin",
        "_FlushableAggregation",
    }
    assert {one for one in declared if "state_version" not in vars(one)} == set()


def test_kinds_are_unique_and_in_kebab_case() -> None:
    found = [vars(one)["kind"] for one in kinds()]
    assert len(set(found)) == len(found)
    assert [kind for kind in found if not re.fullmatch(r"[a-z]+(-[a-z]+)*", kind)] == []


def test_there_is_a_sample_of_every_kind() -> None:
    assert {vars(one)["kind"] for one in kinds()} == {kind_of(one) for one in SAMPLES}


@named
def test_a_class_of_another_name_has_the_same_encoding(sample: Any) -> None:
    renamed = type("Renamed", (type(sample),), {"__doc__": "", "__module__": "elsewhere"})
    values = {one.name: getattr(sample, one.name) for one in dataclasses.fields(sample)}
    assert encode(renamed(**values)) == encode(sample)


@named
def test_the_order_of_fields_does_not_count(sample: Any) -> None:
    fields = dataclasses.fields(sample)[::-1]
    made = dataclasses.make_dataclass(
        "Reordered",
        [(one.name, Any, field(kw_only=True, default=one.default, metadata=one.metadata)) for one in fields],
        namespace={"kind": kind_of(sample)},
    )
    assert encode(made(**{one.name: getattr(sample, one.name) for one in fields})) == encode(sample)


@pytest.mark.parametrize(
    ("sample", "name"), SETTINGS, ids=lambda one: one if isinstance(one, str) else kind_of(one)
)
def test_every_setting_counts(sample: Any, name: str) -> None:
    changed = dataclasses.replace(sample, **{name: other(getattr(sample, name))})
    assert digest_of(encode(changed)) != digest_of(encode(sample))


@named
def test_an_encoding_names_no_class(sample: Any) -> None:
    text = str(encode(sample))
    assert [one.__name__ for one in kinds() if f"'{one.__name__}'" in text] == []
    assert " at 0x" not in text


@pytest.mark.process
def test_encodings_are_the_same_in_another_process() -> None:
    code = (
        "from tests.operators.samples import SAMPLES\n"
        "from penstock.operators.identity import canonical, encode\n"
        "print('\\n'.join(canonical(encode(one)) for one in SAMPLES))\n"
        "print(canonical(encode({'c', 'a', 'b', 'd'})))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
    assert len(outputs.pop().splitlines()) == len(SAMPLES) + 1


def test_a_field_of_another_name_is_encoded_by_the_name_it_is_stored_as() -> None:
    @dataclass(frozen=True)
    class Former:
        kind: ClassVar[str] = "some"
        size: int

    @dataclass(frozen=True)
    class Now:
        kind: ClassVar[str] = "some"
        length: int = field(metadata=stored_as("size"))

    assert encode(Now(3)) == encode(Former(3))
    assert settings_of(Now(3)) == {"size": 3}


def test_a_setting_at_its_default_is_as_if_there_were_none() -> None:
    @dataclass(frozen=True)
    class Former:
        kind: ClassVar[str] = "some"

    @dataclass(frozen=True)
    class Now:
        kind: ClassVar[str] = "some"
        more: int = 1

    assert encode(Now()) == encode(Former())
    assert encode(Now(2)) != encode(Former())


def test_what_does_not_change_state_is_left_out() -> None:
    @dataclass(frozen=True)
    class Hinted:
        kind: ClassVar[str] = "some"
        origin: Origin | None = field(metadata=NOT_STATE)

    assert encode(Hinted(Origin("a.py", 1))) == encode(Hinted(None)) == {"kind": "some"}


VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, 1.0, -0.5, float("nan"), float("inf"), "", "1", b"1", b"", (), ("1",), (1,), ((1,),),
    {}, {"a": 1}, {"a": "1"}, {1: "a"}, {"1": "a"}, set(), {1}, {1, 2}, timedelta(seconds=1), timedelta(seconds=2),
    date(2020, 1, 1), datetime(2020, 1, 1), datetime(2020, 1, 1, tzinfo=UTC), Decimal("1.0"), Decimal("1"), UTC,
    np.int8(1), np.int16(1), np.float32(1), np.array([1, 2]), np.array([1, 2], dtype=np.int8),
    pl.Series([1, 2]), pl.Series(["1", "2"]), pl.DataFrame({"a": [1]}), pl.DataFrame({"b": [1]}),
    pl.col("a"), pl.col("b"), pl.col("a") + 1, pl.lit("a"), fold, functools.partial(fold, 1),
    functools.partial(fold, 2),
    pl.Int64(), pl.Int32(), pl.String(), pl.Categorical(), pl.Datetime("us"), pl.Datetime("ms"),
    pl.Datetime("us", "UTC"), pl.Duration("us"), pl.Duration("ms"), pl.Decimal(10, 2), pl.Decimal(10, 3),
    pl.List(pl.Int64()), pl.List(pl.Int8()), pl.Array(pl.Int64(), 2), pl.Array(pl.Int64(), 3),
    pl.Array(pl.Int64(), (2, 3)), pl.Struct({"a": pl.Int64()}), pl.Struct({"b": pl.Int64()}),
    pl.Struct({"a": pl.Int8()}),
    pl.Enum(["a"]), pl.Enum(["b"]), Throttle(), Throttle(4), Throttle(per=timedelta(1)),
)  # fmt: skip


def test_values_that_differ_have_encodings_that_differ() -> None:
    digests = [digest_of(encode(value)) for value in VALUES]
    doubled = [value for value, digest in zip(VALUES, digests, strict=True) if digests.count(digest) > 1]
    assert doubled == []


def test_a_mapping_is_the_same_in_any_order() -> None:
    assert encode({"a": 1, "b": 2}) == encode({"b": 2, "a": 1})


def test_a_member_of_an_enum_is_its_value() -> None:
    first = Enum("Ties", {"left": "left"})
    renamed = Enum("Draws", {"LEFT": "left"})
    assert encode(first.left) == encode(renamed.LEFT)  # type: ignore[attr-defined]


@pytest.mark.parametrize("value", [object(), Origin("a.py", 1), [object()], {"a": object()}])
def test_a_value_that_is_not_known_is_a_defect(value: object) -> None:
    with pytest.raises(InternalError) as refused:
        encode(value)
    assert refused.value.condition == "NO_IDENTITY"


# -- a user's operators -------------------------------------------------------------------------------


def test_a_users_operator_is_known_by_its_class_and_plain_attributes() -> None:
    assert encode(Throttle(4)) != encode(Throttle(3))
    one, two = Throttle(3), Throttle(3)
    two.table = pl.DataFrame({"y": [2]})  # no plain value: its name alone counts
    assert encode(one) == encode(two)
    two.more = object()  # type: ignore[attr-defined]
    assert encode(one) != encode(two)


def test_a_users_operator_with_a_kind_can_be_renamed() -> None:
    class Former(CustomOperator):
        kind = "throttle"

    class Now(CustomOperator):
        kind = "throttle"

    assert encode(Former()) == encode(Now())


# -- versions -----------------------------------------------------------------------------------------


def test_versions_are_those_of_all_that_is_in_an_operator_and_not_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    operator = Aggregation(("user",), TUMBLING, (SUM,))
    assert versions_of(operator) == {}
    monkeypatch.setattr(type(SUM), "state_version", 3)
    monkeypatch.setattr(type(SUM), "reads_versions", frozenset({2}))
    assert versions_of(operator) == {"sum": 3}
    assert readable_versions(operator) == {"sum": frozenset({2})}
