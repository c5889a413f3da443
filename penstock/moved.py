"""Keeps former paths of modules that users import working for one more version, with a warning.

`import penstock.jobs.program` imports `penstock.catalogue.program` and warns. Only documented paths have an alias.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import sys
import warnings
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

#: former path -> path
MOVED = {
    "penstock.elastic": "penstock.scaling",
    "penstock.elastic.simulate": "penstock.simulate.scaling",
    "penstock.elastic.traces": "penstock.simulate.loads",
    "penstock.engine.settings": "penstock.settings",
    "penstock.jobs": "penstock.catalogue",
    "penstock.jobs.program": "penstock.catalogue.program",
    "penstock.words": "penstock",
    "penstock.words.errors": "penstock.errors",
}
#: former path -> former name -> name
RENAMED = {"penstock.elastic.simulate": {"Run": "ScalingRun", "simulate": "simulate_scaling"}}


class _Former(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds modules under their former paths."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return importlib.util.spec_from_loader(name, self) if name in MOVED else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        now = MOVED[spec.name]
        warnings.warn(
            f"{spec.name} is now {now}; the next version removes the former path",
            DeprecationWarning,
            stacklevel=2,
        )
        module = importlib.import_module(now)
        alias = ModuleType(spec.name, module.__doc__)
        renamed = RENAMED.get(spec.name, {})
        alias.__getattr__ = lambda name: getattr(module, renamed.get(name, name))  # type: ignore[method-assign]
        alias.__path__ = []
        return alias

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to execute: the alias takes everything from the module at the new path."""


def install() -> None:
    """Install the finder of former paths, after all others."""
    if not any(isinstance(finder, _Former) for finder in sys.meta_path):
        sys.meta_path.append(_Former())
