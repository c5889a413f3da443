"""Functions, signatures and classes of the package are small, or a comment at their definition says why not.

    # over 8 parameters: each is an option

A comment for what is within the bounds is stale, and fails too.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock

PACKAGE = Path(penstock.__file__).parent
MAX_LINES, MAX_PARAMETERS, MAX_METHODS = 60, 8, 25
COMMENT = re.compile(r"# over ([\w ]+): +\S")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def find_violations(source: str) -> Iterator[str]:
    """What is over a bound without a reason, and what has a reason without being over the bound."""
    lines = source.splitlines()
    explained = 0
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, Definition):
            continue
        reasons = COMMENT.findall("\n".join(find_header(node, lines)))
        given = {bound for reason in reasons for bound in reason.split(" and ")}
        explained += len(reasons)
        exceeded = set(find_exceeded(node))
        yield from (f"line {node.lineno}: {node.name} is over {bound}" for bound in exceeded - given)
        yield from (f"line {node.lineno}: {node.name} is not over {bound}" for bound in given - exceeded)
    if explained != len(COMMENT.findall(source)):
        yield "a comment on a bound is at no definition"


def find_exceeded(node: Definition) -> Iterator[str]:
    if isinstance(node, ast.ClassDef):
        if sum(isinstance(one, FUNCTIONS) for one in node.body) > MAX_METHODS:
            yield f"{MAX_METHODS} methods"
        return
    arguments = node.args
    names = [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    if len(names) - (names[:1] in (["self"], ["cls"])) > MAX_PARAMETERS:
        yield f"{MAX_PARAMETERS} parameters"
    assert node.end_lineno is not None
    if node.end_lineno - node.lineno >= MAX_LINES:
        yield f"{MAX_LINES} lines"


def find_header(node: Definition, lines: list[str]) -> list[str]:
    """The lines of a definition up to its body, with the comments directly above it."""
    first = min([node.lineno, *(one.lineno for one in node.decorator_list)]) - 1
    while first > 0 and lines[first - 1].lstrip().startswith("#"):
        first -= 1
    return lines[first : max(node.body[0].lineno - 1, node.lineno)]


@pytest.mark.slow
def test_what_is_over_a_bound_has_its_reason_at_the_definition() -> None:
    files = sorted(PACKAGE.rglob("*.py"))
    violations = [
        f"{path.relative_to(PACKAGE)}, {one}" for path in files for one in find_violations(path.read_text())
    ]
    assert violations == []


LONG = "def f():\n" + "    f()\n" * MAX_LINES
MANY = "def f(" + ", ".join(f"p{number}" for number in range(MAX_PARAMETERS + 1)) + "): ...\n"
BIG = "class C:\n" + "    def f(self): ...\n" * (MAX_METHODS + 1)


@pytest.mark.parametrize(
    ("source", "bound"), [(LONG, "60 lines"), (MANY, "8 parameters"), (BIG, "25 methods")]
)
def test_a_bound_is_found_and_a_reason_accepted(source: str, bound: str) -> None:
    assert len(list(find_violations(source))) == 1
    assert len(list(find_violations(f"# over {bound}:\n{source}"))) == 1, "there is no reason"
    assert list(find_violations(f"# over {bound}: each is an option\n{source}")) == []
    assert list(find_violations(f"# over {bound}: each is an option\n@decorated\n{source}")) == []


def test_a_reason_without_need_is_found() -> None:
    assert len(list(find_violations("# over 60 lines: an entry for each option\ndef f(): ...\n"))) == 1
    assert len(list(find_violations("x = 1  # over 60 lines: an entry for each option\n"))) == 1
