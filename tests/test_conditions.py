"""Every condition that the package raises is named in some test, or here with the reason why not."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
KINDS = {"PenstockError", "UserError", "ExternalError", "InternalError"}
#: conditions that no test names
UNNAMED = {
    "AGENT_FAILED": "an unforeseen exception in a thread of an agent",
    "NO_EXECUTORS": "a cluster that gives none takes its whole start timeout",
    "NO_PORT": "all ports of the loopback address would have to be taken",
    "NOT_JOINED": "a store that is away is waited for for twenty seconds",
    "PROCESS_STAYS": "only a kernel that hangs keeps a process that was killed",
    "SERVICE_NOT_STARTED": "an HTTP server that does not start in time; a taken address is reported before",
    "SPARK_NOT_FOUND": "pyspark is installed wherever tests are",
    "UNIT_NOT_STOPPED": "engines that do not end are waited for for two minutes",
}


def first_word(call: ast.Call) -> str | None:
    """Return the condition that a raising call names, if any."""
    name = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
    argument = call.args[0] if call.args else None
    raises = name in KINDS or name.startswith("_")  # or helpers that make the error
    if not raises or not isinstance(argument, ast.Constant) or not isinstance(argument.value, str):
        return None
    return argument.value if re.fullmatch(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+", argument.value) else None


def raised_conditions() -> dict[str, str]:
    """Return the conditions of the package, and where they are raised."""
    found: dict[str, str] = {}
    for path in sorted((ROOT / "penstock").rglob("*.py")):
        if "bench" in path.parts:
            continue  # benchmarks raise where a machine or a result is not as it should be
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and (condition := first_word(node)):
                found.setdefault(condition, f"{path.relative_to(ROOT)}:{node.lineno}")
    return found


def named_conditions() -> set[str]:
    """Return all words like conditions in the tests and in the testing kit."""
    paths = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "penstock" / "testing").rglob("*.py")]
    texts = (path.read_text() for path in paths if path != Path(__file__))
    return {word for text in texts for word in re.findall(r"[A-Z][A-Z0-9_]+", text)}


@pytest.mark.slow
def test_every_condition_is_named_in_a_test() -> None:
    conditions, words = raised_conditions(), named_conditions()
    assert len(conditions) > 200, "they are found at all"
    missing = {name: place for name, place in conditions.items() if name not in words and name not in UNNAMED}
    assert not missing, f"provoke these, or declare in {Path(__file__).name} why nobody can: {missing}"


def test_no_reason_is_listed_for_a_condition_that_is_named_or_gone() -> None:
    assert not UNNAMED.keys() & named_conditions()
    assert UNNAMED.keys() <= raised_conditions().keys()
