"""The page on Spark lists every private name that the package uses, and the places."""

from __future__ import annotations

import ast
from pathlib import Path

import penstock.spark

PACKAGE = Path(penstock.spark.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
#: names that say nothing of Spark: of objects of our own
_OWN = ("self", "cls")


def private_names(path: Path) -> set[str]:
    """The attributes with an underscore that a module reads or sets of anything but itself."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Attribute) or not node.attr.startswith("_") or node.attr.startswith("__"):
            continue
        if not (isinstance(node.value, ast.Name) and node.value.id in _OWN):
            found.add(node.attr)
    return found


def listed() -> dict[str, set[str]]:
    """The names that the page lists for each module."""
    found: dict[str, set[str]] = {}
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) < 4 or not cells[2].startswith("`"):
            continue
        names = set(cells[1].replace("`", "").replace(",", " ").split())
        for module in cells[2].replace("`", "").replace(",", " ").split():
            found.setdefault(module, set()).update(names)
    return found


def test_every_private_name_of_spark_is_listed_with_its_module() -> None:
    page = listed()
    used = {path.name: private_names(path) for path in PACKAGE.glob("*.py")}
    assert any(used.values()), "nothing was found, so nothing was compared"
    missing = {module: names - page.get(module, set()) for module, names in used.items()}
    assert not any(missing.values()), {module: names for module, names in missing.items() if names}


def test_the_page_lists_no_module_that_is_gone() -> None:
    assert set(listed()) <= {path.name for path in PACKAGE.glob("*.py")}
