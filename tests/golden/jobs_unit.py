"""Cases of an HA unit of jobs that come and go."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.golden import archive, lives, unit_jobs
from tests.golden.case import OfUnit, write_limit
from tests.golden.given import Given
from tests.golden.unit_app import Growing


@dataclass(frozen=True)
class OfJobsUnit(OfUnit):
    """A unit of jobs. `commands` are by the lines of each partition: they are executed when so many have been read and
    no more is there, so that every life executes them at the same offsets, however its epochs are cut.
    """

    app: str = unit_jobs.NAME
    file: Path = Path(unit_jobs.__file__)

    def whole(self, given: Given, folder: Path) -> None:
        archive.write_lines(folder, given.lines)
        write_limit(folder, "0")

        def stages() -> Iterator[str]:
            for lines, text in sorted(self.commands.items()):
                write_limit(folder, str(lines))
                assert isinstance(text, str)
                yield text
            write_limit(folder, "all")

        lives.live_in_stages(unit_jobs.over(Growing(folder, "events")), folder / "state", stages())

    def rest(self, given: Given, folder: Path) -> None:
        with self.engines(folder, str(self.cut_lines), drain=False) as unit:
            unit.until("the unit stands", lambda: unit.stands(self.fails_over))
            self.grow(unit, folder, self.cut_lines, max(self.commands))
            unit.stop()
        super().rest(given, folder)

    def grow(self, unit: lives.LiveUnit, folder: Path, start: int, end: int) -> None:
        for lines, text in sorted(self.commands.items()):
            if start < lines <= end:
                super().grow(unit, folder, start, lines)
                assert isinstance(text, str)
                unit.execute(text)
        super().grow(unit, folder, start, end)
