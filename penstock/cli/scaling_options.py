"""Turns `--executors`, `--elastic` and `--manager` into settings of the engine."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from penstock.errors import UserError
from penstock.scaling.decide import Manager
from penstock.scaling.settings import contradiction, parse_settings


def executor_settings(
    master: str, executors: int | None, elastic: Sequence[str] | None, manager: Path | None
) -> dict[str, Any]:
    """The settings for the number of executors and for what changes it."""
    if not elastic and manager is None:
        return {} if executors is None else {"executors": executors}
    if master.startswith("local"):
        raise UserError(
            "NOT_A_CLUSTER",
            f"the master {master} has no executors that could be added or removed",
            hint="Start a cluster with `penstock cluster up` and use its address as --master.",
        )
    settings = parse_settings(text for text in elastic or () if text != "on")
    least, most = settings.least_executors, settings.most_executors
    if executors is not None and not least <= executors <= most:
        raise contradiction(
            f"--executors {executors} is not between least_executors={least} and most_executors={most}",
            "Start with a number between them.",
        )
    return {
        "executors": executors or settings.least_executors,
        "elastic": settings,
        "manager": None if manager is None else load_manager(manager),
    }


def load_manager(file: Path) -> Manager:
    """The manager in a file: an object with `decide`, or a class with `decide` and no arguments."""
    spec = importlib.util.spec_from_file_location(f"penstock_manager_{file.stem}", file)
    if not file.is_file() or spec is None or spec.loader is None:
        raise UserError(
            "NO_MANAGER",
            f"there is no Python file {file}",
            hint="Name the Python file of your manager (.py).",
        )
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        classes = [
            value
            for value in vars(module).values()
            if isinstance(value, type) and value.__module__ == module.__name__ and hasattr(value, "decide")
        ]
        instances = [value() for value in classes]
    except Exception as failure:
        raise UserError(
            "NO_MANAGER", f"{file} cannot be loaded: {type(failure).__name__}: {failure}"
        ) from failure
    objects = [
        value
        for value in vars(module).values()
        if not isinstance(value, type | ModuleType) and callable(getattr(value, "decide", None))
    ]
    managers = objects or instances
    if len(managers) != 1:
        raise UserError(
            "NO_MANAGER",
            f"{file} has {len(managers)} managers",
            hint="It needs one class with a method `decide(self, now)` that returns decisions.",
        )
    manager: Manager = managers[0]
    return manager
