"""Loads a user's application file: a Python file with one `ps.app(...)` or `ps.jobs_app(...)`, or a file of SQL.

Errors in the file name the user's line. The file's module, and the modules it imports from its own directory, are sent
to the workers by value, so they need not be installed there.
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

import cloudpickle

from penstock.catalogue.jobs_app import JobsApp
from penstock.errors import PenstockError, UserError
from penstock.origin import Origin
from penstock.query.logical import App

_PREFIX = "penstock_app_"


def load_app(file: Path) -> App:
    """The one application of a file whose plan does not change."""
    found = load(file)
    if isinstance(found, JobsApp):
        raise UserError(
            "JOBS_NOT_APP",
            f"{file} has jobs that come and go",
            hint="Run it and show the plan of a job: penstock jobs show NAME.",
        )
    return found


def load(file: Path) -> App | JobsApp:
    """The one application of a file."""
    path = file.resolve()
    if not path.is_file():
        raise UserError(
            "APP_FILE_MISSING",
            f"there is no file {file}",
            detail="It is a directory." if path.is_dir() else None,
            hint="Name the Python file of your app, or the .sql file of your jobs.",
        )
    if path.suffix == ".sql":
        return JobsApp(path.stem, path.read_text(), file=str(file))
    before = set(sys.modules)
    module = _run_file(path)
    for name in set(sys.modules) - before | {module.__name__}:
        if _is_beside(sys.modules[name], path.parent):
            cloudpickle.register_pickle_by_value(sys.modules[name])
    return _only_app(module, file)


class _SourceLoader(SourceFileLoader):
    """Compiles a file as it is now. Python identifies cached bytecode by the second and the size of its source: after a
    quick change to a file of the same size, the former code would run."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


def _run_file(path: Path) -> ModuleType:
    if path.suffix != ".py":
        raise UserError(
            "NOT_PYTHON", f"{path.name} is not a Python file", hint="Give it a name that ends in .py."
        )
    loader = _SourceLoader(_PREFIX + path.stem, str(path))
    spec = importlib.util.spec_from_file_location(loader.name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    try:
        loader.exec_module(module)
    except PenstockError:
        raise
    except SyntaxError as failure:
        at = Origin(failure.filename or str(path), failure.lineno or 0)
        raise UserError("APP_NOT_LOADED", f"SyntaxError: {failure.msg}", where=str(at)) from failure
    except Exception as failure:
        raise UserError(
            "APP_NOT_LOADED",
            f"{type(failure).__name__}: {failure}",
            where=str(_user_line(failure, path)),
            hint="The file raised this while it was loaded; no query has run.",
        ) from failure
    return module


def _user_line(failure: Exception, path: Path) -> Origin:
    """The last line of the user's own directory that the failure came through."""
    frames = traceback.extract_tb(failure.__traceback__)
    own = [f for f in frames if _is_inside(Path(f.filename), path.parent)]
    return Origin(own[-1].filename, own[-1].lineno or 0) if own else Origin(str(path), 0)


def _is_beside(module: ModuleType, directory: Path) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and _is_inside(Path(file), directory)


def _is_inside(file: Path, directory: Path) -> bool:
    """Whether a file is the user's own: below the app's directory, and not an installed package."""
    try:
        relative = file.resolve().relative_to(directory)
    except (ValueError, OSError):
        return False
    return not any(part in ("site-packages", "penstock") or part.startswith(".") for part in relative.parts)


def _only_app(module: ModuleType, file: Path) -> App | JobsApp:
    apps = {name: value for name, value in vars(module).items() if isinstance(value, App | JobsApp)}
    distinct = {id(app) for app in apps.values()}
    if not apps:
        raise UserError(
            "NO_APP",
            f"{file} has no app",
            hint='End the file with app = ps.app("name", ps.output(...)).',
        )
    if len(distinct) > 1:
        raise UserError(
            "SEVERAL_APPS",
            f"{file} has {len(distinct)} apps",
            detail=f"They are {', '.join(apps)}.",
            hint="Put all outputs into one app, or each app into a file of its own.",
        )
    return next(iter(apps.values()))


def served_app(file: Path | None, empty: bool) -> App | JobsApp:
    """The application of a file, or one without jobs if none is given: jobs then come over HTTP."""
    if (file is None) is not empty:
        raise UserError(
            "BAD_OPTION", "give either a file or --empty", hint="Write for example penstock serve jobs.sql."
        )
    return JobsApp("service") if file is None else load(file)
