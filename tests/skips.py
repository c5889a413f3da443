"""Turn skips into failures where all that tests need is installed: `PENSTOCK_TEST_SKIPS=fail`, as `.ci/run` sets it.

A skipped test looks like one that passed. The one exception is what neither the repository nor `.ci/run` can bring; its
tests declare it with the marker `may_skip` and the name of what they need.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

import pytest

MARKER = "may_skip"


def fails() -> bool:
    """Whether a skip is a failure in this environment."""
    return os.environ.get("PENSTOCK_TEST_SKIPS") == "fail"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and fails() and not item.get_closest_marker(MARKER):
        _fail(report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, Any, Any]:
    report = yield
    if report.skipped and fails():
        _fail(report)
    return report


def _fail(report: Any) -> None:
    why = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    report.outcome = "failed"
    report.longrepr = (
        f"{report.nodeid} was skipped, and here a skip is a failure (PENSTOCK_TEST_SKIPS=fail).\n"
        f"{why.removeprefix('Skipped: ')}\n"
        f"Install what it needs, or, if nobody can, mark the test with @pytest.mark.{MARKER}(what it needs)."
    )
