"""The reference of the Python API agrees with the code: every name, every argument, every column."""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import re
from collections.abc import Iterator
from datetime import timedelta
from functools import reduce
from pathlib import Path
from types import ModuleType
from typing import Any

import polars as pl
import pytest

import penstock as ps
from penstock import col, duration, testing
from penstock.duration import microseconds
from penstock.query.keyed import Keyed
from penstock.query.stream import Stream
from penstock.query.windowed import Windowed
from penstock.testing import ListLog

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference.md").read_text()
CLASSES = {
    "Stream": Stream,
    "Keyed": Keyed,
    "Windowed": Windowed,
    "CustomOperator": ps.CustomOperator,
    "Out": ps.Out,
    "Context": ps.Context,
}
#: classes whose fields are internal
CLOSED = (Stream, Keyed, Windowed, ps.Out)

COLUMNS = {"at": ps.Datetime("us", "UTC"), "shop": ps.String, "v": ps.Int64}
SALES = ps.stream("sales", ListLog([]), ps.Delimited(COLUMNS), time="at")
NAMES = {"ps": ps, "col": col, "sales": SALES, "keyed": SALES.key_by("shop"), "timedelta": timedelta}


def sections() -> dict[str, str]:
    """Return the text below each heading, up to the next."""
    parts = re.split(r"^##+ (.*)\n", PAGE, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def entries() -> Iterator[tuple[str, str, str | None]]:
    """Yield (heading, name, arguments) of everything that an entry of a list explains."""
    for heading, text in sections().items():
        for entry in re.findall(r"^- (.*?):(?: |\n)", text, re.M | re.S):
            for code in re.findall(r"`([^`]+)`", entry):
                name, bracket, rest = code.partition("(")
                yield heading, name, rest.removesuffix(")") if bracket else None


def rows(heading: str) -> list[tuple[list[str], str]]:
    """Return the rows of a section's first table: the code in the first cell, and the second cell."""
    cells = [line.strip("|").split(" | ") for line in re.findall(r"^\|.*`.*$", sections()[heading], re.M)]
    return [(re.findall(r"`([^`]+)`", first), second) for first, second, *_ in cells]


def find_object(heading: str, name: str) -> Any:
    """Return the object that an entry explains."""
    if name.startswith("ps."):
        return getattr(ps, name[3:])
    if name.startswith("."):
        return getattr(CLASSES[heading], name[1:], None)
    return getattr(testing, name)


SIGNED = [
    (heading, name, arguments)
    for heading, name, arguments in entries()
    if arguments is not None and (name.startswith("ps.") or heading in CLASSES or hasattr(testing, name))
]


@pytest.mark.parametrize(("heading", "name", "arguments"), SIGNED, ids=lambda value: str(value)[:40])
def test_arguments_are_those_of_the_code(heading: str, name: str, arguments: str) -> None:
    if name in ("ps.col", "ps.lit"):
        return  # Polars' own
    check_arguments(find_object(heading, name), arguments)


def check_arguments(actual_object: Any, arguments: str) -> None:
    """Compare the arguments on the page with those of an object."""
    shown = ast.parse(f"def f({arguments}): ...").body[0]
    assert isinstance(shown, ast.FunctionDef)
    names: dict[str, Any] = {}
    exec(compile(ast.Module([shown], []), "shown", "exec"), names)
    documented = inspect.signature(names["f"]).parameters
    actual = dict(inspect.signature(actual_object).parameters)
    actual.pop("self", None)
    assert [(p.name, p.kind) for p in documented.values()] == [(p.name, p.kind) for p in actual.values()]
    for parameter in documented.values():
        if parameter.default is not ...:  # explained in words
            assert parameter.default == actual[parameter.name].default, parameter.name


def spans() -> list[str]:
    """Return all code within lines of text, without string literals."""
    text = re.sub(r"```.*?```", "", PAGE, flags=re.S)
    return [re.sub(r"\"[^\"]*\"", "''", code) for code in re.findall(r"`([^`]+)`", text)]


def dotted_names() -> list[str]:
    """Return every name with a dot, and every name of a class; not placeholders and conditions, which are capitals."""
    found = {
        name for code in spans() for name in re.findall(r"(?<![\w.])[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", code)
    }
    return sorted(name for name in found if "." in name or (name[0].isupper() and not name.isupper()))


def find_module(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return None


#: the modules that the page names
MODULES = [found for name in dotted_names() if name.startswith("penstock.") and (found := find_module(name))]


def resolve(name: str) -> Any:
    """Return what a name on the page stands for; raise `AttributeError` if there is no such thing."""
    if (module := find_module(name) if name.startswith("penstock.") else None) is not None:
        return module
    head, _, rest = name.partition(".")
    if head == "penstock":
        above, _, last = name.rpartition(".")
        return getattr(find_module(above), last)
    if head in (places := {**CLASSES, **NAMES, "pl": pl}):
        found = places[head]
    else:
        homes = [home for home in (*MODULES, ps, testing, builtins) if head in vars(home)]
        if not homes:
            raise AttributeError(f"no module that the page names has {head}")
        found = getattr(homes[0], head)
    return reduce(getattr, rest.split(".") if rest else [], found)


@pytest.mark.parametrize("name", dotted_names())
def test_every_name_on_the_page_exists(name: str) -> None:
    resolve(name)


def test_a_name_that_is_gone_would_be_found() -> None:
    for gone in ("Jobs.submit", "Program.tell", "Closing", "ps.told", "penstock.logs.Gone", "penstock.gone"):
        with pytest.raises(AttributeError):
            resolve(gone)


def _defines(module: ModuleType, name: str) -> bool:
    return getattr(vars(module).get(name), "__module__", None) == module.__name__


CALLS = [
    (name, arguments)
    for code in spans()
    if "..." not in code
    for name, arguments in re.findall(r"^((?:[A-Z]\w*\.)?[a-z]\w+)\(([^()]*)\)$", code)
    if "." in name or any(_defines(module, name) for module in MODULES)
]


@pytest.mark.parametrize(("name", "arguments"), CALLS)
def test_arguments_within_the_text_are_those_of_the_code(name: str, arguments: str) -> None:
    check_arguments(inspect.unwrap(resolve(name)), arguments)


def test_every_public_name_is_explained() -> None:
    explained = {name.removeprefix("ps.") for _, name, _ in entries()}
    explained |= {code[0].partition("(")[0].removeprefix("ps.") for code, _ in rows("Aggregate functions")}
    explained |= set(re.findall(r"`ps\.(\w+)`", PAGE)) | {"Stream", "App"}
    assert set(ps.__all__) - explained == set()
    assert set(testing.__all__) - explained == set()


@pytest.mark.parametrize("heading", CLASSES)
def test_every_method_is_explained(heading: str) -> None:
    kind = CLASSES[heading]
    fields = set(getattr(kind, "__dataclass_fields__", ()))
    public = {name for name in dir(kind) if not name.startswith("_")} | fields
    hidden = (fields | {"results"}) if kind in CLOSED else set()
    explained = {name[1:] for at, name, _ in entries() if at == heading and name.startswith(".")}
    assert explained == public - hidden


@pytest.mark.parametrize(
    ("code", "documented"), rows("Columns of results"), ids=lambda value: str(value)[:60]
)
def test_columns_of_results(code: list[str], documented: str) -> None:
    assert eval(code[0], dict(NAMES)).columns == re.findall(r"`([^`]+)`", documented)


@pytest.mark.parametrize(
    ("code", "documented"), rows("Aggregate functions"), ids=lambda value: str(value)[:60]
)
def test_names_of_aggregates(code: list[str], documented: str) -> None:
    aggregate = eval(code[0], dict(NAMES))
    assert f"`{aggregate.alias}`" == documented
    parameters = inspect.signature(getattr(ps, code[0][3:].partition("(")[0])).parameters
    for name, value in re.findall(r"(\w+)=([\d.]+)", code[0]):
        assert parameters[name].default == float(value)
    keyed: Keyed = NAMES["keyed"]  # type: ignore[assignment]
    assert keyed.window("1h").aggregate(aggregate).columns[-1] == aggregate.alias


def test_every_aggregate_function_has_a_row() -> None:
    shown = {code[0][3:].partition("(")[0] for code, _ in rows("Aggregate functions")}
    known = {
        name
        for name in ps.__all__
        if inspect.isfunction(getattr(ps, name)) and "operators.functions" in getattr(ps, name).__module__
    }
    assert shown == known - {"aggregate_function"}


def test_durations_are_what_the_page_says() -> None:
    spelled = [{microseconds(eval(one, dict(NAMES))) for one in codes} for codes, _ in rows("Durations")]
    assert spelled == [{30_000_000}, {5_400_000_000}, {3_600_000_000, 500_000}, {3_600_000_000}]
    named = set(re.findall(r"`(\w+)`", sections()["Durations"].partition("Units:")[2]))
    assert named == duration._UNITS.keys() | duration._WORDS.keys()


def test_types_are_polars_own() -> None:
    for name in re.findall(r"`ps\.([A-Z]\w+)`", sections()["Streams and applications"]):
        assert getattr(ps, name) is getattr(pl, name)
