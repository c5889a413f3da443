"""Imports packages that only some logs and sinks need, and says which extra installs a missing one."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from penstock.errors import UserError


def extra(module: str, name: str, user: str) -> Any:
    """A module of an optional package; `name` is the extra of Penstock that installs it, `user` is what needs it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise UserError(
            "EXTRA_MISSING",
            f"{user} needs the package {module.partition('.')[0]}, which is not installed",
            detail=str(error),
            hint=f"pip install 'penstock[{name}]'.",
        ) from error
