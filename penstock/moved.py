"""Keeps former names that users know working for one more version, with a warning.

    import penstock.jobs.program                                    a former path: MOVED
    __getattr__ = former_names_in(__name__, begun="initial_state")  a former name in a module
    @former_names(rising="is_rising")                               former attributes and methods of a class
    @former_parameters(tell="report")                               former keywords of a function

Only names that users could know from the documentation or from the demos have an alias.
"""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.util
import sys
import warnings
from abc import ABCMeta
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

#: former path -> path
MOVED = {
    "penstock.elastic": "penstock.scaling",
    "penstock.elastic.decisions": "penstock.scaling.decisions",
    "penstock.elastic.simulate": "penstock.simulate.scaling",
    "penstock.elastic.traces": "penstock.simulate.loads",
    "penstock.engine.closing": "penstock.epoch.rate_control",
    "penstock.engine.settings": "penstock.settings",
    "penstock.jobs": "penstock.catalogue",
    "penstock.jobs.app": "penstock.catalogue.jobs_app",
    "penstock.jobs.program": "penstock.catalogue.program",
    "penstock.words": "penstock",
    "penstock.words.errors": "penstock.errors",
}
#: former path -> former name -> name
RENAMED = {
    "penstock.elastic.decisions": {"about": "subject_of", "told": "explain", "what": "describe"},
    "penstock.elastic.simulate": {
        "Run": "ScalingRun",
        "Series": "ScalingSeries",
        "Simulated": "ScalingResult",
        "first_size": "choose_start_size",
        "simulate": "simulate_scaling",
    },
    "penstock.elastic.traces": {"NAMES": "FORMS", "spread_of": "find_spread", "trace_of": "find_trace"},
    "penstock.engine.closing": {"Closing": "EmissionLimit"},
    "penstock.jobs.program": {"Jobs": "Program"},
}

Class = TypeVar("Class", bound=type)
Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")


_REMOVED = "the next version removes the former name"


def _warn(former: str, now: str, between: int = 0) -> None:
    """Warn the caller of the function that calls this, with so many frames `between`."""
    warnings.warn(f"{former} is now {now}; {_REMOVED}", DeprecationWarning, stacklevel=3 + between)


def show_warnings() -> None:
    """Show the warnings to whoever runs a file with `penstock`. Python hides those of files other than the main one."""
    if not sys.warnoptions:  # -W and PYTHONWARNINGS decide
        warnings.filterwarnings("default", f".*{_REMOVED}", DeprecationWarning)


# ---------------------------------------------------------------- paths of modules


class _FormerPaths(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds modules under their former paths."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return importlib.util.spec_from_loader(name, self) if name in MOVED else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        now = MOVED[spec.name]
        _warn(spec.name, now)
        module = importlib.import_module(now)
        alias = ModuleType(spec.name, module.__doc__)
        renamed = RENAMED.get(spec.name, {})

        def find(name: str) -> Any:
            if f"{spec.name}.{name}" in MOVED:
                return importlib.import_module(f"{spec.name}.{name}")
            if name in renamed:
                _warn(f"{spec.name}.{name}", f"{now}.{renamed[name]}")
            return getattr(module, renamed.get(name, name))

        alias.__getattr__ = find  # type: ignore[method-assign]
        alias.__path__ = []
        return alias

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to execute: the alias takes everything from the module at the new path."""


def install() -> None:
    """Install the finder of former paths, after all others."""
    if not any(isinstance(finder, _FormerPaths) for finder in sys.meta_path):
        sys.meta_path.append(_FormerPaths())


# ---------------------------------------------------------------- names


def former_names_in(module: str, **names: str) -> Callable[[str], Any]:
    """A module's `__getattr__` that finds former names: `former="name"`."""

    def find(former: str) -> Any:
        if former not in names:
            raise AttributeError(f"module {module!r} has no attribute {former!r}")
        _warn(f"{module}.{former}", names[former])
        return getattr(sys.modules[module], names[former])

    return find


class _FormerName:
    """An attribute that is another one under its former name."""

    def __init__(self, former: str, now: str) -> None:
        self._former, self._now = former, now

    def __get__(self, instance: object | None, owner: type) -> Any:
        _warn(f"{owner.__name__}.{self._former}", self._now)
        overriding = [
            one for one in owner.__mro__ if not isinstance(vars(one).get(self._former, self), _FormerName)
        ]
        if instance is not None and overriding:  # reached by super() in a user's override
            return getattr(super(overriding[-1], instance), self._now)
        return getattr(owner if instance is None else instance, self._now)

    def __set__(self, instance: object, value: Any) -> None:
        _warn(f"{type(instance).__name__}.{self._former}", self._now)
        setattr(instance, self._now, value)


def former_names(**names: str) -> Callable[[Class], Class]:
    """Keep former names of a class: `former="name"`, of attributes, methods and fields.

    A field's former name is a keyword of the constructor too, and subclasses may define former names
    (see `former_overrides`).
    """

    def keep(cls: Class) -> Class:
        for former, now in names.items():
            setattr(cls, former, _FormerName(former, now))
        fields = getattr(cls, "__dataclass_fields__", {})
        keywords = {former: now for former, now in names.items() if now in fields}
        if keywords:
            cls.__init__ = former_parameters(**keywords)(cls.__init__)  # type: ignore[misc]
        return former_overrides(**names)(cls)

    return keep


def former_overrides(**names: str) -> Callable[[Class], Class]:
    """Let subclasses, which users derive, define former names: `former="name"`."""

    def keep(cls: Class) -> Class:
        base: Any = cls

        def __init_subclass__(subclass: type, /, **options: Any) -> None:
            super(base, subclass).__init_subclass__(**options)
            for former, now in names.items():
                if former not in vars(subclass):
                    continue
                _warn(f"{subclass.__name__}.{former}", now, between=type(cls) is ABCMeta)
                value = vars(subclass)[former]
                if now not in vars(subclass):
                    setattr(subclass, now, value)
                if not hasattr(value, "__get__"):  # functions and properties may call super() by this name
                    delattr(subclass, former)

        assert "__init_subclass__" not in vars(cls)
        base.__init_subclass__ = classmethod(__init_subclass__)
        return cls

    return keep


def former_parameters(
    **names: str,
) -> Callable[[Callable[Parameters, Returned]], Callable[Parameters, Returned]]:
    """Keep former keywords of a function: `former="keyword"`."""

    def keep(function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
        @functools.wraps(function)
        def call(*arguments: Parameters.args, **keywords: Parameters.kwargs) -> Returned:
            for former in keywords.keys() & names.keys():
                _warn(f"{former} of {function.__qualname__.removesuffix('.__init__')}", names[former])
                keywords[names[former]] = keywords.pop(former)
            return function(*arguments, **keywords)

        return call

    return keep
