"""Read a file of Python with the modules it imports from its own directory, as source text.

A digest names the sources. Nothing is executed: what a file imports is found in its syntax. A state directory keeps
source, not pickles, because source survives versions of Python.

Guarantees: every file that is read belongs to the user of this process or to root, and nobody else can write it, nor
exchange it or a directory on the way to it. The digest is the same wherever and whenever the same sources are read
from the same path.
Does not guarantee: modules that a file loads by a name which it computes (`importlib`) are not found.
On failure: `UserError` with APP_FILE_MISSING, NOT_PYTHON, APP_NOT_LOADED, CODE_NOT_TRUSTED or CODE_TOO_LARGE.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath

from penstock.errors import ExternalError, UserError
from penstock.origin import Origin

#: the size limit of a file with its modules
MAX_BYTES = 8 << 20
#: names that are imported from where they are installed, whatever lies beside the file
_INSTALLED = frozenset({"penstock", *sys.builtin_module_names})
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True)
class CodeBundle:
    """The source of a file and of its own modules. `path` is where the file lies, `files` has the text of each by its
    path relative to the file's directory."""

    path: str
    files: Mapping[str, str] = field(repr=False)

    @property
    def main(self) -> str:
        """The file itself, among `files`."""
        return PurePosixPath(self.path).name

    @cached_property
    def digest(self) -> str:
        """The identity of these sources."""
        return hashlib.sha256(json.dumps([self.path, sorted(self.files.items())]).encode()).hexdigest()[:32]

    @cached_property
    def modules(self) -> Mapping[str, str]:
        """The files by the names under which Python imports them."""
        return {self.main_module if name == self.main else module_name(name): name for name in self.files}

    @cached_property
    def main_module(self) -> str:
        """The name of the file's own module: another than its stem where a package of that name lies beside it."""
        stem = self.main.removesuffix(".py").replace(".", "_")
        others = {module_name(name) for name in self.files if name != self.main}
        return f"{stem}__file" if stem in others else stem

    def line_of(self, name: str) -> int:
        """The line of the file that defines a name, or assigns it first; 0 where none does."""
        lines = [
            node.lineno
            for node in ast.walk(ast.parse(self.files[self.main]))
            if (isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name)
            or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == name)
        ]
        return min(lines, default=0)


def module_name(file: str) -> str:
    """The name of the module that a file is: `lib/text.py` is `lib.text`."""
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def read_bundle(file: Path) -> CodeBundle:
    """A file and the modules it imports from its own directory, however far away."""
    path = Path(os.path.realpath(file))
    if not path.is_file():
        raise UserError(
            "APP_FILE_MISSING",
            f"there is no file {file}",
            detail="It is a directory." if path.is_dir() else None,
            hint="Name the Python file that holds the query.",
        )
    if path.suffix != ".py":
        raise UserError(
            "NOT_PYTHON", f"{path.name} is not a Python file", hint="Give it a name that ends in .py."
        )
    files: dict[str, str] = {}
    size, missing = 0, [path.name]
    while missing:
        name = missing.pop()
        source = _read_trusted(path.parent / name)
        size += len(source)
        if size > MAX_BYTES:
            raise UserError(
                "CODE_TOO_LARGE",
                f"{path.name} and the modules it imports from {path.parent} have more than {MAX_BYTES:,} bytes",
                hint="Keep data out of them, and other programs out of the directory.",
            )
        files[name] = _decode(source, path.parent / name)
        imported = _imports(_parse(files[name], str(path.parent / name)), PurePosixPath(name))
        listed = {*files, *missing}
        missing += [one for one in dict.fromkeys(imported) if one not in listed and _is_own(path.parent, one)]
    return CodeBundle(str(path), files)


def bundle_source(path: str, source: str) -> CodeBundle:
    """A bundle of source text that does not come from a file of this machine; it can import nothing beside it."""
    _parse(source, path)
    return CodeBundle(path, {PurePosixPath(path).name: source})


def _decode(source: bytes, path: Path) -> str:
    try:
        return importlib.util.decode_source(source)
    except (SyntaxError, UnicodeDecodeError) as failure:
        raise _syntax(str(failure), Origin(str(path), 0)) from failure


def _parse(source: str, path: str) -> ast.Module:
    try:
        return ast.parse(source, path)
    except SyntaxError as failure:
        raise _syntax(failure.msg, Origin(path, failure.lineno or 0)) from failure
    except (ValueError, RecursionError) as failure:  # null bytes, and brackets without end
        raise _syntax(str(failure), Origin(path, 0)) from failure


def _syntax(what: str, at: Origin) -> UserError:
    return UserError("APP_NOT_LOADED", f"SyntaxError: {what}", where=str(at))


# -- what a file imports -------------------------------------------------------------------------


def _imports(tree: ast.Module, file: PurePosixPath) -> Iterator[str]:
    """The files that the imports of a file may mean, relative to its directory."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _candidates(alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            package = list(file.parent.parts)
            if node.level > len(package) + 1:
                continue  # beyond the file's directory: loading it raises
            before = package[: len(package) - node.level + 1] if node.level else []
            parts = [*before, *(node.module.split(".") if node.module else [])]
            yield from _candidates(parts)
            for alias in node.names:
                yield from _candidates([*parts, alias.name])


def _candidates(parts: list[str]) -> Iterator[str]:
    for end in range(1, len(parts) + 1):
        base = "/".join(parts[:end])
        yield from (f"{base}/__init__.py", f"{base}.py")


def _is_own(directory: Path, name: str) -> bool:
    root = PurePosixPath(name).parts[0].removesuffix(".py")
    if root in _INSTALLED or not (directory / name).is_file():
        return False
    package = f"{name.removesuffix('.py')}/__init__.py"  # where there are both, Python takes the package
    return name.endswith("/__init__.py") or not (directory / package).is_file()


# -- who can write a file -------------------------------------------------------------------------


def _read_trusted(path: Path) -> bytes:
    """The content of a file; raises unless only the user of this process and root can change it."""
    real = os.path.realpath(path)
    try:
        with open(real, "rb") as file:
            check_trusted(real, os.fstat(file.fileno()))
            for directory in Path(real).parents:
                check_trusted(str(directory), os.stat(directory))
            return file.read(MAX_BYTES + 1)
    except OSError as failure:
        raise ExternalError(
            "APP_FILE_UNREADABLE",
            f"{path} cannot be read",
            detail=str(failure),
            hint="The engine reads it, as the user that it runs as.",
        ) from failure


def check_trusted(path: str, status: os.stat_result) -> None:
    """Raise unless a file or directory belongs to the user of this process or to root, and nobody else can write it."""
    me, kind = os.geteuid(), "directory" if stat.S_ISDIR(status.st_mode) else "file"
    if status.st_uid not in (me, 0):
        raise _not_trusted(
            f"the {kind} {path} belongs to another user than the one that the engine runs as",
            f"its owner is {status.st_uid}, the engine's user is {me}",
            "Code is taken from files that the engine's own user or root owns: copy them there.",
        )
    # in a sticky directory others can make files, but not exchange ours
    if status.st_mode & _WRITABLE_BY_OTHERS and not (kind == "directory" and status.st_mode & stat.S_ISVTX):
        raise _not_trusted(
            f"others than the engine's user can write the {kind} {path}",
            f"its mode is {stat.S_IMODE(status.st_mode):04o}",
            f"chmod go-w {path}",
        )


def _not_trusted(what: str, detail: str, hint: str) -> UserError:
    return UserError("CODE_NOT_TRUSTED", what, detail=detail, hint=hint)
