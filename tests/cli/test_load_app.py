"""A user's file is loaded as it is; an error in it is reported with the user's line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import polars as pl
import pytest

from penstock.cli.load_app import load_app
from penstock.errors import UserError

pytestmark = pytest.mark.process

APP = """
import penstock as ps
rows = ps.stream("clicks", ps.generated(total=10, live=False), ps.combined_log(), time="time")
app = ps.app("tiny", ps.output("all", rows.select("path"), ps.jsonl("out")))
"""


@pytest.fixture(autouse=True)
def _forget_modules() -> Iterator[None]:
    before, path = set(sys.modules), list(sys.path)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if name in cloudpickle.list_registry_pickle_by_value():
            cloudpickle.unregister_pickle_by_value(sys.modules[name])
        del sys.modules[name]


def write_app(directory: Path, text: str, name: str = "job.py") -> Path:
    path = directory / name
    path.write_text(text)
    return path


def load_error(path: Path) -> UserError:
    with pytest.raises(UserError) as caught:
        load_app(path)
    return caught.value


def test_the_one_app_of_a_file_is_found_under_any_name(tmp_path: Path) -> None:
    assert load_app(write_app(tmp_path, APP + "mine = app\n")).name == "tiny"


def test_a_missing_app_file_is_an_error(tmp_path: Path) -> None:
    assert load_error(tmp_path / "none.py").condition == "APP_FILE_MISSING"
    assert "directory" in load_error(tmp_path).text()


def test_the_error_for_a_file_without_an_app_shows_how_to_make_one(tmp_path: Path) -> None:
    error = load_error(write_app(tmp_path, "x = 1\n"))
    assert error.condition == "NO_APP"
    assert "ps.app(" in error.text()


def test_a_file_with_two_apps_is_refused_with_their_names(tmp_path: Path) -> None:
    error = load_error(
        write_app(tmp_path, APP + 'other = ps.app("b", ps.output("b", rows, ps.jsonl("b")))\n')
    )
    assert error.condition == "SEVERAL_APPS"
    assert "app, other" in error.text()


def test_an_exception_while_loading_names_the_users_line(tmp_path: Path) -> None:
    error = load_error(write_app(tmp_path, "import json\n\njson.loads('{')\n"))
    assert error.condition == "APP_NOT_LOADED"
    assert error.where == "job.py:3 `json.loads('{')`"


def test_a_mistake_in_the_syntax_names_the_users_line(tmp_path: Path) -> None:
    error = load_error(write_app(tmp_path, "x = 1\ny = = 2\n"))
    assert (error.where or "").startswith("job.py:2")


def test_a_query_that_is_wrong_keeps_its_own_error(tmp_path: Path) -> None:
    error = load_error(write_app(tmp_path, APP.replace('"path"', '"pth"')))
    assert error.condition == "UNKNOWN_COLUMN"
    assert (error.where or "").startswith("job.py:4")


def test_functions_of_the_file_and_of_modules_beside_it_travel_by_value(tmp_path: Path) -> None:
    write_app(tmp_path, "def twice(frame):\n    return frame.vstack(frame)\n", "beside_it.py")
    text = APP.replace("import penstock as ps", "import penstock as ps\nimport beside_it")
    load_app(write_app(tmp_path, text + "def mine(frame):\n    return beside_it.twice(frame)\n"))
    packed = cloudpickle.dumps(sys.modules["penstock_app_job"].mine)
    for name in ("penstock_app_job", "beside_it"):
        del sys.modules[name]
    sys.path.remove(str(tmp_path))
    assert cloudpickle.loads(packed)(pl.DataFrame({"a": [1]})).height == 2


@pytest.mark.parametrize("function", ["mine", "lambda n: mine(n)", "beside_it.twice"])
def test_functions_in_expressions_travel_by_value_too(function: str, tmp_path: Path) -> None:
    write_app(tmp_path, "def twice(values):\n    return values * 2\n", "beside_it.py")
    text = f"""
import polars as pl
import beside_it
def mine(values):
    return beside_it.twice(values)
expr = pl.col("n").map_batches({function}, return_dtype=pl.Int64)
"""
    load_app(write_app(tmp_path, APP + text))
    packed = cloudpickle.dumps(sys.modules["penstock_app_job"].expr)
    elsewhere = f"""
import sys
import polars as pl
import cloudpickle
expr = cloudpickle.loads(bytes.fromhex({packed.hex()!r}))
print(pl.DataFrame({{"n": [1, 2]}}).select(expr).to_series().to_list())
"""
    done = subprocess.run([sys.executable, "-c", elsewhere], capture_output=True, text=True, timeout=100)
    assert done.stdout == "[2, 4]\n", done.stderr
