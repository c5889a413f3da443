"""The page on metrics lists every metric as it is declared."""

from __future__ import annotations

import re
from pathlib import Path

from penstock.metrics import METRICS

PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()


def rows(heading: str) -> list[tuple[str, ...]]:
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = re.findall(r"^\| `.*\|$", section, re.M)
    return [tuple(cell.strip() for cell in line.strip("|").split(" |")) for line in lines]


def test_the_table_of_metrics_agrees_with_the_code() -> None:
    declared = [
        (f"`{one.name}`", one.kind, one.unit, ", ".join(f"`{name}`" for name in one.labels), one.help)
        for one in METRICS
    ]
    assert rows("All metrics") == declared


def test_the_table_of_former_names_agrees_with_the_code() -> None:
    former = [(f"`{old}`", f"`{one.name}`") for one in METRICS for old in one.former_names]
    assert rows("Former names") == former
