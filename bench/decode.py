"""The combined-log decoder alone: lines a second by the number of threads and processes.

The time runs from the start signal to all processes until the last is done. The lines
are in memory, in chunks as the scan reads them, and every process has decoded one chunk before.
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

#: the columns that the queries of this benchmark need
COLUMNS = ("time", "path", "session")
#: about two hundred million bytes: enough for a steady figure, little enough for any memory
_MOST_CHUNKS = 12


def measure_decoding(dataset: Dataset, processes: int, threads: int) -> Outcome:
    """Run all processes at once, each on its share of the files."""
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
            _read_line(child)
        started_at = time.perf_counter()
        for child in children:
            print("go", file=child.stdin, flush=True)
        lines = sum(int(_read_line(child)) for child in children)
        seconds = time.perf_counter() - started_at
    finally:
        for child in children:
            child.kill()
            child.communicate()
    return Outcome(lines, seconds, 1)


def _read_line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    line = child.stdout.readline()
    if not line:
        raise InternalError("BENCH_FAILED", "a process of the decode benchmark ended too early")
    return line


def _work(most_chunks: int, paths: list[Path]) -> None:
    """In a child: load and warm up, report that, wait for the start signal, decode, report how many lines."""
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
        batch = decoder.decode(chunk, COLUMNS)
        if batch.bad.height:
            raise InternalError("BENCH_DISAGREES", f"the decoder refused {batch.bad.height} good lines")
        lines += batch.good.height
    print(lines, flush=True)


if __name__ == "__main__":
    _work(int(sys.argv[1]), [Path(path) for path in sys.argv[2:]])
