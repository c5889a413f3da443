"""Archives of golden state: packed small and always alike, unpacked anywhere.

    FORMAT/CASE.tar.xz    a case
    FORMAT/input.tar.xz   the lines of the cases of this format that have none of their own

about.json            what made it: commit, versions, the epoch and the offsets at the cut, the operators with state
input/STREAM/PART     the lines of every stream
state/                the state directory, as an engine left it
out/                  what its sinks held by then
expected/OUTPUT.jsonl the rows of an undisturbed run over the whole input
"""

from __future__ import annotations

import io
import json
import lzma
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl
from polars import selectors

from tests.golden.given import made_lines

FORMATS = Path(__file__).parent
#: the folder of the lines, and the archive of those that cases share
INPUT = "input"
#: rows by output, each as canonical text, sorted
Rows = dict[str, list[str]]

#: what engines leave that is no state, or that does not outlive its host
_LEFT_OUT = frozenset({"engine.log", "engine.lock", "state-memory"})


def path_of(release: str, case: str) -> Path:
    """Where the archive of a case lies."""
    return FORMATS / release / f"{case}.tar.xz"


def releases() -> list[str]:
    """Which formats there are archives of, the oldest first."""
    return sorted((path.name for path in FORMATS.glob("format-*") if path.is_dir()), key=number_of)


def number_of(release: str) -> int:
    """The number of a format."""
    return int(release.removeprefix("format-"))


def cases_of(release: str) -> set[str]:
    """The cases that a format has archives of."""
    return {path.name.removesuffix(".tar.xz") for path in (FORMATS / release).iterdir()} - {INPUT}


def pack_case(folder: Path, release: str, case: str) -> int:
    """Pack a case, without its lines where they are those that the cases of its format share; returns the bytes."""
    shared = path_of(release, INPUT)
    if not shared.exists():
        with tempfile.TemporaryDirectory() as lines:
            write_lines(Path(lines), made_lines())
            pack(Path(lines), shared)
    if read_lines(folder) == made_lines():
        shutil.rmtree(folder / INPUT)
    return pack(folder, path_of(release, case))


def pack(folder: Path, target: Path) -> int:
    """Put a folder into an archive; returns its bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(folder.rglob("*"), key=lambda path: (path.suffix, str(path))):
            if not _LEFT_OUT.isdisjoint(path.relative_to(folder).parts) or not (
                path.is_file() or path.is_dir()
            ):
                continue
            info = tarfile.TarInfo(str(path.relative_to(folder)))
            if path.is_dir():
                info.type, info.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(info)
                continue
            content = path.read_bytes()
            info.size, info.mode = len(content), 0o644
            tar.addfile(info, io.BytesIO(content))
    packed = lzma.compress(buffer.getvalue(), preset=9 | lzma.PRESET_EXTREME)
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(packed)
    return len(packed)


def unpack(archive: Path, folder: Path) -> dict[str, Any]:
    """Put an archive's files into a folder, and the lines that it shares; returns what it says about itself."""
    _extract(archive, folder)
    if not (folder / INPUT).exists():
        _extract(archive.with_name(f"{INPUT}.tar.xz"), folder)
    if (code := folder / "state" / "code").exists():
        code.chmod(0o700)  # as the engine made it, whatever the umask is here
    for why in ("dead", "late", "leaped"):
        for path in (folder / "state" / why).glob("*/*"):
            os.utime(path)  # as if it was written today: what is older than 30 days is removed
    return about(folder)


def _extract(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as tar:
        # Python 3.11 knows filters from its fourth patch on
        tar.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))


def about(folder: Path) -> dict[str, Any]:
    """What an unpacked archive says about itself."""
    found: dict[str, Any] = json.loads((folder / "about.json").read_text())
    return found


def write_lines(folder: Path, lines: Mapping[str, Mapping[str, Iterable[str]]]) -> None:
    """Store the lines of streams."""
    for stream, parts in lines.items():
        for part, content in parts.items():
            path = folder / INPUT / stream / part
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(f"{line}\n" for line in content))


def read_lines(folder: Path) -> dict[str, dict[str, list[str]]]:
    """The lines of streams that an archive holds."""
    return {
        stream.name: {part.name: part.read_text().splitlines() for part in sorted(stream.iterdir())}
        for stream in sorted((folder / INPUT).glob("*"))
    }


def write_rows(folder: Path, rows: Rows) -> None:
    """Store the rows of outputs."""
    folder.mkdir(exist_ok=True)
    for name, texts in rows.items():
        (folder / f"{name}.jsonl").write_text("".join(f"{text}\n" for text in texts))


def read_rows(folder: Path) -> Rows:
    """The rows that `write_rows` stored."""
    return {path.stem: path.read_text().splitlines() for path in sorted(folder.glob("*.jsonl"))}


def canonical(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Rows as sorted texts."""
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


def rows_below(folder: Path, through: int | None = None) -> Rows:
    """The rows of every directory of epoch files in a folder; of all epochs, or of those up to one."""
    return {
        path.name: canonical(_objects(path, through))
        for path in sorted(folder.glob("*"))
        if path.is_dir() and not path.name.startswith(".")
    }


def _objects(folder: Path, through: int | None) -> Iterator[Mapping[str, Any]]:
    for path in sorted(folder.glob("epoch-*")):
        if through is not None and int(path.stem.removeprefix("epoch-")) > through:
            continue
        if path.suffix == ".parquet":
            yield from pl.read_parquet(path).with_columns(selectors.temporal().to_physical()).to_dicts()
        else:
            yield from map(json.loads, path.read_text().splitlines())


def newest_manifest(state: Path) -> dict[str, Any]:
    """The newest manifest, read without the product's code: its first line is JSON."""
    newest = max((state / "manifests").glob("*.json"))
    found: dict[str, Any] = json.loads(newest.read_text().splitlines()[0])
    return found


def formats_of(state: Path) -> set[int]:
    """The formats that penstock.json and the newest manifest say."""
    facts: dict[str, Any] = json.loads((state / "penstock.json").read_text())
    return {facts.get("format", 1), newest_manifest(state).get("format", 1)}


def rows_held(manifest: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """How many rows a manifest says there are, by operator and collection."""
    held: dict[str, dict[str, int]] = {}
    for operator, group in manifest["collections"].items():
        for name, entries in group.items():
            count = sum(sum(entry[4][2::3]) for entry in entries)
            if count:
                held.setdefault(operator, {})[name] = count
    return held


def newest_record(state: Path) -> int:
    """The newest epoch that has a record."""
    return max(int(path.stem) for path in (state / "epochs").glob("*.json"))


def offsets(state: Path, epoch: int) -> dict[str, dict[str, int]]:
    """The offsets that an epoch record reaches, by stream and partition."""
    record = state / "epochs" / f"{epoch:012d}.json"
    reached: dict[str, dict[str, int]] = json.loads(record.read_text())["end"]["at"]
    return reached


def rename(state: Path, before: str, after: str) -> None:
    """Put another id of a partition into the epoch records and manifests."""
    for path in sorted((state / "epochs").glob("*.json")):
        path.write_text(path.read_text().replace(f'"{before}"', f'"{after}"'))
    for path in sorted((state / "manifests").glob("*.json")):
        _write_manifest(path, path.read_text().splitlines()[0].replace(f'"{before}"', f'"{after}"'))


def forget(state: Path, operator: str) -> None:
    """Take an operator's collections out of the newest manifest."""
    manifest = newest_manifest(state)
    del manifest["collections"][operator]
    _write_manifest(max((state / "manifests").glob("*.json")), json.dumps(manifest))


def _write_manifest(path: Path, text: str) -> None:
    """One line of JSON and its checksum."""
    path.write_text(f"{text}\n{zlib.crc32(text.encode()):08x}\n")


# -- HA units ------------------------------------------------------------------------------------


def unit_root(state: Path) -> Path:
    """Where the unit was started whose directory this is."""
    launch: dict[str, Any] = json.loads((state / "ha" / "unit.json").read_text())
    return Path(launch["coordination"]).parents[1]


def unit_record(state: Path) -> dict[str, Any]:
    """The record of a unit in force, in the coordination store on files: its newest version, after a plus sign."""
    (newest,) = (
        max(one.glob("@*")) for one in (state / "ha" / "coordination" / "records" / "units").glob("*/record")
    )
    found: dict[str, Any] = json.loads(newest.read_text()[1:])
    return found


def without_places(state: Path, file: Path) -> None:
    """Leave out of a unit's directory where its application's file is, which every start writes again, and what its
    engines printed."""
    launch = state / "ha" / "unit.json"
    launch.write_text(launch.read_text().replace(str(file), file.name))
    shutil.rmtree(state / "ha" / "logs")


def move_unit(state: Path, name: str) -> None:
    """Put the place where a unit's directory is now, and the name it has there, where the old ones stand."""
    launch, root = json.loads((state / "ha" / "unit.json").read_text()), str(unit_root(state))
    units = state / "ha" / "coordination" / "records" / "units"
    (units / launch["unit"]).rename(units / name)
    for path in [state / "ha" / "unit.json", *units.rglob("@*")]:
        text = path.read_text().replace(root, str(state.resolve()))
        path.write_text(text.replace(f'"{launch["unit"]}"', f'"{name}"'))
