"""Spark itself is the oracle: every function, over tricky values, has the result of Spark without ANSI mode."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import polars as pl
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as st

from tests.sql.functions.case import INSTANT, Case
from tests.sql.functions.cases import CASES
from tests.sql.functions.evaluator import compile_expression

_TYPES = {
    pl.String: st.StringType(),
    pl.Int32: st.IntegerType(),
    pl.Int64: st.LongType(),
    pl.Float64: st.DoubleType(),
    pl.Date: st.DateType(),
}


@pytest.fixture(scope="module")
def plain(spark: SparkSession) -> Iterator[SparkSession]:
    """A session of Spark without ANSI mode, in UTC, that keeps backslashes in literals."""
    session = spark.newSession()
    session.conf.set("spark.sql.ansi.enabled", "false")
    session.conf.set("spark.sql.session.timeZone", "UTC")
    session.conf.set("spark.sql.parser.escapedStringLiterals", "true")
    session.conf.set("spark.sql.variable.substitute", "false")
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    return session


@pytest.mark.spark
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_function_returns_the_value_of_spark(plain: SparkSession, case: Case) -> None:
    theirs, ours = spark_results(plain, case), penstock_results(case)
    differences = [
        f"{call} of {row}: Spark returns {their!r}, Penstock {our!r}"
        for call in case.calls
        for row, their, our in zip(case.frame.rows(), theirs[call], ours[call], strict=True)
        if not are_equal(their, our)
    ]
    assert not differences, "\n" + "\n".join(differences)


def penstock_results(case: Case) -> dict[str, list[object]]:
    results = {}
    for call in case.calls:
        expr = compile_expression(call, dict(case.frame.schema)).expr
        result = case.frame.with_columns(expr.alias("_it"))["_it"]
        results[call] = (result.to_physical() if result.dtype.is_temporal() else result).to_list()
    return results


def spark_results(plain: SparkSession, case: Case) -> dict[str, list[object]]:
    times = [name for name, dtype in case.frame.schema.items() if dtype == INSTANT]
    fields = [st.StructField(name, _spark_type(dtype)) for name, dtype in case.frame.schema.items()]
    rows = case.frame.with_columns(pl.col(name).to_physical() for name in times).rows()
    frame = plain.createDataFrame(rows, st.StructType(fields)).coalesce(1)
    for name in times:
        frame = frame.selectExpr(*(f"timestamp_micros({c}) {c}" if c == name else c for c in frame.columns))
    result = frame.selectExpr(*(f"{_quoted(call)} AS a{at}" for at, call in enumerate(case.calls)))
    collected = result.selectExpr(*map(_to_number, result.schema)).collect()
    return {call: [row[at] for row in collected] for at, call in enumerate(case.calls)}


def _quoted(call: str) -> str:
    """The call with double quotes around literals that contain quotes: Spark does not read doubled ones here."""
    plain = re.compile(r"'([^']*(?:''[^']*)+)'(?!')")
    return plain.sub(lambda found: '"' + found[1].replace("''", "'") + '"', call)


def _to_number(field: st.StructField) -> str:
    """Convert times and dates to numbers: Python has no days before the year 1 or after 9999."""
    function = {st.TimestampType(): "unix_micros", st.DateType(): "unix_date"}.get(field.dataType, "")
    return f"{function}({field.name})"


def _spark_type(dtype: pl.DataType) -> st.DataType:
    if dtype == INSTANT:
        return st.LongType()
    if isinstance(dtype, pl.List):
        return st.ArrayType(_spark_type(dtype.inner))  # type: ignore[arg-type]
    return next(theirs for ours, theirs in _TYPES.items() if dtype == ours)


def are_equal(their: object, our: object) -> bool:
    if isinstance(their, list) and isinstance(our, list):
        return len(their) == len(our) and all(map(are_equal, their, our))
    if isinstance(their, bytearray):
        return bytes(their).decode() == our
    if isinstance(their, float) and isinstance(our, float):
        if math.isnan(their) or math.isnan(our):
            return math.isnan(their) and math.isnan(our)
        return math.isclose(their, our, rel_tol=1e-12)
    return type(their) is type(our) and their == our
