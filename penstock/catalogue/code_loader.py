"""Load the modules of code bundles, each version under names of its own, so that any number of them live together.

The file `app.py` of a bundle becomes the module `penstock_code_DIGEST.app`; what it imports from its own directory is
found in the same bundle, everything else where it is installed.

What these modules define is sent to the workers by value: they need not have it.

Does not guarantee: an `import` of a bundle's module inside a function is found by this process, not by a worker.
On failure: `UserError` APP_NOT_LOADED with the line of the bundle that raised.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import linecache
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle

from penstock.catalogue.code import CodeBundle
from penstock.errors import PenstockError, UserError
from penstock.origin import Origin, innermost_line

_PREFIX = "penstock_code_"


@dataclass(frozen=True)
class _Version:
    """A bundle that can be imported, and the directory that messages show for its files."""

    bundle: CodeBundle
    place: Path
    package: ModuleType

    def file(self, name: str) -> str:
        return str(self.place / name)

    @property
    def files(self) -> list[str]:
        return [self.file(name) for name in self.bundle.files]


@dataclass(frozen=True)
class _ModuleLoader(Loader):
    """Executes one module of a version. Found by name, so that a module that is pickled by value carries no source."""

    package: str
    file: str

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        version = _VERSIONS[self.package]
        source, shown = version.bundle.files[self.file], version.file(self.file)
        # lines are shown as they are in this version, also when the file is gone or not written yet
        linecache.cache[shown] = (len(source), None, source.splitlines(keepends=True), shown)
        module.__file__ = str(Path(version.bundle.path).parent / self.file)
        vars(module)["__builtins__"] = _builtins_of(self.package, version.bundle.modules)
        exec(compile(source, shown, "exec", dont_inherit=True), vars(module))


class _Finder(MetaPathFinder):
    """Finds the modules of all versions."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, name = fullname.partition(".")
        if package not in _VERSIONS or not name:
            return None
        modules = _VERSIONS[package].bundle.modules
        if name in modules:
            loader = _ModuleLoader(package, modules[name])
            return ModuleSpec(fullname, loader, is_package=modules[name].endswith("/__init__.py"))
        if any(other.startswith(f"{name}.") for other in modules):
            return ModuleSpec(fullname, None, is_package=True)  # a directory without __init__.py
        return None


_VERSIONS: dict[str, _Version] = {}
_FINDER = _Finder()
_LOCK = threading.RLock()


def load_bundle(bundle: CodeBundle, place: Path) -> ModuleType:
    """The module of a bundle's file; `place` is where its files lie, for messages."""
    name = _PREFIX + bundle.digest
    with _LOCK:
        if _FINDER not in sys.meta_path:
            sys.meta_path.append(_FINDER)
        if name not in _VERSIONS:
            package = ModuleType(name)
            package.__path__ = []
            sys.modules[name] = package
            _VERSIONS[name] = _Version(bundle, place, package)
            cloudpickle.register_pickle_by_value(package)
        version = _VERSIONS[name]
    try:
        return importlib.import_module(f"{name}.{bundle.main_module}")
    except PenstockError:
        raise
    except SyntaxError as failure:  # of a module that is imported where its name is computed
        at = Origin(failure.filename or version.file(bundle.main), failure.lineno or 0)
        raise UserError("APP_NOT_LOADED", f"SyntaxError: {failure.msg}", where=str(at)) from failure
    except (Exception, SystemExit) as failure:
        raise describe_failure(
            bundle, version.place, failure, "The file raised this while it was loaded; nothing has changed."
        ) from failure


def describe_failure(bundle: CodeBundle, place: Path, failure: BaseException, hint: str) -> PenstockError:
    """The error for an exception of a bundle's code, at the last of its lines that the exception came through."""
    files = [str(place / name) for name in bundle.files]
    at = innermost_line(failure, files) or Origin(str(place / bundle.main), 0)
    if isinstance(failure, PenstockError):
        return failure
    return UserError("APP_NOT_LOADED", f"{type(failure).__name__}: {failure}", where=str(at), hint=hint)


def unload_bundle(digest: str) -> None:
    """Unload a version. Whoever still holds its functions can use them."""
    name = _PREFIX + digest
    with _LOCK:
        version = _VERSIONS.pop(name, None)
        if version is None:
            return
        cloudpickle.unregister_pickle_by_value(version.package)
        for module in [one for one in sys.modules if one == name or one.startswith(f"{name}.")]:
            del sys.modules[module]
        for file in version.files:
            linecache.cache.pop(file, None)


def _builtins_of(package: str, modules: Mapping[str, str]) -> dict[str, Any]:
    """The built-in names for a module of a version: its `import` looks among the version's own modules first."""
    roots = {name.partition(".")[0] for name in modules}

    def import_own(
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        root = name.partition(".")[0]
        if level or root not in roots:
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        module = builtins.__import__(f"{package}.{name}", globals, locals, fromlist or (), 0)
        return module if fromlist else sys.modules[f"{package}.{root}"]

    return {**vars(builtins), "__import__": import_own}
