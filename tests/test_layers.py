"""No module of the package imports itself, however far round and wherever in the file the import stands.

The layers of pyproject.toml hold between packages. This holds between modules, and counts what a tool usually
leaves out: an import inside a function, one below `if TYPE_CHECKING`, `import_module` of a name that is written there,
and `import penstock` within the package. A name taken from a package counts as an import of its `__init__`, a module of
it as one of that module.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import penstock

PACKAGE = Path(penstock.__file__).parent

#: cycles that are meant, by their members; one that is gone, or gains or loses a member, fails
ALLOWED = {
    frozenset(
        f"penstock.query.{name}"
        for name in (
            *("rows", "stream", "keyed", "windowed"),
            *("custom_operators", "event_windows", "joins", "patterns", "products", "top"),
        )
    ): "A fluent API: a stream gives a keyed one, that a windowed one, and that a stream again, so their classes name "
    "each other. Without a cycle they would be one file with the methods of every family. What a method builds, nodes "
    "and operators, lies below and knows none of them.",
}


def find_modules(package: Path) -> dict[str, Path]:
    """The modules of a package, by their full names; a package itself is its `__init__`."""
    modules = {}
    for path in package.rglob("*.py"):
        parts = path.relative_to(package.parent).with_suffix("").parts
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return modules


def find_imports(module: str, path: Path, modules: Mapping[str, Path]) -> Iterator[str]:
    """Which modules of the package this one names in its imports, wherever they stand."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            for alias in node.names:
                name = f"{base}.{alias.name}"
                if name in modules:
                    yield name
                elif base in modules:
                    yield base
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            names = [str(argument.value) for argument in node.args[:1] if isinstance(argument, ast.Constant)]
            yield from (name for name in names if name in modules)


def read_graph(package: Path) -> dict[str, set[str]]:
    modules = find_modules(package)
    return {module: set(find_imports(module, path, modules)) for module, path in modules.items()}


def find_cycles(graph: Mapping[str, set[str]]) -> set[frozenset[str]]:
    """The strongly connected components with more than one module, and each module that imports itself."""
    reachable = {module: find_reachable(graph, module) for module in graph}
    return {
        frozenset(other for other in reached if module in reachable[other])
        for module, reached in reachable.items()
        if module in reached
    }


def find_reachable(graph: Mapping[str, set[str]], start: str) -> set[str]:
    reached: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        module = waiting.pop()
        if module not in reached:
            reached.add(module)
            waiting.extend(graph[module])
    return reached


@pytest.fixture(scope="module")
def cycles() -> set[frozenset[str]]:
    return find_cycles(read_graph(PACKAGE))


@pytest.mark.slow
def test_no_module_imports_itself_round_a_cycle_that_is_not_declared(cycles: set[frozenset[str]]) -> None:
    undeclared = [sorted(cycle) for cycle in cycles if cycle not in ALLOWED]
    assert not undeclared, f"import cycles: {undeclared}"


def test_every_declared_cycle_still_exists(cycles: set[frozenset[str]]) -> None:
    assert set(ALLOWED) <= cycles


@pytest.mark.parametrize(
    "back",
    [
        "import thing.a",
        "from thing import a",
        "from . import a",
        "from .a import f",
        "from thing.a import f",
        "def g():\n    from thing.a import f",
        "import importlib\ndef g():\n    return importlib.import_module('thing.a').f",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from thing.a import f",
    ],
)
def test_an_import_back_is_a_cycle_wherever_it_stands(tmp_path: Path, back: str) -> None:
    package = tmp_path / "thing"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "a.py").write_text("import json\nfrom thing.b import g\n")
    (package / "b.py").write_text(back)
    assert find_cycles(read_graph(package)) == {frozenset({"thing.a", "thing.b"})}


def test_an_import_of_the_package_within_it_counts_as_one_of_what_its_init_imports(tmp_path: Path) -> None:
    package = tmp_path / "thing"
    package.mkdir()
    (package / "__init__.py").write_text("from thing.a import f\n")
    (package / "a.py").write_text("def f():\n    import thing\n")
    assert find_cycles(read_graph(package)) == {frozenset({"thing", "thing.a"})}
