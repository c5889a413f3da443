"""The page on Spark lists every private name that the package uses, and all that it reaches in the JVM, by module."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import penstock.spark

PACKAGE = Path(penstock.spark.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
#: objects of Penstock, not of Spark
_OWN = ("self", "cls")
#: where Python objects of Spark lead into the JVM
_DOORS = re.compile(r"_gateway|_j[a-z]\w*")
#: built-in functions whose result comes from the JVM if an argument does
_PASSING = {"getattr", "next", "iter", "list", "tuple", "sorted", "reversed"}
_JVM_CLASS = re.compile(r"(org\.apache\.spark|scala|java)(\.\w+)*\.[A-Z]\w*")


def find_private_names(path: Path) -> set[str]:
    """Return the attributes with an underscore that a module reads or sets of objects other than its own."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Attribute) or not node.attr.startswith("_") or node.attr.startswith("__"):
            continue
        if not (isinstance(node.value, ast.Name) and node.value.id in _OWN):
            found.add(node.attr)
    return found


class JvmNames:
    """What a module reaches in the JVM: it follows objects from there through variables, attributes and functions of
    the module, and collects the names that are taken of them."""

    def __init__(self, text: str) -> None:
        tree = ast.parse(text)
        self._functions = {
            node.name: node
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        #: (function, variable), ("self", attribute) and ("return", function) that hold objects of the JVM
        self._held: set[tuple[str, str]] = set()
        size = -1
        while size < len(self._held):
            size = len(self._held)
            for scope, node in self._nodes(tree):
                self._follow(scope, node)
        self.names = {name for scope, node in self._nodes(tree) for name in self._names(scope, node)}

    def _nodes(self, tree: ast.AST, scope: str = "") -> Iterator[tuple[str, ast.AST]]:
        for child in ast.iter_child_nodes(tree):
            inner = child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else scope
            yield inner, child
            yield from self._nodes(child, inner)

    def _is_jvm(self, scope: str, node: ast.AST | None) -> bool:
        """Whether an expression is an object of the JVM."""
        match node:
            case ast.Name(name):
                return (scope, name) in self._held
            case ast.Attribute(ast.Name("self"), name):
                return ("self", name) in self._held
            case ast.Attribute(value, name):
                return _DOORS.fullmatch(name) is not None or self._is_jvm(scope, value)
            case ast.Call(ast.Name(name), arguments) if name in _PASSING:
                return any(self._is_jvm(scope, one) for one in arguments)
            case ast.Call(ast.Name(name) | ast.Attribute(ast.Name("self"), name)) if name in self._functions:
                return ("return", name) in self._held
            case ast.Call(value) | ast.Subscript(value) | ast.Starred(value) | ast.NamedExpr(_, value):
                return self._is_jvm(scope, value)
            case ast.ListComp(value) | ast.SetComp(value) | ast.GeneratorExp(value):
                return self._is_jvm(scope, value)
            case ast.List(values) | ast.Tuple(values) | ast.BoolOp(_, values):
                return any(self._is_jvm(scope, one) for one in values)
            case ast.IfExp(_, one, other):
                return self._is_jvm(scope, one) or self._is_jvm(scope, other)
        return False

    def _follow(self, scope: str, node: ast.AST) -> None:
        """Note what holds an object of the JVM after a statement or call."""
        match node:
            case ast.Assign(targets, value):
                for target in targets:
                    self._assign(scope, target, value)
            case ast.AnnAssign(target, _, value) | ast.NamedExpr(target, value):
                self._assign(scope, target, value)
            case ast.For(target, iterated) | ast.comprehension(target, iterated):
                self._assign(scope, target, iterated)
            case ast.Return(value) | ast.Yield(value) if self._is_jvm(scope, value):
                self._held.add(("return", scope))
            case ast.Call(ast.Name(name) | ast.Attribute(ast.Name("self"), name)) if name in self._functions:
                spec = self._functions[name].args
                parameters = [one.arg for one in (*spec.posonlyargs, *spec.args) if one.arg not in _OWN]
                named = {one.arg: one.value for one in node.keywords if one.arg is not None}
                for parameter, argument in (*zip(parameters, node.args, strict=False), *named.items()):
                    if self._is_jvm(scope, argument):
                        self._held.add((name, parameter))

    def _assign(self, scope: str, target: ast.AST, value: ast.AST | None) -> None:
        match target, value:
            case ast.Tuple(targets), ast.Tuple(values):
                for one, its_value in zip(targets, values, strict=True):
                    self._assign(scope, one, its_value)
            case ast.Name(name), _ if self._is_jvm(scope, value):
                self._held.add((scope, name))
            case ast.Attribute(ast.Name("self"), name), _ if self._is_jvm(scope, value):
                self._held.add(("self", name))

    def _names(self, scope: str, node: ast.AST) -> Iterator[str]:
        match node:
            case ast.Attribute(value, name) if self._is_jvm(scope, value) and not hasattr(str, name):
                yield name  # a string of the JVM is one of Python's
            case ast.Call(ast.Name("getattr"), [value, ast.Constant(str() as name), *_]):
                if self._is_jvm(scope, value):
                    yield name
            case ast.Constant(str() as text) if _JVM_CLASS.fullmatch(text):
                yield text.rpartition(".")[2]


def read_page() -> dict[str, set[str]]:
    """Return the names that the page lists for each module."""
    found: dict[str, set[str]] = {}
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) < 4 or not cells[2].startswith("`"):
            continue
        names = {name for code in re.findall(r"`([^`]+)`", cells[1]) for name in code.split(".")}
        for module in re.findall(r"`([^`]+)`", cells[2]):
            found.setdefault(module, set()).update(names)
    return found


def test_every_private_name_of_spark_is_listed_with_its_module() -> None:
    page = read_page()
    used = {path.name: find_private_names(path) for path in PACKAGE.glob("*.py")}
    assert any(used.values()), "nothing was found, so nothing was compared"
    missing = {module: names - page.get(module, set()) for module, names in used.items()}
    assert not any(missing.values()), {module: names for module, names in missing.items() if names}


def test_all_that_is_reached_in_the_jvm_is_listed_with_its_module() -> None:
    page = read_page()
    used = {path.name: JvmNames(path.read_text()).names for path in PACKAGE.glob("*.py")}
    assert {"executorList", "isExecutorActive"} <= used["executors.py"]
    assert {"PythonUtils", "toSeq", "$conforms", "MODULE$"} <= used["preferred_location.py"]
    missing = {module: names - page.get(module, set()) for module, names in used.items()}
    assert not any(missing.values()), {module: names for module, names in missing.items() if names}


def test_objects_of_the_jvm_are_followed_wherever_they_go() -> None:
    text = """
class Door:
    def __init__(self, context, spark):
        self._spark, self.name = context._jsc.sc(), spark.name()
        self.first = self._find(context._jvm.Some)

    def _find(self, one):
        return next(each for each in one.all() if each.big())

    def use(self):
        rows = [row.cell() for row in self.first.rows()]
        for row in rows:
            if (last := row.last()) is not None:
                close(last)
        return self.name.lower(), getattr(self._spark, "hidden$")()

def close(what):
    what.shut("org.apache.spark.util.Far")
"""
    found = JvmNames(text).names
    assert found == {"sc", "Some", "all", "big", "rows", "cell", "last", "hidden$", "shut", "Far"}


def test_the_page_lists_no_module_and_no_name_that_is_gone() -> None:
    page = read_page()
    assert set(page) <= {path.name for path in PACKAGE.glob("*.py")}
    for module, names in page.items():
        text = (PACKAGE / module).read_text()
        assert [name for name in sorted(names) if name not in text] == [], module
