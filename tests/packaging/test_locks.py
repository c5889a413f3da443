"""The lock files name every package that is needed on any platform, with hashes and without addresses."""

from __future__ import annotations

import re
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCKS = sorted(ROOT.glob("requirements*.lock"))
BLOCK = re.compile(r"([\w.-]+)==([\w.+!-]+) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)")
PYTHONS = ("3.11.0", "3.11.9", "3.12.5", "3.13.5", "3.14.0")
PLATFORMS = (("linux", "x86_64", "Linux"), ("linux", "aarch64", "Linux"), ("darwin", "arm64", "Darwin"))


def _environments() -> list[dict[str, str]]:
    return [
        {
            "python_version": ".".join(python.split(".")[:2]),
            "python_full_version": python,
            "implementation_version": python,
            "sys_platform": platform,
            "platform_machine": machine,
            "platform_system": system,
        }
        for python in PYTHONS
        for platform, machine, system in PLATFORMS
    ]


def _pins(*files: Path) -> dict[str, str]:
    return {
        canonicalize_name(name): version
        for file in files
        for name, version, _ in BLOCK.findall(file.read_text())
    }


@pytest.mark.parametrize("file", LOCKS, ids=lambda file: file.name)
def test_every_package_has_a_version_and_hashes_and_nothing_else(file: Path) -> None:
    text = "".join(line for line in file.read_text().splitlines(keepends=True) if not line.startswith("#"))
    assert BLOCK.sub("", text) == ""
    assert "://" not in file.read_text()
    names = [name for name, _, _ in BLOCK.findall(text)]
    assert names
    assert len(names) == len(set(names))


def test_what_locked_packages_need_on_any_platform_and_python_is_locked() -> None:
    pins = _pins(*LOCKS)
    installed = {canonicalize_name(one.metadata["Name"]): one for one in distributions()}
    extras = {name: {""} for name in pins}
    missing, todo = set[str](), sorted(pins)
    while todo:
        name = todo.pop()
        for text in (installed[name].requires or ()) if name in installed else ():
            need, key = Requirement(text), canonicalize_name(Requirement(text).name)
            environments = [env | {"extra": extra} for env in _environments() for extra in extras[name]]
            if need.marker is not None and not any(map(need.marker.evaluate, environments)):
                continue
            if key not in pins or not need.specifier.contains(pins[key], prereleases=True):
                missing.add(f"{name} needs {text}")
            elif not need.extras <= extras[key]:
                extras[key] |= need.extras
                todo.append(key)
    assert missing == set()


def test_packages_are_installed_by_their_hashes_alone() -> None:
    for script in (ROOT / "run", ROOT / ".ci" / "run"):
        for line in script.read_text().splitlines():
            if re.search(r"(pip_install|pip install).* -r ", line):
                assert "--require-hashes" in line, f"{script.name}: {line}"
