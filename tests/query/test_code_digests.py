"""The code of a query differs where a file was changed so that it does something else, and nowhere else."""

from __future__ import annotations

import subprocess
import sys
import time
import types
from pathlib import Path

import pytest

from penstock.catalogue.program_of import program_of
from penstock.cli.load_app import load
from penstock.query.code_digests import digest_objects, digest_plan, find_differences
from penstock.query.compile import compile_app
from penstock.query.describe_code import PYTHON

#: every place where a query can have Python in it
APP = '''
import functools
from datetime import timedelta

import polars as pl
import penstock as ps
from penstock import col

FACTOR = 2
NAMES = {"b", "a", "c"}


def scaled(value):
    """Twice as much."""
    return value * FACTOR


def doubled(values: pl.Series) -> pl.Series:
    return values.map_elements(scaled, return_dtype=pl.Int64)


def cleaned(frame, keep=1):
    return frame.filter(pl.col("n") >= keep)


def recursive(n):
    return 0 if n < 1 else recursive(n - 1) + len(NAMES)


def outer(limit):
    def inner(state, row, emit):
        if recursive(row["n"]) > limit:
            emit({"n": row["n"]})
        return state
    return inner


class Base(ps.CustomOperator):
    def init_state(self):
        return 0


class Throttle(Base):
    def __init__(self, most=3):
        self.most = most

    @staticmethod
    def fits(n):
        return n < 100

    def process(self, batch, state, out, context):
        if self.fits(state):
            out.emit(batch.select("_time", "n"))
        return state + batch.height


mean = ps.aggregate_function(
    "mean",
    add=lambda values: [float(values.sum()), len(values)],
    merge=lambda one, other: [one[0] + other[0], one[1] + other[1]],
    result=lambda state: state[0] / state[1],
    dtype=pl.Float64,
)

events = ps.stream(
    "events",
    ps.files("*.jsonl"),
    ps.json_lines({"ts": pl.Datetime("us", "UTC"), "user": pl.String(), "n": pl.Int64()}),
    time="ts",
)
rows = events.map(m=col("n").map_batches(doubled, return_dtype=pl.Int64)).filter(col("n") > 0)
apart = rows.select("n", "user", "m").map_batches(functools.partial(cleaned, keep=2))
throttled = events.key_by("user").apply(Throttle(4), {"n": pl.Int64()}, columns=["n"])
folded = events.key_by("user").apply_rows(outer(10), {"n": pl.Int64()}, 0)
app = ps.app(
    "app",
    ps.output("apart", apart, ps.console()),
    ps.output("means", events.key_by("user").window("1m").aggregate(mean("n")), ps.console()),
    ps.output("throttled", throttled, ps.console()),
    ps.output("folded", folded, ps.console()),
)
'''


def code(text: str, place: Path, name: str = "app.py") -> dict[str, str]:
    place.mkdir(parents=True, exist_ok=True)
    (place / name).write_text(text)
    app = load(place / name)
    return digest_plan(compile_app(app))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return code(APP, tmp_path_factory.mktemp("before"))


def test_every_function_and_class_is_named(before: dict[str, str]) -> None:
    functions = {name for name in before if ": " not in name}
    named = {"scaled", "doubled", "cleaned", "recursive", "outer.inner", "Throttle", "Base", PYTHON}
    assert named <= functions
    assert {"Throttle.process", "Throttle.fits", "Base.init_state"} <= functions
    assert {name for name in functions if name.startswith("<lambda>")} == {
        "<lambda>", "<lambda> (2)", "<lambda> (3)"
    }  # fmt: skip


#: what of the file is changed, and the functions that differ then
CHANGES = {
    "constant": ("value * FACTOR", "value * FACTOR + 1", ["scaled"]),
    "global": ("FACTOR = 2", "FACTOR = 3", ["scaled"]),
    "global-set": ('NAMES = {"b", "a", "c"}', 'NAMES = {"b", "a", "d"}', ["recursive"]),
    "default": ("def cleaned(frame, keep=1)", "def cleaned(frame, keep=0)", ["cleaned"]),
    "partial": ("functools.partial(cleaned, keep=2)", "functools.partial(cleaned, keep=3)", []),
    "closure": ("outer(10)", "outer(11)", ["outer.inner"]),
    "nested": ('emit({"n": row["n"]})', 'emit({"n": row["n"] + 1})', ["outer.inner"]),
    "method": ("state + batch.height", "state + 1", ["Throttle.process"]),
    "static-method": ("n < 100", "n < 101", ["Throttle.fits"]),
    "base-class": ("return 0\n\n\nclass Throttle", "return 1\n\n\nclass Throttle", ["Base.init_state"]),
    "attribute": ("Throttle(4)", "Throttle(5)", []),
    "aggregate": ("state[0] / state[1]", "state[0] * state[1]", ["<lambda> (3)"]),
    "condition": ('col("n") > 0', 'col("n") > 1', []),
    "called-name": (".filter(pl.col", ".remove(pl.col", ["cleaned"]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_was_changed_differs_and_nothing_else(
    change: str, before: dict[str, str], tmp_path: Path
) -> None:
    then, now, functions = CHANGES[change]
    assert APP.count(then) == 1
    found = find_differences(before, code(APP.replace(then, now), tmp_path))
    assert [name for name in found if ": " not in name] == functions
    assert found  # where no function differs, a place does


@pytest.mark.parametrize(
    ("then", "now"),
    [
        ("\nimport functools", "\n\n\n# a comment\nimport functools"),
        ('"""Twice as much."""', '"""Two times as much."""'),
        ('    """Twice as much."""\n', ""),
        ("FACTOR = 2\n", "FACTOR = 2\nUNUSED = 7\n"),
        ('NAMES = {"b", "a", "c"}', 'NAMES = {"c", "b", "a"}'),
        ("def recursive(n):", "def unused():\n    return 1\n\n\ndef recursive(n):"),
        ("    return values.map_elements(", "\n    # as it was\n    return values.map_elements("),
    ],
    ids=[
        "lines",
        "docstring",
        "no-docstring",
        "unused-value",
        "order-of-a-set",
        "unused-function",
        "comment",
    ],
)
def test_what_changes_nothing_that_is_done_makes_no_difference(
    then: str, now: str, before: dict[str, str], tmp_path: Path
) -> None:
    assert APP.count(then) == 1
    assert find_differences(before, code(APP.replace(then, now), tmp_path)) == []


def test_neither_the_file_nor_where_it_is_counts(before: dict[str, str], tmp_path: Path) -> None:
    assert code(APP, tmp_path / "elsewhere", "other.py") == before


@pytest.mark.process
def test_it_is_the_same_in_every_process(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    program = "import json, sys; from tests.query.test_code_digests import *; "
    program += "print(json.dumps(code(APP, Path(sys.argv[1]))))"
    found = {
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", program, str(tmp_path)],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1


def test_running_a_function_changes_nothing() -> None:
    def add(n: int) -> int:
        total = 0
        for one in range(n):
            total += one
        return total

    before = digest_objects({"f": add})
    for _ in range(100):  # its instructions are specialised by then
        add(100)
    assert digest_objects({"f": add}) == before


def test_what_a_module_beside_the_file_does_counts(tmp_path: Path) -> None:
    def loaded(body: str) -> dict[str, str]:
        helpers = types.ModuleType("helpers")
        helpers.__file__ = str(tmp_path / "helpers.py")
        exec(compile(body, helpers.__file__, "exec"), vars(helpers))
        names = {"helpers": helpers}
        exec(compile("def f(x):\n    return helpers.half(x)\n", str(tmp_path / "app.py"), "exec"), names)
        return digest_objects({"f": names["f"]})

    one, other = loaded("def half(x):\n    return x / 2\n"), loaded("def half(x):\n    return x / 3\n")
    assert find_differences(one, other) == ["half"]
    unused = loaded("def half(x):\n    return x / 2\n\ndef third(x):\n    return x / 3\n")
    assert find_differences(one, unused) == []


def test_what_holds_itself_has_an_end() -> None:
    around: list[object] = [1]
    around.append(around)

    def f() -> int:
        return len(around)

    assert digest_objects({"f": f}) == digest_objects({"f": f})


def test_a_query_without_python_does_not_depend_on_the_version_of_python(tmp_path: Path) -> None:
    text = "\n".join(
        [
            "import penstock as ps",
            'clicks = ps.stream("clicks", ps.generated(total=10), ps.combined_log(), time="time")',
            'app = ps.app("app", ps.output("rows", clicks.filter(ps.col("status") == 200), ps.console()))',
        ]
    )
    assert PYTHON not in code(text, tmp_path)


def test_the_identity_of_state_does_not_depend_on_code(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    then, now, _ = CHANGES["method"]
    first = program_of(load(tmp_path / "app.py"), tmp_path)
    (tmp_path / "app.py").write_text(APP.replace(then, now))
    second = program_of(load(tmp_path / "app.py"), tmp_path)
    assert first.fingerprint == second.fingerprint
    assert first.code != second.code


# ---------------------------------------------------------------- what a function uses


def digests_of(text: str) -> dict[str, str]:
    """Of the function f in a user's module with this text."""
    module = types.ModuleType("users")
    module.__file__ = "/users.py"
    sys.modules[module.__name__] = module
    exec(compile(text, module.__file__, "exec"), vars(module))
    return dict(digest_objects({"function: f": module.f}))


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        (
            "import functools\n@functools.cache\ndef g(x): return x + 1\ndef f(x): return g(x)",
            ("x + 1", "x + 2"),
        ),
        ("import re\nP = re.compile('a')\ndef f(x): return P.match(x)", ("'a'", "'b'")),
        ("import re\nclass A:\n    P = re.compile('a')\ndef f(x): return A().P.match(x)", ("'a'", "'b'")),
        ("import operator\nG = operator.itemgetter(1)\ndef f(x): return G(x)", ("(1)", "(2)")),
        ("import types\nN = types.SimpleNamespace(a=1)\ndef f(x): return N.a + x", ("a=1", "a=2")),
        ("T = {n: n for n in range(2000)}\ndef f(x): return T[x]", ("n: n", "n: n + 1")),
    ],
    ids=["cached function", "pattern", "pattern of a class", "itemgetter", "namespace", "table"],
)
def test_what_a_function_uses_counts_with_it(text: str, changed: tuple[str, str]) -> None:
    before, after = digests_of(text), digests_of(text.replace(*changed))
    assert digests_of(text) == before
    assert find_differences(before, after)


def test_the_environment_of_a_machine_is_no_code(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "from os import environ\ndef f(x): return environ.get('X', x)"
    before = digests_of(text)
    monkeypatch.setenv("ONE_MORE", "1")
    assert digests_of(text) == before


def test_a_large_table_takes_no_time_and_a_deep_one_keeps_nobody_out() -> None:
    started = time.process_time()
    assert digests_of("T = {str(n): n for n in range(200_000)}\ndef f(x): return T[x]")
    assert time.process_time() - started < 5.0
    deep = "D = []\nfor _ in range(3000):\n    D = [D]\ndef f(x): return D"
    assert digests_of(deep) == digests_of(deep)
