"""Raw runs: what one run of one peer gave, a JSON file each in one folder, from which the report is made.

A file is a run that was made, so a comparison can continue where it stopped.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from penstock.errors import UserError

Status = Literal["ok", "failed", "timeout", "wrong"]
MACHINE = "machine.json"
#: a run in which anything else took more than this many cores is a busy one
BUSY = 0.3


@dataclass(frozen=True)
class Run:
    """One run. `seconds` by the engine's own clock, `wall` from start to end of its process, in seconds.

    `peak_bytes`: most memory its processes had at once, resident: shared pages count for each. `others`: how many
    cores anything else on the machine took meanwhile. `delays`: of a live input, seconds from the
    instant a window was over for the input to its rows. `rate`: events a second of a live input. `made_by`: of which
    commit the programs were.
    """

    workload: str
    peer: str
    number: int
    status: Status
    events: int
    began: str = ""
    seconds: float = 0.0
    wall: float = 0.0
    peak_bytes: int = 0
    cpu_seconds: float = 0.0
    others: float = 0.0
    code_lines: int = 0
    rate: float = 0.0
    delays: list[float] = field(default_factory=list)
    answer: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    reason: str = ""
    made_by: str = ""

    @property
    def events_per_second(self) -> float:
        return self.events / self.seconds

    @property
    def start_up(self) -> float:
        """Seconds of the process in which it did not work on events."""
        return max(0.0, self.wall - self.seconds)

    @property
    def busy(self) -> bool:
        """Whether anything else took much of the machine meanwhile."""
        return self.others > BUSY

    @property
    def name(self) -> str:
        return name_of(self.workload, self.peer, self.events, self.number)


def name_of(workload: str, peer: str, events: int, number: int) -> str:
    """The file of a run."""
    return f"{workload}.{peer}.{events}.{number}.json"


def write_run(run: Run, folder: Path) -> None:
    """Write a run to the folder, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    staging = folder / f".{run.name}"
    staging.write_text(json.dumps(asdict(run), indent=1) + "\n")
    staging.replace(folder / run.name)


def read(folder: Path) -> list[Run]:
    """All runs of a folder, by name."""
    found = sorted(path for path in folder.glob("*.*.*.*.json"))
    if not found:
        raise UserError(
            "BENCH_NO_RUNS",
            f"there are no runs in {folder}",
            hint="`./run bench peers` makes some; --report takes the folder it wrote them to.",
        )
    return [one(path) for path in found]


def one(path: Path) -> Run:
    """The run of a file."""
    return Run(**json.loads(path.read_text()))


def agreement(runs: Iterable[Run]) -> list[Run]:
    """The runs with those marked wrong whose answer is not that of the reference on the same input.

    The reference is the plain batch program in Polars; without it, the answer that most runs gave.
    """
    runs = list(runs)
    right: dict[tuple[str, int], str] = {}
    for run in runs:
        if run.status == "ok" and not run.delays:
            given = [
                _answer_text(other)
                for other in runs
                if (other.workload, other.events, other.status) == (run.workload, run.events, "ok")
                and (other.peer == "polars" or not _has_reference(runs, run))
            ]
            right[run.workload, run.events] = max(sorted(set(given)), key=given.count)
    judged = []
    for run in runs:
        expected = right.get((run.workload, run.events))
        if run.status == "ok" and not run.delays and _answer_text(run) != expected:
            reason = f"its answer is {_answer_text(run)[:200]}, expected {str(expected)[:200]}"
            judged.append(Run(**asdict(run) | {"status": "wrong", "reason": reason}))
        else:
            judged.append(run)
    return judged


def median_speed(
    runs: Iterable[Run], workload: str, peer: str, events: int, *, whole: bool = False
) -> float | None:
    """Events a second of a peer on so many events of a workload, by its own clock or by the `whole` process; None where
    it has no right answer."""
    wanted = (workload, peer, events, "ok")
    good = [run for run in runs if (run.workload, run.peer, run.events, run.status) == wanted and events]
    return statistics.median(events / (run.wall if whole else run.seconds) for run in good) if good else None


def _has_reference(runs: list[Run], like: Run) -> bool:
    wanted = (like.workload, like.events, "polars", "ok")
    return any((run.workload, run.events, run.peer, run.status) == wanted for run in runs)


def _answer_text(run: Run) -> str:
    return json.dumps({name: value for name, value in run.answer.items() if name != "few"}, sort_keys=True)
