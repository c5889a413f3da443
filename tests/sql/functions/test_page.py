"""The page of functions in the docs is up to date."""

from __future__ import annotations

from pathlib import Path

from penstock.sql.functions.page import page

DOCS = Path(__file__).parents[3] / "docs" / "functions.md"


def test_the_page_is_generated_from_the_functions() -> None:
    assert DOCS.read_text() == page(), "python -m penstock.sql.functions.page > docs/functions.md"
