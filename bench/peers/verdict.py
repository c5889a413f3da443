"""Where Penstock loses, by the figures; and what people say about them: why that is, and what could be done.

They are made from runs whose results were compared.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from bench.peers.raw import Run, median_speed
from bench.peers.roster import PEERS, WORKLOADS

LIMITS = ("polars", "duckdb")
REASONS = (
    "Why, as far as it is known from profiles ([performance](performance.md)):",
    "",
    "- Against the batch programs: they read, group and forget. Penstock besides cuts the stream into "
    "epochs, each recorded before "
    "and committed after, keeps state that survives a crash, and hands rows from process to process "
    "through Arrow messages; "
    "Spark takes 50 to 70 ms between epochs.",
    "- In the first seconds: the JVM compiles, workers load, and epochs start small and grow to their target. "
    "The fewer the events, the more of the time that is.",
    "- taxi: the ranking goes trip by trip, in Python and on one core, in every engine that has a program for "
    "it. What is left to compare is how a trip gets there, and in one process it does not have to travel.",
    "- join: both sides are put in order of time and kept, written to disk, until no later call can meet them; "
    "pairs travel through the driver. The batch programs have all calls at hand and find the pairs in one pass.",
    "- Start-up: a JVM, a Spark session, a Python worker for each core that imports Polars, and a small "
    "job that warms them up. "
    "Engines without a JVM start in a second or two.",
    "- Memory: the JVM, a driver and a worker for each core, each with Polars loaded, and an epoch of up "
    "to 512 MB in flight while "
    "the log is behind.",
    "- Latency: rows are emitted when an epoch ends, and an epoch has a fixed cost of some 0.15 s; engines "
    "that work event by event emit "
    "a window as soon as its watermark has come.",
)

IDEAS = (
    "Let an epoch's slices start while the scan of the next one runs: the two tasks of a stage wait for "
    "each other today.",
    "Slices that hand rows to their sinks themselves, so that the driver need not put thousands of jobs' "
    "results on disk.",
    "Keep totals of hot patterns in memory between epochs instead of in runs, with the runs as their log.",
    "Small epochs in a process that stays, without a Spark job: most of what a window's rows wait for is "
    "Spark's start of a stage.",
    "Start workers before the session is there, so that Polars is loaded while the JVM starts.",
)

LATENCY = (
    "From the moment a window and the lateness are over to when its rows are at hand. Each is fed half of what it "
    "manages in windows, but at most 100,000 events a second: for the fastest that is less than half. The first third "
    "of the windows is left out, in which engines catch up with what came during their start. That no window between "
    "others is missing is checked; counts are not: the program is that of the windows workload, where they are."
)


def verdict(everything: Sequence[Run], largest: Sequence[Run]) -> str:
    """Where Penstock loses, on the events that each peer got."""
    lines = ["## Where Penstock loses, and why", ""]
    lines += [line for name in WORKLOADS if name != "latency" and (line := _of(name, everything, largest))]
    lines += _latency(largest)
    windows = [run for run in largest if run.status == "ok" and run.workload == "windows"]
    for what, of in (("start-up", "start_up"), ("peak memory", "peak_bytes")):
        values = {
            name: statistics.median(getattr(run, of) for run in windows if run.peer == name)
            for name in {run.peer for run in windows}
        }
        if "penstock" in values:
            less = [PEERS[n].title for n in PEERS if n in values and values[n] < values["penstock"]]
            lines.append(
                f"- **{what}** (windows): {'less with ' + ', '.join(less) if less else 'nobody has less'}."
            )
    return "\n".join([*lines, "", *REASONS])


def _of(workload: str, everything: Sequence[Run], largest: Sequence[Run]) -> str:
    """How Penstock stands in a workload; nothing where it was not run."""
    mine = [run for run in everything if run.workload == workload and run.peer == "penstock"]
    if not mine:
        return ""
    pairs = {(run.peer, run.events) for run in everything if run.workload == workload}
    found = {pair: median_speed(everything, workload, *pair) for pair in pairs}
    speeds = {pair: speed for pair, speed in found.items() if speed is not None}
    if not any(peer == "penstock" for peer, _ in speeds):
        return f"- **{workload}**: Penstock has no figure ({mine[0].status}: {' '.join(mine[0].reason.split())[:200]})."
    most = max(events for peer, events in speeds if peer == "penstock")
    limit = max((speeds[name, most] for name in LIMITS if (name, most) in speeds), default=0.0)
    output = (
        f"{speeds['penstock', most] / limit:.0%} of the faster batch program"
        if limit
        else "no batch program was run"
    )
    sizes = {run.peer: run.events for run in largest if run.workload == workload and run.peer not in LIMITS}
    own, uncompared = _faster(workload, everything, sizes, whole=False)
    whole, _ = _faster(workload, everything, sizes, whole=True)
    if own or whole:
        ahead = f"{_slower(own)}; by the whole process {_slower(whole)}"
    else:
        ahead = "no streaming peer that was run is faster by either clock"
    uncompared_text = f"; not compared on the same events: {', '.join(uncompared)}" if uncompared else ""
    return f"- **{workload}**: {output}; {ahead}{uncompared_text}."


def _faster(
    workload: str, runs: Sequence[Run], sizes: Mapping[str, int], *, whole: bool
) -> tuple[list[str], list[str]]:
    """The peers that are faster by one of the clocks, and those that cannot be compared."""
    faster, uncompared = [], []
    for name, events in sizes.items():
        ours, theirs = (median_speed(runs, workload, one, events, whole=whole) for one in ("penstock", name))
        if name == "penstock" or theirs is None:
            continue
        if ours is None:
            uncompared.append(PEERS[name].title)
        elif theirs / ours >= 1.005:  # less is no difference as it is printed
            faster.append(f"{PEERS[name].title} ({theirs / ours:.2f} times, on {events:,} events)")
    return faster, uncompared


def _slower(faster: Sequence[str]) -> str:
    return f"slower than {', '.join(faster)}" if faster else "no streaming peer that was run is faster"


def _latency(runs: Sequence[Run]) -> list[str]:
    live = {
        run.peer: (statistics.median(run.delays), run.rate)
        for run in runs
        if run.status == "ok" and run.workload == "latency"
    }
    if "penstock" not in live:
        return []
    ours, fed = live["penstock"]
    sooner = ", ".join(
        f"{PEERS[name].title} ({delay:.2f} s at {rate:,.0f} events/s)"
        for name, (delay, rate) in live.items()
        if delay < ours
    )
    output = f"{ours:.2f} s at {fed:,.0f} events/s"
    return [f"- **latency**: {output}; {'less with ' + sooner if sooner else 'nobody has less'}."]
