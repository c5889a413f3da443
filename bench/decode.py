"""The combined-log decoder alone: lines a second with as many threads, or as many processes, as asked.

Receives a data set; hands an outcome. Timed is from the word to all processes until the last is done. The lines
lie in memory, in chunks as the scan reads them, and every process has decoded one chunk before.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from bench.dataset import Dataset
from bench.outcome import Outcome
from bench.processes import environment
from penstock.decode import Cookie, combined_log
from penstock.errors import InternalError
from penstock.logs import FileLog
from penstock.logs.contract import Span

#: the columns that the queries of this benchmark ask for
COLUMNS = ("time", "path", "session")
#: about two hundred million bytes: enough for a steady figure, little enough for any memory
_MOST_CHUNKS = 12


def decoded(dataset: Dataset, processes: int, threads: int) -> Outcome:
    """All processes at once, each on its share of the files."""
    shares = [dataset.files[number::processes] for number in range(processes)]
    children = [
        subprocess.Popen(
            [sys.executable, "-m", "bench.decode", str(_MOST_CHUNKS // processes), *map(str, share)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(POLARS_MAX_THREADS=str(threads)),
        )
        for share in shares
    ]
    try:
        for child in children:
            _line(child)
        began = time.perf_counter()
        for child in children:
            print("go", file=child.stdin, flush=True)
        lines = sum(int(_line(child)) for child in children)
        seconds = time.perf_counter() - began
    finally:
        for child in children:
            child.kill()
            child.communicate()
    return Outcome(lines, seconds, 1)


def _line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    said = child.stdout.readline()
    if not said:
        raise InternalError("BENCH_FAILED", "a process of the decode benchmark ended before its time")
    return said


def _work(most_chunks: int, paths: list[Path]) -> None:
    """A child: loads and warms up, says so, waits for the word, decodes, says how many lines."""
    decoder = combined_log(extra=[Cookie("session")])
    chunks = []
    for path in paths:
        log = FileLog(str(path), finished=True)
        for partition in log.partitions({}):
            chunks += list(log.read(Span(partition.id, partition.earliest, partition.latest)))
    chunks = chunks[: max(1, most_chunks)]
    decoder.decode(chunks[0], COLUMNS)
    print("ready", flush=True)
    sys.stdin.readline()
    lines = 0
    for chunk in chunks:
        found = decoder.decode(chunk, COLUMNS)
        if found.bad.height:
            raise InternalError("BENCH_DISAGREES", f"the decoder refused {found.bad.height} good lines")
        lines += found.good.height
    print(lines, flush=True)


if __name__ == "__main__":
    _work(int(sys.argv[1]), [Path(path) for path in sys.argv[2:]])
