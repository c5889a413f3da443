"""An app on a stream that the tests of a module share, and its results when nothing changes while it runs."""

from __future__ import annotations

import pytest

from tests.catalogue.app_kit import EVENTS, AppCase
from tests.catalogue.python_kit import Files


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("given"), EVENTS)


@pytest.fixture(scope="module")
def undisturbed(files: Files, tmp_path_factory: pytest.TempPathFactory) -> AppCase:
    """The app without any other job and without commands."""
    case = AppCase(tmp_path_factory.mktemp("undisturbed"), files)
    case.run()
    assert {name.split("/")[0] for name in case.content()} == {"counts", "busy", "sessions", "long", "errors"}
    return case
