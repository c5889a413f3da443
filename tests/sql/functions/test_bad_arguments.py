"""Functions refuse wrong types, wrong numbers of arguments, and invalid literals."""

from __future__ import annotations

import polars as pl
import pytest

from penstock.errors import UserError
from tests.sql.functions.evaluator import compile_expression, evaluate

SCHEMA = {
    "s": pl.String(),
    "n": pl.Int64(),
    "x": pl.Float64(),
    "d": pl.Date(),
    "l": pl.List(pl.String()),
    "k": pl.List(pl.Int64()),
}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("lower(n)", "argument 1 of lower must be text, but it is of type Int64"),
        ("lower(5)", "argument 1 of lower must be text, but it is 5"),
        ("substring(s, x)", "argument 2 of substring must be a whole number"),
        ("abs(s)", "argument 1 of abs must be a number"),
        ("year(n)", "argument 1 of year must be a date, a time or text with a date"),
        ("hour(n)", "argument 1 of hour must be a time, a date or text with a time"),
        ("size(s)", "argument 1 of size must be a list"),
        ("if(n, 1, 2)", "argument 1 of if must be a condition"),
        ("coalesce(s, n)", "argument 2 of coalesce must be of type String, as those before it are"),
        ("array(s, 1)", "argument 2 of array must be of type String"),
        ("greatest(l, l)", "argument 1 of greatest must be a number, text"),
        ("concat(s, l)", "argument 2 of concat must be text, a number"),
        ("concat_ws(',', k)", "argument 2 of concat_ws must be a list of text"),
        ("array_join(k, ',')", "argument 1 of array_join must be a list of text"),
        ("array_contains(k, s)", "argument 2 of array_contains must be of type Int64"),
        ("lower()", "lower takes 1 arguments, but 0 are given"),
        ("substring(s)", "substring takes 2 to 3 arguments, but 1 are given"),
        ("coalesce()", "coalesce takes 1 or more arguments, but 0 are given"),
    ],
)
def test_wrong_types_and_numbers_of_arguments_are_refused(call: str, message: str) -> None:
    assert_refused(call, message)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("regexp_like(s, s)", "argument 2 of regexp_like must be a text literal, but it is of type String"),
        ("regexp_like(s, NULL)", "argument 2 of regexp_like must be a text literal, but it is None"),
        ("regexp_extract(s, '(a)', n)", "argument 3 of regexp_extract must be the literal of a whole number"),
        ("regexp_replace(s, 'a', s)", "argument 3 of regexp_replace must be a text literal"),
        ("date_format(d, s)", "argument 2 of date_format must be a text literal"),
        ("date_trunc(s, d)", "argument 1 of date_trunc must be a text literal"),
        ("get_json_object(s, s)", "argument 2 of get_json_object must be a text literal"),
        ("round(x, n)", "argument 2 of round must be the literal of a whole number"),
        ("translate(s, s, 'a')", "argument 2 of translate must be a text literal"),
        ("substring_index(s, '.', n)", "argument 3 of substring_index must be the literal of a whole number"),
        ("parse_url(s, s)", "argument 2 of parse_url must be a text literal"),
        ("format_string(s)", "argument 1 of format_string must be a text literal"),
        ("sha2(s, n)", "argument 2 of sha2 must be the literal of a whole number"),
        ("sort_array(k, n)", "argument 2 of sort_array must be true or false"),
        ("months_between(d, d, n)", "argument 3 of months_between must be true or false"),
    ],
)
def test_columns_where_a_literal_is_required_are_refused(call: str, message: str) -> None:
    assert_refused(call, message)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("regexp_like(s, 'a(?=b)')", "without look-around"),
        ("regexp_like(s, 'a(?!b)')", "without look-around"),
        ("regexp_like(s, '(?<=a)b')", "without look-around"),
        ("regexp_like(s, '(?<!a)b')", "without look-around"),
        (r"regexp_like(s, '(a)\1')", "without back-references"),
        (r"regexp_like(s, '(?<x>a)\k<x>')", "without back-references"),
        ("regexp_like(s, '(?>a)b')", "without atomic groups"),
        ("regexp_like(s, 'a++')", "without possessive quantifiers"),
        ("regexp_like(s, 'a{2}+')", "without possessive quantifiers"),
        ("regexp_like(s, '(?x)a b')", "other flags than i, m and s"),
        (r"regexp_like(s, 'a\Z')", r"without \Z"),
        (r"regexp_like(s, '\p{javaLowerCase}')", r"without \p{javaLowerCase}"),
        ("regexp_like(s, '(a')", "must be a regular expression"),
        ("regexp_like(s, '[a')", "must be a regular expression"),
        ("regexp_like(s, '*a')", "must be a regular expression"),
        ("regexp_extract(s, 'a')", "must be a regular expression with a group"),
        ("regexp_extract(s, '(a)', 2)", "must be a group from 0 to 1"),
        ("regexp_replace(s, '(a)', '$2')", "number of a group up to 1"),
        ("regexp_replace(s, 'a', 'US$')", "number of a group up to 0"),
        ("regexp_replace(s, '(?<x>a)', '${y}')", "names of groups"),
        ("split(s, 'a*')", "matches at least one character"),
        ("date_trunc('eon', d)", "must be one of YEAR"),
        ("trunc(d, 'HOUR')", "must be one of YEAR"),
        ("next_day(d, 'someday')", "must be a day of the week"),
        ("date_format(d, 'YYYY')", "'YYYY' is not one of them"),
        ("date_format(d, 'ww')", "'ww' is not one of them"),
        ("date_format(d, 'yyyy[-MM]')", "must be a pattern of letters"),
        ("to_date(s, 'EEE d')", "'EEE' is not one of them"),
        ("to_date(s, 'yyyy yyyy')", "'yyyy' is not one of them"),
        ("to_date(s, '-')", "must be a pattern of a date's letters"),
        ("get_json_object(s, 'a.b')", "must be a path"),
        ("get_json_object(s, '$.a[*]')", "must be a path"),
        ("get_json_object(s, '$..a')", "must be a path"),
        ("parse_url(s, 'PORT')", "must be one of HOST"),
        ("parse_url(s, 'HOST', 'x')", "must be QUERY"),
        ("sha2(s, 1)", "must be 0, 224, 256, 384 or 512"),
        ("format_string('%q', s)", "must be text with %s, %d, %f or %%"),
        ("format_string('%s %s', s)", "must be text with 1 placeholders"),
        ("format_string('%.1d', n)", "without decimal digits for %d"),
        ("format_string('%.99f', x)", "at most 15 decimal digits"),
        ("format_string('100%', x)", "must be text with %s, %d, %f or %%"),
    ],
)
def test_invalid_literals_are_refused(call: str, message: str) -> None:
    assert_refused(call, message)


def assert_refused(call: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        compile_expression(call, SCHEMA)
    assert error.value.condition == "BAD_ARGUMENT"
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("call", "result"),
    [
        ("size(split(NULL, ','))", None),
        ("element_at(array(1, 2), 0)", None),
        ("slice(array(1, 2), 0, 1)", None),
        ("slice(array(1, 2), 1, -1)", None),
        ("url_decode('%C3')", None),
        ("url_decode('100%')", None),
        ("to_timestamp('12:30:00')", None),
        ("to_timestamp('2026-11-15 12:00:00 Europe/Zurich')", None),
        ("regexp_replace('axb', 'x*', '-')", "-a-b-"),
        ("regexp_like(concat('a', chr(10)), 'a$')", False),
        ("regexp_like('É', '(?i)é')", True),
        ("get_json_object('{\"a\": 1} and more', '$.a')", None),
        ("get_json_object('{\"a\": 1, \"a\": 2}', '$.a')", "2"),
        ("div(7, 0)", None),
        ("trim(NULL)", None),
        ("concat(NULL, 'a')", None),
        ("lower(NULL)", None),
        ("abs(NULL)", None),
        ("year(NULL)", None),
        ("greatest(NULL, NULL)", None),
    ],
)
def test_documented_differences_from_spark(call: str, result: object) -> None:
    assert evaluate(call) == result
