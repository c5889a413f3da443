"""Penstock: continuous queries over live event streams, on Apache Spark.

The public names are those of `penstock.api`, imported when the first of them is used: an agent beside a web server
imports this package too, and must not load the libraries that queries need.
"""

from typing import TYPE_CHECKING, Any

from penstock.moved import install as _find_former_paths

if TYPE_CHECKING:
    from penstock.api import *  # noqa: F403
    from penstock.api import __all__ as __all__

__version__ = "0.1.0"
_find_former_paths()


def __getattr__(name: str) -> Any:
    if name.startswith("__") and name != "__all__":
        raise AttributeError(name)
    from importlib import import_module

    api = import_module("penstock.api")
    if name != "__all__" and name not in api.__all__:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    globals().update({public: getattr(api, public) for public in api.__all__}, __all__=api.__all__)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})
