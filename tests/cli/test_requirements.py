"""A fresh checkout installs every declared package in a version that fits."""

from __future__ import annotations

import ast
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
#: modules that come with a package of another name
MODULES = {"py4j": "pyspark", "starlette": "fastapi"}


def _locked() -> dict[str, str]:
    lines = (ROOT / "requirements.lock").read_text().split()
    return {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines)}


def _declared(*extras: str) -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = [
        *project["dependencies"],
        *(one for e in extras for one in project["optional-dependencies"][e]),
    ]
    return [Requirement(one) for one in declared]


def test_every_declared_package_is_locked_in_a_version_that_fits() -> None:
    locked = _locked()
    for requirement in _declared("dev"):
        assert locked.get(canonicalize_name(requirement.name), "none") in requirement.specifier, requirement


def test_every_package_that_the_engine_imports_is_declared() -> None:
    requirement = {canonicalize_name(one.name) for one in _declared("dev")}
    imported = set()
    for layer in ("catalogue", "cli", "engine", "epoch", "spark", "replica", "state", "query", "server"):
        for file in (ROOT / "penstock" / layer).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Import):
                    imported |= {alias.name.partition(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module:
                    imported.add(node.module.partition(".")[0])
    outside = imported - sys.stdlib_module_names - {"penstock"}
    assert "cloudpickle" in outside, "Polars needs it to send functions"
    missing = {name for name in outside if canonicalize_name(MODULES.get(name, name)) not in requirement}
    assert not missing
