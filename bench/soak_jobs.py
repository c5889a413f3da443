"""The jobs of a soak: some stay, are altered and paused, and others are created and dropped all the time.

It calls the program as a user does, and remembers in a few numbers what the oracle has to know.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from penstock.catalogue.program import Program
from penstock.errors import UserError

#: a job that comes and goes is created every so many ticks, and dropped after so many
CREATE_TICKS, LIFE_TICKS = 25, 70
#: ticks between two alterations, and between a pause and a resume
_ALTER_TICKS, _PAUSE_TICKS, _ASK_TICKS = 60, 90, 5
#: what the altered job compares with, in turn
BOUNDS = (950, 980)
BIG, PUSHED, FILED = 900, 940, 970

_STREAM = """
CREATE STREAM events FROM files('{folder}/in/*.log*', gz_settle_seconds => 0.5)
    FORMAT json(number BIGINT, at TIMESTAMP 'iso', key STRING, bytes BIGINT)
    EVENT TIME at LATENESS 2 SECONDS IDLE AFTER 5 SECONDS;
"""
_STAYING = """
CREATE JOB counts AS
    SELECT window_start, key, COUNT(*) AS n, SUM(bytes) AS total FROM events GROUP BY key WINDOWING 10 SECONDS
    INTO sqlite('{folder}/out/counts.db', 'counts'), jsonl('{folder}/out/counts', compact_bytes => 50000),
    http_push('{url}/counts', patience_seconds => 0.2);
CREATE JOB big AS SELECT number FROM events WHERE bytes >= {big}
    INTO jsonl('{folder}/full/big', compact_bytes => 50000), sqlite('{folder}/out/big.db', 'big');
CREATE JOB pushed AS SELECT number FROM events WHERE bytes >= {pushed}
    INTO http_push('{url}/pushed', patience_seconds => 0.2);
CREATE JOB filed AS SELECT number FROM events WHERE bytes >= {filed}
    INTO jsonl('{folder}/out/filed', compact_bytes => 50000);
CREATE JOB altered AS SELECT number FROM events WHERE bytes >= $bound
    INTO sqlite('{folder}/out/altered.db', 'altered') WITH ($bound = {bound});
CREATE JOB paused AS SELECT number FROM events WHERE bytes >= {big} INTO sqlite('{folder}/out/paused.db', 'paused');
"""
#: how many of the shapes write to SQLite: these are checked one by one
SQLITE_SHAPES = 7
#: of a job that comes and goes: most have the first shape, of which the output is checked
_COMING = (
    *[
        "SELECT {number} AS job, number FROM events WHERE bytes >= {bound} "
        "INTO sqlite('{folder}/out/coming.db', 'coming')"
    ]
    * SQLITE_SHAPES,
    "SELECT {number} AS job, number FROM events WHERE bytes % 10 = {digit} AND bytes >= {bound} "
    "INTO http_push('{url}/coming', patience_seconds => 0.2)",
    "SELECT key, COUNT(*) AS n, MAX(bytes) AS most FROM events WHERE bytes > {digit} GROUP BY key "
    "WINDOWING {digit_1} SECONDS INTO jsonl('{folder}/out/jobs/{number}')",
    "SELECT key, COUNT(*) AS n FROM events GROUP BY key WINDOWING SESSION {digit_1} SECONDS",
    "SELECT a.number, b.number AS other FROM events a JOIN events b ON a.key = b.key WITHIN 2 SECONDS",
    "SELECT as_of, key, COUNT(*) AS n FROM events GROUP BY key",
    "SELECT window_start, key, COUNT(*) AS n FROM events GROUP BY key ORDER BY n DESC LIMIT 3 WINDOWING 30 SECONDS",
    "SELECT window_start, SUM(n) AS n FROM counts WINDOWING 60 SECONDS",
)


@dataclass
class Interval:
    """The events, by number, between which a job was created and dropped, paused and resumed, or broken and repaired.
    None while it lasts."""

    start: int
    end: int | None = None


@dataclass
class JobChanges:
    """What was done to jobs, as far as the oracle has to know."""

    #: by number, with the bound and the digit of each
    created: dict[int, Interval] = field(default_factory=dict)
    paused: list[Interval] = field(default_factory=list)
    #: where the job `filed` had failed
    broken: list[Interval] = field(default_factory=list)


def coming_shape(number: int) -> int:
    """Which of the shapes a job has that comes and goes."""
    return number % len(_COMING)


def coming_bound(number: int) -> int:
    """The bound of a job that comes and goes."""
    return 800 + number * 37 % 190


class Jobs:
    """The jobs of one soak. `tick` is called for each tick, by one thread."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder, self._url = folder, url
        self.changes = JobChanges()
        self._is_paused = False

    def begin(self) -> str:
        """The statements that the program starts with."""
        return (_STREAM + _STAYING).format(
            folder=self._folder, url=self._url, big=BIG, pushed=PUSHED, filed=FILED, bound=BOUNDS[0]
        )

    def tick(self, program: Program, tick: int, written: int) -> None:
        """Create, drop, alter, pause, resume and ask, as it is due; `written`: events so far."""
        if tick % CREATE_TICKS == 0:
            self._create(program, tick // CREATE_TICKS, written)
        leaving = (tick - LIFE_TICKS) // CREATE_TICKS
        if tick % CREATE_TICKS == LIFE_TICKS % CREATE_TICKS and leaving in self.changes.created:
            program.execute(f"DROP JOB d{leaving}")
            self.changes.created[leaving].end = written
        if tick % _ALTER_TICKS == _ALTER_TICKS - 1:
            program.execute(f"ALTER JOB altered SET $bound = {BOUNDS[tick // _ALTER_TICKS % 2]}")
        if tick % _PAUSE_TICKS == _PAUSE_TICKS - 1:
            self._pause(program, written)
        if tick % _ASK_TICKS == 0:
            _ask(program, tick)

    def _create(self, program: Program, number: int, written: int) -> None:
        digit = number % 7
        text = _COMING[coming_shape(number)].format(
            number=number,
            bound=coming_bound(number),
            digit=digit,
            digit_1=digit + 1,
            folder=self._folder,
            url=self._url,
        )
        program.execute(f"CREATE JOB d{number} AS {text}")
        self.changes.created[number] = Interval(written)

    def _pause(self, program: Program, written: int) -> None:
        self._is_paused = not self._is_paused
        program.execute("PAUSE JOB paused" if self._is_paused else "RESUME JOB paused")
        if self._is_paused:
            self.changes.paused.append(Interval(written))
        else:
            self.changes.paused[-1].end = written

    def note_broken(self, written: int) -> None:
        """The sink of `filed` is broken now: the job fails with its next rows."""
        self.changes.broken.append(Interval(written))

    def repair(self, program: Program, written: int) -> bool:
        """Resume `filed`, whose sink is whole again, if it has failed."""
        if program.catalogue.jobs["filed"].master.life == "failed":
            program.execute("RESUME JOB filed")
        self.changes.broken[-1].end = written
        return True


def _ask(program: Program, tick: int) -> None:
    """Ask for results as people and pages do; a job may have none yet."""
    program.ask(("counts", "big", "altered")[tick // _ASK_TICKS % 3])
    program.since("big", max(tick - 20, 0), 10)
    if tick % (40 * _ASK_TICKS) == 0:
        program.execute("SHOW JOBS")
        program.questions.describe("counts")
        program.questions.versions("altered")
        try:
            program.check("SELECT nothing FROM events")
        except UserError:
            return
