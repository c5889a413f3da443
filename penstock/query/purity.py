"""Checks that expressions and functions of the user's are repeatable: that a row's result depends on that row alone,
not on how batches are cut, on the clock or on random numbers.

Expressions are evaluated on a few made-up rows, including their Python functions, if these are quick; what could need
much, in the child process of `penstock.query.trial`. Functions of whole batches and of state are not called; their code
is inspected.
"""

from __future__ import annotations

import builtins
import contextlib
import dis
import random
import re
import sys
import sysconfig
import threading
import time
import types
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

from penstock.errors import UserError
from penstock.origin import Origin, is_demo
from penstock.query.trial import TRIAL_SECONDS, NotSendable, TrialEnded, TrialProcess, current_process

T = TypeVar("T")

_ROWS = 24
#: how long to wait for a trial that calls a function of the user's; and how quick a call must be to be repeated
_TRIAL_TIMEOUT_SECONDS, _QUICK_SECONDS = 1.0, 0.2
_LIBRARY = sysconfig.get_path("stdlib")
_PENSTOCK = str(Path(__file__).resolve().parent.parent)
#: functions that return another value each time, by module and name (None: all of the module)
_NON_DETERMINISTIC = {
    ("random", None),
    ("secrets", None),
    ("uuid", "uuid1"),
    ("uuid", "uuid4"),
    ("os", "urandom"),
    ("time", "time"),
    ("time", "time_ns"),
    ("time", "monotonic"),
    ("time", "perf_counter"),
    ("datetime", "now"),
    ("datetime", "utcnow"),
    ("datetime", "today"),
}


#: whether expressions are made of SQL alone, whose functions are row by row
_OF_SQL: ContextVar[bool] = ContextVar("of_sql", default=False)


@contextlib.contextmanager
def expressions_of_sql(alone: bool) -> Iterator[None]:
    """In this context, expressions need no trial whether they are row by row, if they are of SQL `alone`: without
    functions of the user's."""
    token = _OF_SQL.set(alone)
    try:
        yield
    finally:
        _OF_SQL.reset(token)


def check_row_wise(expr: pl.Expr, schema: Mapping[str, pl.DataType], what: str, origin: Origin) -> None:
    """Raise if the value for a row depends on other rows, on the clock or on chance, as far as a trial shows."""
    if _OF_SQL.get() or _is_row_wise_by_form(_draw(expr)):
        return
    _check_by_trial(expr, schema, what, origin)
    if not calls_python(expr) and not _is_row_wise(expr):
        raise _not_row_wise(what, origin)


#: steps that are certainly row by row: an expression of nothing else needs no trial, which takes milliseconds
_ROW_WISE = re.compile(
    r"col\(.*\)|lit\(.*\)|binary: .*|(strict )?cast\(.*\)|ternary|alias\(.*\)|"
    r"function: (not|is_in|is_between|is_null|is_not_null|fill_null|str\.(starts_with|ends_with|contains))"
)


_LARGE_REPETITION = re.compile(r"\{\s*\d*\s*,?\s*\d{2,}")


def is_cheap(expr: pl.Expr) -> bool:
    """Whether evaluating an expression on a few rows certainly needs little: it has only steps whose result is not much
    larger than what they get, and no pattern that takes much to compile."""
    drawn = _draw(expr)
    return _is_row_wise_by_form(drawn) and not ("str.contains" in drawn and is_large_pattern(drawn))


def is_large_pattern(pattern: str) -> bool:
    """Whether a text may have a regular expression that takes megabytes when it is compiled: one with a repetition of
    ten or more."""
    return _LARGE_REPETITION.search(pattern) is not None


def _draw(expr: pl.Expr) -> str:
    """An expression as a tree of its steps; empty if it cannot be drawn without its columns."""
    try:
        return expr.meta.tree_format(return_as_string=True) or ""
    except pl.exceptions.PolarsError:
        return ""


def _is_row_wise_by_form(drawn: str) -> bool:
    named = [line for line in drawn.splitlines() if line.split("│")[0].strip()]
    boxes = [box.strip() for line in named for box in line.split("│")[2::2]]
    return bool(boxes) and all(_ROW_WISE.fullmatch(box) for box in boxes if box)


def try_pattern(function: Callable[[str], T], pattern: str) -> T:
    """What a function makes of a regular expression, which it compiles. A large one is compiled in the child process
    for trials, if there is one: Polars keeps compiled expressions, each of which may take 10 MB."""
    process = current_process()
    if process is None or not is_large_pattern(pattern):
        return function(pattern)
    try:
        return process.call(function, pattern)
    except TrialEnded:
        raise pl.exceptions.ComputeError("it takes too much to compile") from None


def matches_empty(pattern: str) -> bool:
    """Whether a regular expression matches the empty text; raises what Polars raises for a text that is none."""
    return bool(pl.select(pl.lit("").str.contains(pattern)).item())


def calls_python(expr: pl.Expr) -> bool:
    """Whether an expression calls a function of the user's."""
    return "python_udf" in str(expr) or ".map_batches(" in str(expr)


def run_trial(expr: pl.Expr, what: str, origin: Origin, trial: Callable[[], T]) -> T | None:
    """The result of a trial of an expression. None if it calls a function of the user's that takes too long.

    A trial that could need much is executed in the child process for trials, if there is one. Without one, a function
    that takes too long continues in its thread, since all jobs may be waiting for the caller.
    """
    process = current_process()
    if process is not None and not is_cheap(expr):
        with contextlib.suppress(NotSendable):  # such a job is refused later, with the reason
            return _run_in(process, expr, what, origin, trial)
    if not calls_python(expr):
        return trial()
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(trial())
        except BaseException as failure:  # a panic in Polars is no Exception
            result.set_exception(failure)

    threading.Thread(target=run, daemon=True, name="trial").start()
    return result.result() if wait([result], _TRIAL_TIMEOUT_SECONDS).done else None


def _run_in(
    process: TrialProcess, expr: pl.Expr, what: str, origin: Origin, trial: Callable[[], T]
) -> T | None:
    has_python = calls_python(expr)
    try:
        return process.call(trial, seconds=_TRIAL_TIMEOUT_SECONDS if has_python else TRIAL_SECONDS)
    except TrialEnded as ended:
        if has_python and ended.timed_out:
            return None
        needs = "time" if ended.timed_out else "memory"
        raise UserError(
            "TRIAL_TOO_EXPENSIVE",
            f"{what} needs too much {needs} for a few made-up rows",
            where=str(origin),
            hint="Look for texts or lists that functions in one another make longer and longer.",
        ) from None


def _check_by_trial(expr: pl.Expr, schema: Mapping[str, pl.DataType], what: str, origin: Origin) -> None:
    """Raise if made-up rows give other results the second time, or in smaller batches."""
    frame = _make_up_rows(schema, expr.meta.root_names())
    if frame is None:
        return
    batches = [frame, frame, *(frame[at : at + 3] for at in range(0, _ROWS, 3))]
    try:
        outcome = run_trial(expr, what, origin, partial(_compare_batches, batches, expr))
    except UserError:  # of the trial, not of the values
        raise
    except Exception:  # made-up values prove nothing if they cannot be evaluated
        return
    if outcome is None:
        return
    is_repeatable, is_row_wise = outcome
    if not is_repeatable:
        raise UserError(
            "NON_DETERMINISTIC",
            f"{what} gives another result each time",
            where=str(origin),
            hint="After a crash an epoch is computed again and must give the same rows: "
            "derive it from the event's own columns.",
        )
    if not is_row_wise:
        raise _not_row_wise(what, origin)


def _not_row_wise(what: str, origin: Origin) -> UserError:
    return UserError(
        "NOT_ROW_WISE",
        f"{what} depends on other rows of the batch, and batches may be cut anywhere",
        where=str(origin),
        hint="Use a window to compute something of several events, as in .key_by(...).window(...).aggregate(...) or "
        ".last(n, ...).",
    )


def _is_row_wise(expr: pl.Expr) -> bool:
    """Whether every step of an expression is row by row, as far as Polars knows."""
    try:
        if expr.meta.is_literal(allow_aliasing=True) or expr.meta.is_column_selection():
            return True
        parts = expr.meta.pop()
        row_wise = expr.meta.is_row_separable() or (bool(parts) and all(_constant(part) for part in parts))
        return row_wise and all(_is_row_wise(part) for part in parts)
    except pl.exceptions.PolarsError:  # it does not know of some steps without their columns
        return True


def _constant(expr: pl.Expr) -> bool:
    return expr.meta.is_literal(allow_aliasing=True) or (
        bool(parts := expr.meta.pop()) and all(_constant(part) for part in parts)
    )


def check_repeatable(
    function: Callable[..., object], origin: Origin, *, vouched_by: str | None = None
) -> None:
    """Raise if a function of the user's, or one it calls, seems to read the clock or random numbers, by the names used.

    `vouched_by` is the argument with which the user can vouch for the function, where there is one.
    """
    called = getattr(function, "__name__", "given")
    for part in _with_helpers(function):
        for name in _non_deterministic_calls(part):
            through = (
                "" if part is function else f" (in {getattr(part, '__name__', 'a function')}, which it calls)"
            )
            vouch = f"; if the result does not depend on it, pass {vouched_by}" if vouched_by else ""
            raise UserError(
                "NON_DETERMINISTIC",
                f"the function {called} uses {name}{through}, which returns another value each time",
                where=str(origin),
                hint="After a crash an epoch is computed again and must give the same rows. Use the event's own time "
                f"and columns{vouch}.",
            )


def check_methods(thing: object, base: type, origin: Origin) -> None:
    """As `check_repeatable`, for the methods of an object whose classes are derived from `base`."""
    for kind in type(thing).__mro__:
        if kind is base or not issubclass(kind, base):
            continue
        for method in vars(kind).values():
            if isinstance(method, types.FunctionType):
                check_repeatable(method, origin)


def _compare_batches(batches: list[pl.DataFrame], expr: pl.Expr) -> tuple[bool, bool] | None:
    """Whether an expression gives the same a second time, and in smaller batches; None if a function of the user's is
    slow."""
    results = _evaluate_batches(batches, expr)
    if results is None:
        return None
    whole, again, *pieces = results
    return whole.equals(again), whole.equals(pl.concat(pieces))


def _evaluate_batches(batches: list[pl.DataFrame], expr: pl.Expr) -> list[pl.DataFrame] | None:
    """The values for each batch; None if a function of the user's is slow."""
    has_python, results = calls_python(expr), []
    for batch in batches:
        started = time.monotonic()
        results.append(_evaluate(batch, expr))
        if has_python and time.monotonic() - started > _QUICK_SECONDS:
            return None
    return results


def _evaluate(frame: pl.DataFrame, expr: pl.Expr) -> pl.DataFrame:
    """The expression as a column, in which a single value is repeated for every row."""
    return frame.with_columns(expr.alias("_trial")).select("_trial")


def _make_up_rows(schema: Mapping[str, pl.DataType], names: list[str]) -> pl.DataFrame | None:
    draw = random.Random(7)
    columns = {}
    for name in names:
        values = _make_up_values(schema[name], draw)
        if values is None:
            return None
        columns[name] = pl.Series(name, values, dtype=schema[name])
    return pl.DataFrame(columns) if columns else pl.DataFrame({"_none": [0] * _ROWS})


def _make_up_values(dtype: pl.DataType, draw: random.Random) -> list[Any] | None:
    rows = range(_ROWS)
    if dtype.is_integer():
        return [draw.randrange(100) for _ in rows]
    if dtype.is_float():
        return [draw.uniform(1, 100) for _ in rows]
    if dtype == pl.String:
        return [f"/{draw.choice('abcdef')}{draw.randrange(100)}" for _ in rows]
    if dtype == pl.Boolean:
        return [draw.random() < 0.5 for _ in rows]
    if isinstance(dtype, pl.Datetime):
        zone = UTC if dtype.time_zone else None
        return [datetime(2026, 1, 1, tzinfo=zone) + timedelta(seconds=draw.randrange(10**6)) for _ in rows]
    if isinstance(dtype, pl.List):
        inner = _make_up_values(pl.Int64() if dtype.inner is None else _instance(dtype.inner), draw)
        return None if inner is None else [draw.sample(inner, 3) for _ in rows]
    return None


def _instance(dtype: Any) -> pl.DataType:
    instance: pl.DataType = dtype() if isinstance(dtype, builtins.type) else dtype
    return instance


def _scope(function: Callable[..., object]) -> dict[str, object]:
    """The values of a function's global and closed-over names."""
    scope = dict(getattr(function, "__globals__", {}))
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None) or ()
    for name, cell in zip(code.co_freevars if code is not None else (), cells, strict=False):
        with contextlib.suppress(ValueError):  # not filled yet
            scope[name] = cell.cell_contents
    return scope


def _with_helpers(function: Callable[..., object]) -> list[Callable[..., object]]:
    """A function and those of the user's own that it names, directly or not."""
    functions = [function]
    for one in functions:
        code, scope = getattr(one, "__code__", None), _scope(one)
        for inner in _codes(code) if code is not None else ():
            for name in sorted({*inner.co_names, *inner.co_freevars}):
                thing = scope.get(name)
                if isinstance(thing, types.FunctionType) and thing not in functions and _is_users(thing):
                    functions.append(thing)
    return functions


def _is_users(function: types.FunctionType) -> bool:
    file = function.__code__.co_filename
    installed = "site-packages" in file or file.startswith((_LIBRARY, _PENSTOCK))
    return is_demo(file) or not installed


def _non_deterministic_calls(function: Callable[..., object]) -> Iterator[str]:
    code, scope = getattr(function, "__code__", None), _scope(function)
    for inner in _codes(code) if code is not None else ():
        imported = {str(one.argval) for one in dis.get_instructions(inner) if one.opname == "IMPORT_NAME"}
        for name in sorted({*inner.co_names, *inner.co_freevars}):
            thing = sys.modules.get(name) if name in imported else scope.get(name)
            for module, attribute in _NON_DETERMINISTIC:
                if _is_from(thing, module) and (
                    attribute is None or attribute in _called_names(thing, inner)
                ):
                    yield f"{module}.{attribute}" if attribute else module


def _is_from(thing: object, module: str) -> bool:
    """Whether something is a module or class of this name, or a function of it."""
    if isinstance(thing, types.ModuleType | type):
        return thing.__name__.rpartition(".")[2] == module
    owner = type(getattr(thing, "__self__", None)).__module__
    return getattr(thing, "__module__", None) == module or (callable(thing) and owner == module)


def _called_names(thing: object, code: types.CodeType) -> set[str]:
    """The names that may be called: any attribute, if this is a module or class; else the function's own."""
    if isinstance(thing, types.ModuleType | type):
        loads = ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM")
        return {str(one.argval) for one in dis.get_instructions(code) if one.opname in loads}
    return {getattr(thing, "__name__", "")}


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)
