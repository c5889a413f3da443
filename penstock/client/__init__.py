"""The client: streams, jobs and results of a service, from Python anywhere. It does not depend on Spark."""

import warnings
from typing import Any

from penstock.client.connection import Client, connect
from penstock.client.result import Result
from penstock.client.subscription import Subscription

__all__ = ["Client", "Result", "Subscription", "connect"]


def __getattr__(name: str) -> Any:
    if name != "Told":
        raise AttributeError(f"module 'penstock.client' has no attribute {name!r}")
    warnings.warn("penstock.client.Told is penstock.client.Result now", DeprecationWarning, stacklevel=2)
    return Result
