"""The report: tables and plots made from raw runs, nothing else.

Receives the runs of a folder; hands Markdown and the plots it shows. A run whose answer is wrong gives no figure, and
the report says so; so does it where the machine was busy.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.bench.peers import plots
from penstock.bench.peers.growth_report import growth_section
from penstock.bench.peers.raw import BUSY, Run, agreement
from penstock.bench.peers.roster import PEERS, WORKLOADS, Workload, left_out
from penstock.bench.peers.verdict import IDEAS, REASONS

#: with fewer events figures say little about how fast an engine is
ENOUGH_EVENTS = 1_000_000
LIMITS = ("polars", "duckdb")
PICTURES = "pictures"


def report(
    runs: Sequence[Run], machine: Mapping[str, Any], growth: Sequence[Mapping[str, Any]] = ()
) -> tuple[str, dict[str, str]]:
    """The page and its plots by file name."""
    everything = agreement(runs)
    judged = _largest(everything)
    pictures: dict[str, str] = {}
    parts = [_head(judged, machine)]
    speeds = {name: _medians(judged, name) for name in WORKLOADS if name != "latency"}
    parts.append(_overview(judged, speeds))
    for name, workload in WORKLOADS.items():
        mine = [run for run in judged if run.workload == name]
        if mine:
            parts.append(_workload(workload, mine, pictures))
    parts.append(_verdict(speeds, judged))
    parts.append(growth_section(growth, pictures))
    parts.append("## Ideas to close what is left\n\n" + "\n".join(f"- {idea}" for idea in IDEAS))
    parts.append(_settings(judged))
    parts.append(_raw(everything))
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n", pictures


def written(page: str, pictures: Mapping[str, str], docs: Path) -> Path:
    """Put the page and its plots into a folder of documentation."""
    (docs / PICTURES).mkdir(parents=True, exist_ok=True)
    for name, text in pictures.items():
        (docs / PICTURES / name).write_text(text)
    (docs / "benchmarks.md").write_text(page)
    return docs / "benchmarks.md"


def _largest(runs: Sequence[Run]) -> list[Run]:
    """Each peer's runs on the most events it got; the smaller ones of the reference were for comparing answers."""
    most: dict[tuple[str, str], int] = {}
    for run in runs:
        most[run.workload, run.peer] = max(run.events, most.get((run.workload, run.peer), 0))
    return [run for run in runs if run.events == most[run.workload, run.peer]]


def _head(runs: Sequence[Run], machine: Mapping[str, Any]) -> str:
    first, last = min(run.began for run in runs), max(run.began for run in runs)
    busy = sum(run.busy for run in runs)
    most = max(run.events for run in runs)
    small = (
        f"\n\n**Inputs are small here** (at most {most:,} events): first seconds weigh most, and engines with "
        "a JVM have hardly warmed up. That those shown run and agree can be seen, who is faster cannot."
        if most < ENOUGH_EVENTS
        else ""
    )
    where = f"{machine.get('system')} {machine.get('machine')}, {machine.get('java')}"
    return f"""# Penstock beside its peers

Made by `penstock bench peers` from raw runs between {first} and {last}: {machine.get("cores")} cores,
{machine.get("memory_gib")} GiB, {where}. Every engine gets the same files and runs in turn, in a process of its
own; a figure stands here only if the answer is that of the plain batch program. {_busy(busy, len(runs))}{small}

Throughput is events divided by the seconds of the engine's own clock: from the start of the first epoch or job to the
end of the last. Start-up is what the process took besides. Memory is the most that the process and all it started held
resident at once, sampled five times a second; pages they share count for each, which is to the disadvantage of
engines with several processes. CPU is that of the whole process, start-up included;
"others" is how many cores anything else took meanwhile. Lines of code are those of the
query in the program, without session, clock and comparing. Input is two files in order of time, all lines of a key in
one of them; Spark gets the same lines as rotated files."""


def _busy(busy: int, runs: int) -> str:
    if not busy:
        return f"Nothing else took more than {BUSY} of a core in any of the {runs} runs."
    return (
        f"**The machine was busy with other work in {busy} of the {runs} runs** "
        f"(more than {BUSY} of a core, marked * below): figures of those runs are too low."
    )


def _medians(runs: Sequence[Run], workload: str) -> dict[str, float]:
    """The median throughput of each peer that gave the right answer."""
    found: dict[str, float] = {}
    for name in PEERS:
        speeds = [
            r.events_per_second for r in runs if (r.workload, r.peer, r.status) == (workload, name, "ok")
        ]
        if speeds:
            found[name] = statistics.median(speeds)
    return found


def _overview(runs: Sequence[Run], speeds: Mapping[str, Mapping[str, float]]) -> str:
    shown = [name for name, found in speeds.items() if found]
    if not shown:
        return ""
    lines = [
        "## Events per second",
        "",
        "| engine | " + " | ".join(shown) + " |",
        "|---" * (len(shown) + 1) + "|",
    ]
    for name, peer in PEERS.items():
        cells = [_cell(runs, WORKLOADS[workload], name, speeds[workload].get(name)) for workload in shown]
        if any(run.peer == name for run in runs):
            title = f"**{peer.title}**" if name == "penstock" else peer.title
            lines.append(f"| {title} | " + " | ".join(cells) + " |")
    absent = [peer.title for name, peer in PEERS.items() if all(run.peer != name for run in runs)]
    lines += [
        "",
        "Medians; workloads are explained below. A dash: no program, for the reason below, or not run.",
    ]
    if absent:
        lines.append(f"Not run here: {', '.join(absent)}.")
    return "\n".join(lines)


def _cell(runs: Sequence[Run], workload: Workload, peer: str, speed: float | None) -> str:
    if speed is not None:
        return f"{_rounded(speed):,.0f}"
    mine = [run for run in runs if (run.workload, run.peer) == (workload.name, peer)]
    return (
        {"timeout": "not in time", "failed": "failed", "wrong": "wrong answer"}.get(mine[0].status, "–")
        if mine
        else "–"
    )


def _workload(workload: Workload, runs: Sequence[Run], pictures: dict[str, str]) -> str:
    live = workload.program == "latency"
    lines = [f"## {workload.name}: {workload.title}", ""]
    head = (
        "latency p50 | latency p99 | events/s fed | windows"
        if live
        else "events/s | against Penstock | CPU us/event | events"
    )
    lines += [
        f"| engine | {head} | start-up | peak memory | lines of code | runs |",
        "|---" * 9 + "|",
    ]
    good = {
        name: [run for run in runs if run.peer == name and run.status == "ok"]
        for name in PEERS
        if any(run.peer == name and run.status == "ok" for run in runs)
    }
    ours = (
        statistics.median(run.events_per_second for run in good["penstock"])
        if "penstock" in good and not live
        else 0.0
    )
    for name, mine in good.items():
        speed = 0.0 if live else statistics.median(run.events_per_second for run in mine)
        if live:
            delays = sorted(delay for run in mine for delay in run.delays)
            p50, p99 = (delays[min(len(delays) - 1, int(share * len(delays)))] for share in (0.5, 0.99))
            first = f"{p50:.2f} s | {p99:.2f} s | {mine[0].rate:,.0f} | {len(delays)}"
        else:
            cpu = statistics.median(run.cpu_seconds / run.events * 1e6 for run in mine)
            first = f"{_rounded(speed):,.0f} | {_times(speed, ours)} | {cpu:.2f} | {mine[0].events:,}"
        start = statistics.median(run.start_up for run in mine)
        memory = statistics.median(run.peak_bytes for run in mine) / 1e9
        stars = "*" if any(run.busy for run in mine) else ""
        lines.append(
            f"| {PEERS[name].title} | {first} | {start:.1f} s | {memory:.2f} GB "
            f"| {mine[0].code_lines} | {len(mine)}{stars} |"
        )
    lines += ["", *_not_shown(workload, runs)]
    figures = {
        PEERS[name].title: (
            statistics.median(delay for run in mine for delay in run.delays)
            if live
            else statistics.median(run.events_per_second for run in mine)
        )
        for name, mine in good.items()
    }
    figures = {name: value for name, value in figures.items() if value > 0}
    if len(figures) > 1:
        unit = "s" if live else "events/s"
        limits = [PEERS[name].title for name in LIMITS]
        file = f"peers-{workload.name}.svg"
        pictures[file] = plots.bars(workload.title, unit, figures, PEERS["penstock"].title, limits)
        lines += ["", f"![{workload.title}]({PICTURES}/{file})"]
    return "\n".join(lines)


def _not_shown(workload: Workload, runs: Sequence[Run]) -> list[str]:
    said = []
    for name, peer in PEERS.items():
        reason = left_out(peer, workload)
        bad = [run for run in runs if run.peer == name and run.status != "ok"]
        if reason is not None:
            said.append(f"- {peer.title}: no program; {reason}.")
        elif bad:
            word = {"wrong": "wrong answer, so no figure", "failed": "failed"}.get(bad[0].status, "stopped")
            said.append(f"- {peer.title}: {word}; {' '.join(bad[0].reason.split())[:300]}.")
    return said


def _verdict(speeds: Mapping[str, Mapping[str, float]], runs: Sequence[Run]) -> str:
    """Where Penstock loses, by the figures; the reasons are people's."""
    lines = ["## Where Penstock loses, and why", ""]
    for name, found in speeds.items():
        if "penstock" not in found:
            continue
        faster = {
            peer: speed for peer, speed in found.items() if speed > found["penstock"] and peer not in LIMITS
        }
        limit = max((speed for peer, speed in found.items() if peer in LIMITS), default=0.0)
        said = (
            f"{found['penstock'] / limit:.0%} of the faster batch program"
            if limit
            else "no batch program was run"
        )
        ahead = ", ".join(
            f"{PEERS[peer].title} ({speed / found['penstock']:.1f} times)" for peer, speed in faster.items()
        )
        lines.append(
            f"- **{name}**: {said}; {f'slower than {ahead}' if ahead else 'no streaming peer that was run is faster'}."
        )
    live = {
        run.peer: (statistics.median(run.delays), run.rate)
        for run in runs
        if run.status == "ok" and run.workload == "latency"
    }
    if "penstock" in live:
        ours, fed = live["penstock"]
        sooner = ", ".join(
            f"{PEERS[name].title} ({delay:.2f} s at {rate:,.0f} events/s)"
            for name, (delay, rate) in live.items()
            if delay < ours
        )
        said = f"{ours:.2f} s at {fed:,.0f} events/s"
        lines.append(f"- **latency**: {said}; {'less with ' + sooner if sooner else 'nobody has less'}.")
    others = [run for run in runs if run.status == "ok" and run.workload == "windows"]
    starts = {
        n: statistics.median(r.start_up for r in others if r.peer == n) for n in {r.peer for r in others}
    }
    memory = {
        n: statistics.median(r.peak_bytes for r in others if r.peer == n) for n in {r.peer for r in others}
    }
    for what, values in (("start-up", starts), ("peak memory", memory)):
        if "penstock" in values:
            less = [PEERS[n].title for n in PEERS if n in values and values[n] < values["penstock"]]
            lines.append(
                f"- **{what}** (windows): {'less with ' + ', '.join(less) if less else 'nobody has less'}."
            )
    return "\n".join([*lines, "", *REASONS])


def _settings(runs: Sequence[Run]) -> str:
    lines = ["## Versions and settings", "", "| engine | versions | settings |", "|---|---|---|"]
    for name, peer in PEERS.items():
        mine = next((run for run in runs if run.peer == name and run.versions), None)
        if mine is not None:
            versions = ", ".join(f"{key} {value}" for key, value in mine.versions.items())
            settings = "; ".join(f"{key} = {value}" for key, value in mine.settings.items())
            lines.append(f"| {peer.title} | {versions} | {settings} |")
    return "\n".join(lines)


def _raw(runs: Sequence[Run]) -> str:
    lines = [
        "## Raw runs",
        "",
        "| workload | engine | events | run | ended | events/s | seconds | whole process | CPU | peak memory "
        "| others |",
        "|---" * 11 + "|",
    ]
    order = {name: at for at, name in enumerate([*WORKLOADS, *PEERS])}
    for run in sorted(runs, key=lambda run: (order[run.workload], order[run.peer], run.events, run.number)):
        speed = f"{run.events_per_second:,.0f}" if run.status == "ok" and run.events else "–"
        figures = f"{run.seconds:.2f} s | {run.wall:.2f} s | {run.cpu_seconds:.1f} s | {run.peak_bytes / 1e9:.2f} GB"
        busy = "*" if run.busy else ""
        lines.append(
            f"| {run.workload} | {run.peer} | {run.events:,} | {run.number} | {run.status} | {speed} "
            f"| {figures} | {run.others:.2f}{busy} |"
        )
    return "\n".join(lines)


def _times(speed: float, ours: float) -> str:
    return f"{speed / ours:.2f}" if ours else "–"


def _rounded(value: float) -> float:
    """Three digits; more would be noise."""
    return float(f"{value:.3g}")
