"""The architecture page agrees with the tree: its modules exist, and its packages are the layers of the contract."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "penstock"
PAGE = (ROOT / "docs" / "architecture.md").read_text()


def test_every_module_and_folder_named_on_the_page_exists() -> None:
    modules = re.findall(r"`([\w/]+\.py)`", PAGE)
    folders = [name for name in re.findall(r"`([\w/]+/)`", PAGE) if name != "bench/"]
    assert len(set(modules)) > 150
    assert [path for path in modules if not (PACKAGE / path).is_file()] == []
    assert [path for path in folders if not (PACKAGE / path).is_dir()] == []


def test_the_table_of_packages_is_the_contract_of_layers() -> None:
    section = PAGE.partition("## Packages\n")[2].partition("\n## ")[0]
    rows = [set(re.findall(r"`(\w+)`", cell)) for cell in re.findall(r"^\| (`.*?) \|", section, re.M)]
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    below = [layer for layer in layers if layer.startswith("penstock.")]
    assert rows == [{name.strip().removeprefix("penstock.") for name in layer.split("|")} for layer in below]


def test_every_question_of_where_is_answered_by_a_module() -> None:
    section = PAGE.partition("## Where is ...\n")[2]
    rows = [
        line.strip("|").split(" | ") for line in section.splitlines() if re.match(r"\| (?!\*\*|---)", line)
    ][1:]
    assert len(rows) > 30
    assert [question for question, answer in rows if not re.search(r"`\w+/[\w/]+\.py`", answer)] == []
