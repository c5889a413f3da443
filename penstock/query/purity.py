"""Whether what a user says of rows is a function of each row alone: the same wherever batches are cut, and again
in a replay. Pure; runs expressions on a few made-up rows, with the Python functions in them, if those are quick.
Functions of whole batches and of state are not called, only read.
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
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

from penstock.errors import UserError
from penstock.origin import Origin, is_demo

T = TypeVar("T")

_ROWS = 24
#: how long a trial that calls a user's function is waited for, and how long a call may take for another to follow
_PATIENCE, _QUICK = 1.0, 0.2
_LIBRARY = sysconfig.get_path("stdlib")
_PENSTOCK = str(Path(__file__).resolve().parent.parent)
#: what a function may call that gives another answer each time, by the module's and the function's name
_FICKLE = {
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


def check_row_wise(expr: pl.Expr, schema: Mapping[str, pl.DataType], what: str, origin: Origin) -> None:
    """Raise if an expression's answer for a row depends on other rows or on chance, as far as a trial can tell."""
    if _plain(expr):
        return
    _try_out(expr, schema, what, origin)
    if not calls_python(expr) and not _steps_apart(expr):
        raise _not_row_wise(what, origin)


#: steps that go row by row for certain: a query of nothing else needs no trial, which takes milliseconds
_PLAIN = re.compile(
    r"col\(.*\)|lit\(.*\)|binary: .*|(strict )?cast\(.*\)|ternary|alias\(.*\)|"
    r"function: (not|is_in|is_between|is_null|is_not_null|fill_null|str\.(starts_with|ends_with|contains))"
)


def _plain(expr: pl.Expr) -> bool:
    try:
        drawn = expr.meta.tree_format(return_as_string=True) or ""
    except pl.exceptions.PolarsError:  # it cannot draw some without their columns
        return False
    named = [line for line in drawn.splitlines() if line.split("│")[0].strip()]
    boxes = [box.strip() for line in named for box in line.split("│")[2::2]]
    return bool(boxes) and all(_PLAIN.fullmatch(box) for box in boxes if box)


def calls_python(expr: pl.Expr) -> bool:
    """Whether an expression calls a function of the user's."""
    return "python_udf" in str(expr) or ".map_batches(" in str(expr)


def tried(expr: pl.Expr, trial: Callable[[], T]) -> T | None:
    """What comes of a trial of an expression. None if it calls a user's function, and that keeps it for too long: it
    is left to itself then, since whoever tries it may be holding up all jobs."""
    if not calls_python(expr):
        return trial()
    found: Future[T] = Future()

    def run() -> None:
        try:
            found.set_result(trial())
        except BaseException as failure:  # a panic in Polars is no Exception
            found.set_exception(failure)

    threading.Thread(target=run, daemon=True, name="trial").start()
    return found.result() if wait([found], _PATIENCE).done else None


def _try_out(expr: pl.Expr, schema: Mapping[str, pl.DataType], what: str, origin: Origin) -> None:
    """Raise if made-up rows get other answers the second time, or in smaller batches."""
    frame = _made_up(schema, expr.meta.root_names())
    if frame is None:
        return
    batches = [frame, frame, *(frame[at : at + 3] for at in range(0, _ROWS, 3))]
    try:
        answers = tried(expr, lambda: _answers(batches, expr))
    except Exception:  # what made-up values cannot be put through says nothing
        return
    if answers is None:
        return
    whole, again, *pieces = answers
    if not whole.equals(again):
        raise UserError(
            "NON_DETERMINISTIC",
            f"{what} gives another answer each time",
            where=str(origin),
            hint="After a crash an epoch is computed again and must give the same rows: "
            "derive it from the event's own columns.",
        )
    if not whole.equals(pl.concat(pieces)):
        raise _not_row_wise(what, origin)


def _not_row_wise(what: str, origin: Origin) -> UserError:
    return UserError(
        "NOT_ROW_WISE",
        f"{what} depends on other rows of the batch, and where batches are cut is chance",
        where=str(origin),
        hint="Use a window for what goes over several events, as in .key_by(...).window(...).aggregate(...) or "
        ".last(n, ...).",
    )


def _steps_apart(expr: pl.Expr) -> bool:
    """Whether every step of an expression goes row by row, as far as Polars tells."""
    try:
        if expr.meta.is_literal(allow_aliasing=True) or expr.meta.is_column_selection():
            return True
        parts = expr.meta.pop()
        apart = expr.meta.is_row_separable() or (bool(parts) and all(_constant(part) for part in parts))
        return apart and all(_steps_apart(part) for part in parts)
    except pl.exceptions.PolarsError:  # of some steps it cannot tell without the columns
        return True


def _constant(expr: pl.Expr) -> bool:
    return expr.meta.is_literal(allow_aliasing=True) or (
        bool(parts := expr.meta.pop()) and all(_constant(part) for part in parts)
    )


def check_repeatable(
    function: Callable[..., object], origin: Origin, *, vouched_by: str | None = None
) -> None:
    """Raise if a user's function, or one it calls, seems to ask the clock or chance, by the names they use.

    `vouched_by` is the argument with which the user can say that it makes no difference, where there is one.
    """
    called = getattr(function, "__name__", "given")
    for part in _with_helpers(function):
        for name in _fickle_calls(part):
            through = (
                "" if part is function else f" (in {getattr(part, '__name__', 'a function')}, which it calls)"
            )
            vouch = f"; if the answer does not depend on it, pass {vouched_by}" if vouched_by else ""
            raise UserError(
                "NON_DETERMINISTIC",
                f"the function {called} uses {name}{through}, which answers differently each time",
                where=str(origin),
                hint="After a crash an epoch is computed again and must give the same rows. Use the event's own time "
                f"and columns{vouch}.",
            )


def check_methods(thing: object, base: type, origin: Origin) -> None:
    """Raise if a method of an object, as far as its classes do not come from `base`, asks the clock or chance."""
    for kind in type(thing).__mro__:
        if kind is base or not issubclass(kind, base):
            continue
        for method in vars(kind).values():
            if isinstance(method, types.FunctionType):
                check_repeatable(method, origin)


def _answers(batches: list[pl.DataFrame], expr: pl.Expr) -> list[pl.DataFrame] | None:
    """What an expression makes of each batch; None once a user's function has taken its time over one."""
    users, found = calls_python(expr), []
    for batch in batches:
        began = time.monotonic()
        found.append(_evaluated(batch, expr))
        if users and time.monotonic() - began > _QUICK:
            return None
    return found


def _evaluated(frame: pl.DataFrame, expr: pl.Expr) -> pl.DataFrame:
    """The expression as the column it would become: a single value is one for every row."""
    return frame.with_columns(expr.alias("_trial")).select("_trial")


def _made_up(schema: Mapping[str, pl.DataType], names: list[str]) -> pl.DataFrame | None:
    draw = random.Random(7)
    columns = {}
    for name in names:
        values = _values(schema[name], draw)
        if values is None:
            return None
        columns[name] = pl.Series(name, values, dtype=schema[name])
    return pl.DataFrame(columns) if columns else pl.DataFrame({"_none": [0] * _ROWS})


def _values(dtype: pl.DataType, draw: random.Random) -> list[Any] | None:
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
        inner = _values(pl.Int64() if dtype.inner is None else _instance(dtype.inner), draw)
        return None if inner is None else [draw.sample(inner, 3) for _ in rows]
    return None


def _instance(dtype: Any) -> pl.DataType:
    made: pl.DataType = dtype() if isinstance(dtype, builtins.type) else dtype
    return made


def _scope(function: Callable[..., object]) -> dict[str, object]:
    """What the names in a function stand for, as far as they are not its own."""
    found = dict(getattr(function, "__globals__", {}))
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None) or ()
    for name, cell in zip(code.co_freevars if code is not None else (), cells, strict=False):
        with contextlib.suppress(ValueError):  # not filled yet
            found[name] = cell.cell_contents
    return found


def _with_helpers(function: Callable[..., object]) -> list[Callable[..., object]]:
    """A function and those of the user's own that it names, however far away."""
    found = [function]
    for one in found:
        code, scope = getattr(one, "__code__", None), _scope(one)
        for inner in _codes(code) if code is not None else ():
            for name in sorted({*inner.co_names, *inner.co_freevars}):
                thing = scope.get(name)
                if isinstance(thing, types.FunctionType) and thing not in found and _users(thing):
                    found.append(thing)
    return found


def _users(function: types.FunctionType) -> bool:
    file = function.__code__.co_filename
    installed = "site-packages" in file or file.startswith((_LIBRARY, _PENSTOCK))
    return is_demo(file) or not installed


def _fickle_calls(function: Callable[..., object]) -> Iterator[str]:
    code, scope = getattr(function, "__code__", None), _scope(function)
    for inner in _codes(code) if code is not None else ():
        imported = {str(one.argval) for one in dis.get_instructions(inner) if one.opname == "IMPORT_NAME"}
        for name in sorted({*inner.co_names, *inner.co_freevars}):
            thing = sys.modules.get(name) if name in imported else scope.get(name)
            for module, attribute in _FICKLE:
                if _is_from(thing, module) and (attribute is None or attribute in _named(thing, inner)):
                    yield f"{module}.{attribute}" if attribute else module


def _is_from(thing: object, module: str) -> bool:
    """Whether something is a module of this name, a class of this name, or a function out of it."""
    if isinstance(thing, types.ModuleType | type):
        return thing.__name__.rpartition(".")[2] == module
    owner = type(getattr(thing, "__self__", None)).__module__
    return getattr(thing, "__module__", None) == module or (callable(thing) and owner == module)


def _named(thing: object, code: types.CodeType) -> set[str]:
    """What is called: any name used beside a module or class, else the function itself."""
    if isinstance(thing, types.ModuleType | type):
        loads = ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM")
        return {str(one.argval) for one in dis.get_instructions(code) if one.opname in loads}
    return {getattr(thing, "__name__", "")}


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)
