"""Writes the hashes of all files of each pinned release into the lock files; `./run lock` calls it.

Receives lock files with lines `name==version`, which may have hashes already. Asks the package index that pip uses
(`PIP_INDEX_URL`, or pip's own setting or default) for the files of each release, for all platforms and Pythons.

Guarantees: versions stay as they are; every package has at least one hash; no address is written. A lock file changes
only when all of its packages were found.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

_DEFAULT = "https://pypi.org/simple"
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s\\;]+)", re.MULTILINE)
_ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"
_HEAD = "# The pins are edited by hand, the hashes are written by ./run lock; CONTRIBUTING.md says how.\n"


class _Links(HTMLParser):
    """The files on a page of an index, with their SHA-256."""

    def __init__(self) -> None:
        super().__init__()
        self.files: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        address, fragment = urldefrag(dict(attributes).get("href") or "")
        kind, _, digest = fragment.partition("=")
        if tag == "a" and kind == "sha256":
            self.files.append((unquote(Path(urlsplit(address).path).name), digest))


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _index() -> str:
    asked = subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", "global.index-url"],
        capture_output=True,
        text=True,
        check=False,
    )
    return (os.environ.get("PIP_INDEX_URL") or asked.stdout.strip() or _DEFAULT).rstrip("/")


def _files(index: str, name: str) -> list[tuple[str, str]]:
    """All files of a package on an index, with their SHA-256."""
    request = urllib.request.Request(f"{index}/{_normal(name)}/", headers={"Accept": _ACCEPT})
    with urllib.request.urlopen(request, timeout=120) as answer:
        body = answer.read()
    if body.lstrip().startswith(b"{"):
        return [(one["filename"], one["hashes"].get("sha256", "")) for one in json.loads(body)["files"]]
    links = _Links()
    links.feed(body.decode())
    return links.files


def _is_of(file: str, name: str, version: str) -> bool:
    """Whether a file is a wheel or a source archive of a release."""
    if file.endswith(".whl"):
        parts = file.split("-")
        return _normal(parts[0]) == _normal(name) and parts[1] == version
    for suffix in (".tar.gz", ".zip", ".tar.bz2"):
        if file.endswith(f"-{version}{suffix}"):
            return _normal(file.removesuffix(f"-{version}{suffix}")) == _normal(name)
    return False


def _locked(index: str, name: str, version: str) -> str:
    found = sorted({digest for file, digest in _files(index, name) if digest and _is_of(file, name, version)})
    if not found:
        raise SystemExit(f"the index has no file of {name} {version} with a SHA-256")
    return " \\\n".join((f"{name}=={version}", *(f"    --hash=sha256:{digest}" for digest in found))) + "\n"


def lock(file: Path, index: str) -> None:
    """Write the hashes of the packages that a lock file pins."""
    pins = sorted(set(_PIN.findall(file.read_text())), key=lambda pin: _normal(pin[0]))
    with ThreadPoolExecutor(8) as threads:
        blocks = list(threads.map(lambda pin: _locked(index, *pin), pins))
    file.write_text(_HEAD + "".join(blocks))
    print(f"{file.name}: {len(pins)} packages, {sum(block.count('--hash') for block in blocks)} hashes")


if __name__ == "__main__":
    root = Path(__file__).resolve().parents[1]
    for path in [Path(name) for name in sys.argv[1:]] or sorted(root.glob("requirements*.lock")):
        lock(path, _index())
