"""The notebook runs, cell after cell, against a service."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.catalogue.program import Program
from penstock.testing.serving import serving

pytestmark = pytest.mark.slow

NOTEBOOK = Path(__file__).parents[2] / "examples" / "client.ipynb"


def test_the_notebook_runs(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    assert all(not cell["outputs"] for cell in cells)
    names: dict[str, Any] = {}
    with serving(Program("notebook", state), state) as service:
        monkeypatch.setenv("PENSTOCK_URL", service.url)
        for number, cell in enumerate(cells):
            exec(compile("".join(cell["source"]), f"cell {number}", "exec"), names)
    assert names["latest"].columns == ["path", "n"]
