"""Functions of lists. Positions count from 1, or from the end if negative."""

from __future__ import annotations

import polars as pl

from penstock.sql.functions.contract import Arguments, Family

LISTS = Family("Arrays")


@LISTS.add("array", (1, None), "An array of values of one type.", "array(1, 2)", "array(1, 2)")
def _array(args: Arguments) -> pl.Expr:
    return pl.concat_list(args.coerce(range(len(args)))[0])


@LISTS.add("size cardinality array_size", (1, 1), "Number of elements.", "size(array(1, 2, NULL))", "3")
def _size(args: Arguments) -> pl.Expr:
    return args.array(0)[0].list.len().cast(pl.Int64)


@LISTS.add(
    "array_contains",
    (2, 2),
    "Whether an array contains a value; NULL if it does not, but contains a NULL.",
    "array_contains(array('a', 'b'), 'b')",
    "true",
)
def _array_contains(args: Arguments) -> pl.Expr:
    values, wanted = _list_and_element(args)
    found = values.list.contains(wanted, nulls_equal=False)
    gaps = values.list.len() > values.list.drop_nulls().list.len()
    return pl.when(wanted.is_not_null() & (found | ~gaps)).then(found)


@LISTS.add(
    "element_at",
    (2, 2),
    "The element at a position, from 1, or from the end if negative; NULL if there is none.",
    "element_at(array('a', 'b', 'c'), -1)",
    "'c'",
)
def _element_at(args: Arguments) -> pl.Expr:
    place = args.integer(1)
    index = pl.when(place > 0).then(place - 1).when(place < 0).then(place)
    return args.array(0)[0].list.get(index, null_on_oob=True)


@LISTS.add(
    "get", (2, 2), "The element at an index, from 0; NULL if there is none.", "get(array('a', 'b'), 0)", "'a'"
)
def _get(args: Arguments) -> pl.Expr:
    place = args.integer(1)
    return args.array(0)[0].list.get(pl.when(place >= 0).then(place), null_on_oob=True)


@LISTS.add(
    "slice",
    (3, 3),
    "Elements from a position, of at most a given number; NULL for position 0 or a negative number.",
    "slice(array(1, 2, 3), 2, 2)",
    "array(2, 3)",
)
def _slice(args: Arguments) -> pl.Expr:
    values, place, many = args.array(0)[0], args.integer(1), args.integer(2)
    size = values.list.len().cast(pl.Int64)
    start = pl.when(place > 0).then(place - 1).otherwise(size + place)
    taken = pl.when(start >= 0).then(many.clip(lower_bound=0)).otherwise(pl.lit(0, pl.Int64))
    part = values.list.slice(start.clip(lower_bound=0), taken)
    return pl.when(values.is_not_null() & (place != 0) & (many >= 0)).then(part)


@LISTS.add(
    "array_join",
    (2, 3),
    "Joins strings with a separator; skips NULLs, or writes them as the third argument.",
    "array_join(array('a', NULL, 'b'), '-')",
    "'a-b'",
)
def _array_join(args: Arguments) -> pl.Expr:
    values, inner = args.array(0)
    if inner != pl.String:
        raise args.error(0, "a list of text")
    if len(args) > 2:
        values = values.list.eval(pl.element().fill_null(pl.lit(args.literal_text(2))))
    return values.list.join(args.text(1))


@LISTS.add("array_distinct", (1, 1), "Removes duplicates.", "array_distinct(array(1, 2, 1))", "array(1, 2)")
def _array_distinct(args: Arguments) -> pl.Expr:
    return args.array(0)[0].list.unique(maintain_order=True)


@LISTS.add("array_min", (1, 1), "The least element; skips NULLs.", "array_min(array(3, NULL, 1))", "1")
def _array_min(args: Arguments) -> pl.Expr:
    return args.array(0)[0].list.drop_nulls().list.sort().list.first()


@LISTS.add("array_max", (1, 1), "The greatest element; skips NULLs.", "array_max(array(3, NULL, 1))", "3")
def _array_max(args: Arguments) -> pl.Expr:
    return args.array(0)[0].list.drop_nulls().list.sort().list.last()


@LISTS.add(
    "sort_array",
    (1, 2),
    "Sorts ascending with NULLs first; if the second argument is false, descending with NULLs last.",
    "sort_array(array(3, 1, 2), false)",
    "array(3, 2, 1)",
)
def _sort_array(args: Arguments) -> pl.Expr:
    rising = len(args) == 1 or args.literal_boolean(1)
    return args.array(0)[0].list.sort(descending=not rising, nulls_last=not rising)


@LISTS.add("array_sort", (1, 1), "Sorts ascending with NULLs last.", "array_sort(array(3, 1))", "array(1, 3)")
def _array_sort(args: Arguments) -> pl.Expr:
    return args.array(0)[0].list.sort(nulls_last=True)


@LISTS.add("array_compact", (1, 1), "Removes NULLs.", "array_compact(array(1, NULL, 2))", "array(1, 2)")
def _array_compact(args: Arguments) -> pl.Expr:
    return args.array(0)[0].list.drop_nulls()


def _list_and_element(args: Arguments) -> tuple[pl.Expr, pl.Expr]:
    """A list, and a value cast to the type of its elements."""
    values, inner = args.array(0)
    dtype = args.dtype(1)
    if dtype == inner or dtype == pl.Null:
        return values, args.expr(1).cast(inner)
    if dtype.is_integer() and inner.is_numeric():
        return values, args.expr(1).cast(inner, strict=False)
    raise args.error(1, f"of type {inner}, as the list's values are")
