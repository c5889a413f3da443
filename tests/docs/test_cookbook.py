"""The cookbook's recipes emit the tables below them, in one epoch and in an epoch per line."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path

import polars as pl
import pytest

from penstock.cli.load_app import load_app
from penstock.testing.inline import run_inline

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "cookbook.md").read_text()
RECIPES = re.split(r"^## ", PAGE, flags=re.M)[1:]
MOST_LINES = 25

Table = list[list[str]]


def tables(text: str) -> list[Table]:
    """Return the tables of a text as lines of cells, the names of the columns first."""
    found = re.findall(r"^\|.*(?:\n\|.*)+", text, re.M)
    split = [
        [[cell.strip() for cell in line.strip("|").split("|")] for line in one.splitlines()] for one in found
    ]
    return [[head, *rows] for head, _, *rows in split]


def cell(value: object) -> str:
    if isinstance(value, datetime):
        assert value.date().isoformat() == "2026-03-01"
        return value.strftime("%H:%M:%S").removesuffix(":00")
    return "null" if value is None else str(value)


def to_table(frames: list[pl.DataFrame]) -> Table:
    rows = pl.concat(frames)
    return [rows.columns, *([cell(value) for value in row] for row in rows.iter_rows())]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda text: text.partition("\n")[0])
def test_a_recipe_emits_its_tables(recipe: str, tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", recipe, re.S)
    assert len([line for line in code.splitlines() if line]) <= MOST_LINES
    (tmp_path / "recipe.py").write_text(code)
    app = load_app(tmp_path / "recipe.py")
    for units in (1 << 40, 1):
        found: dict[str, list[pl.DataFrame]] = {}
        for report in run_inline(app, tmp_path / f"state{units}", epoch_units=units):
            for name, rows in report.rows.items():
                found.setdefault(name, []).append(rows)
        answer = [to_table(found[output.name]) for output in app.outputs]
        if units == 1:
            assert [sorted(table) for table in answer] == [sorted(table) for table in tables(recipe)]
        else:
            assert answer == tables(recipe)


def test_all_recipes_are_found() -> None:
    assert len(RECIPES) >= 10
