"""How `--executors`, `--elastic` and `--manager` become settings.

Receives what the command line said; hands the engine's settings for executors, or why they cannot be.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from penstock.errors import UserError
from penstock.scaling.manager import Manager
from penstock.scaling.settings import contradiction, parse_settings


def following(
    master: str, executors: int | None, elastic: Sequence[str] | None, manager: Path | None
) -> dict[str, Any]:
    """The settings that say how many executors there are and who changes that."""
    if not elastic and manager is None:
        return {} if executors is None else {"executors": executors}
    if master.startswith("local"):
        raise UserError(
            "NOT_A_CLUSTER",
            f"{master} has no executors that could come and go",
            hint="Start a cluster with `penstock cluster up` and give its address as --master.",
        )
    settings = parse_settings(text for text in elastic or () if text != "on")
    least, most = settings.least_executors, settings.most_executors
    if executors is not None and not least <= executors <= most:
        raise contradiction(
            f"--executors {executors} is not between least_executors={least} and most_executors={most}",
            "Begin with as many as the fleet may have.",
        )
    return {
        "executors": executors or settings.least_executors,
        "elastic": settings,
        "manager": None if manager is None else load_manager(manager),
    }


def load_manager(file: Path) -> Manager:
    """The manager of a file: an object with `decide`, or a class of which one can be made without arguments."""
    spec = importlib.util.spec_from_file_location(f"penstock_manager_{file.stem}", file)
    if not file.is_file() or spec is None or spec.loader is None:
        raise UserError("NO_MANAGER", f"there is no Python file {file}", hint="Name the file that holds it.")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        own = [
            value for value in vars(module).values() if getattr(value, "__module__", "") == module.__name__
        ]
        made = [value() for value in own if isinstance(value, type) and hasattr(value, "decide")]
    except Exception as failure:
        raise UserError(
            "NO_MANAGER", f"{file} cannot be loaded: {type(failure).__name__}: {failure}"
        ) from failure
    kinds = (type, ModuleType)
    found = [
        value
        for value in vars(module).values()
        if not isinstance(value, kinds) and callable(getattr(value, "decide", None))
    ]
    if len(found or made) != 1:
        raise UserError(
            "NO_MANAGER",
            f"{file} holds {len(found or made)} managers",
            hint="It needs one class with a method `decide(self, now)` that returns decisions.",
        )
    manager: Manager = (found or made)[0]
    return manager
