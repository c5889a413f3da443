"""The report: tables and plots made from raw runs, nothing else.

Receives the runs of a folder; hands Markdown and the plots it shows. A run whose answer is wrong gives no figure, and
the report says so; so does it where the machine was busy.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.bench.peers.growth_report import growth_section
from penstock.bench.peers.raw import BUSY, Run, agreement, median_speed
from penstock.bench.peers.roster import PEERS, WORKLOADS, Workload, left_out
from penstock.bench.peers.verdict import IDEAS, LATENCY, LIMITS, verdict
from penstock.simulate import charts as plots

#: with fewer events figures say little about how fast an engine is
ENOUGH_EVENTS = 1_000_000
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
            ours = {
                events: median_speed(everything, name, "penstock", events)
                for events in {run.events for run in mine}
            }
            parts.append(_workload(workload, mine, ours, speeds["windows"], pictures))
    parts.append(verdict(everything, judged))
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
    processor = f" of an {machine['processor']}" if machine.get("processor") else ""
    commits = sorted({run.made_by for run in runs if run.peer == "penstock" and run.made_by})
    made = f" Penstock's own runs are of commit {', '.join(commits)}." if commits else ""
    sizes = ", ".join(f"`{size}`" for size in machine.get("sizes", ()))
    with_sizes = f", with {sizes} for different peers: `--install` before that installs them" if sizes else ""
    return f"""# Penstock beside its peers

Made by `penstock bench peers` from raw runs between {first} and {last}{with_sizes}.
{machine.get("cores")} cores{processor}, {machine.get("memory_gib")} GiB, {where}.{made}
Every engine gets the same files and runs in turn, in a process of its own; a figure stands here only if the answer is
that of the plain batch program on the same events. {_busy(busy, len(runs))}{small}

**Not all get as many events**: an engine that would take many minutes gets fewer. Penstock is faster the more there
are, so it is run on each of these sizes too: "of Penstock's" is the ratio on the same events, and so is what is said
at the end.

Throughput is events divided by the seconds of the engine's own clock: from the start of the first epoch or job to the
end of the last. Start-up is what the process took besides. Memory is the most that the process and all it started held
resident at once, sampled five times a second; pages they share count for each, which is to the disadvantage of
engines with several processes. Penstock's workers load what they need before its clock starts, in its start-up.
Bytewax and Pathway keep nothing for a recovery here; Penstock, PySpark and Flink do.
CPU is that of the whole process, start-up included; "others" is how many cores anything else took meanwhile. Lines of
code are those of the query in the program, without session, clock and comparing. Input is two files in order of time,
all lines of a key in one of them; Spark gets the same lines as rotated files."""


def _busy(busy: int, runs: int) -> str:
    if not busy:
        return (
            f"Nothing else took more than {BUSY} of a core in any of the {runs} runs that figures come from."
        )
    return (
        f"**The machine was busy with other work in {busy} of the {runs} runs that figures come from** "
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
    most = max((run.number for run in runs), default=1)
    runs_said = "One run each" if most == 1 else f"Medians of up to {most} runs"
    lines += [
        "",
        f"{runs_said}; workloads are explained below, and how many events each engine got. A dash: no program, for the "
        "reason below, or not run.",
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


def _workload(
    workload: Workload,
    runs: Sequence[Run],
    ours: Mapping[int, float | None],
    windows: Mapping[str, float],
    pictures: dict[str, str],
) -> str:
    """`ours`: what Penstock manages of this with so many events; `windows`: what each manages of windows."""
    live = workload.program == "latency"
    lines = [f"## {workload.name}: {workload.title}", ""]
    head = (
        "latency p50 | latency p99 | events/s fed | of what it manages"
        if live
        else "events/s | of Penstock's | CPU us/event | events"
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
    for name, mine in good.items():
        speed = 0.0 if live else statistics.median(run.events_per_second for run in mine)
        if live:
            delays = sorted(delay for run in mine for delay in run.delays)
            p50, p99 = statistics.median(delays), delays[min(len(delays) - 1, int(0.99 * len(delays)))]
            most = f"{mine[0].rate / windows[name]:.0%}" if name in windows else "–"
            first = f"{p50:.2f} s | {p99:.2f} s | {mine[0].rate:,.0f} | {most}"
        else:
            cpu = statistics.median(run.cpu_seconds / run.events * 1e6 for run in mine)
            times = _times(speed, ours.get(mine[0].events))
            first = f"{_spread(mine)} | {times} | {cpu:.2f} | {mine[0].events:,}"
        start = statistics.median(run.start_up for run in mine)
        memory = statistics.median(run.peak_bytes for run in mine) / 1e9
        stars = "*" if any(run.busy for run in mine) else ""
        lines.append(
            f"| {PEERS[name].title} | {first} | {start:.1f} s | {memory:.2f} GB "
            f"| {mine[0].code_lines} | {len(mine)}{stars} |"
        )
    lines += ["", *([LATENCY, ""] if live else []), *_not_shown(workload, runs)]
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
        title = f"{workload.title} (logarithmic scale)"
        pictures[file] = plots.bars(title, unit, figures, PEERS["penstock"].title, limits)
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
        elif not any(run.peer == name for run in runs):
            said.append(f"- {peer.title}: not run.")
    return said


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


def _times(speed: float, ours: float | None) -> str:
    if not ours:
        return "–"
    return f"{speed / ours:.2f}" if speed / ours >= 0.05 else f"{speed / ours:.2g}"


def _spread(runs: Sequence[Run]) -> str:
    """The median, and how far runs are apart."""
    speeds = [_rounded(run.events_per_second) for run in runs]
    apart = f" ({min(speeds):,.0f} to {max(speeds):,.0f})" if len(speeds) > 1 else ""
    return f"{_rounded(statistics.median(speeds)):,.0f}{apart}"


def _rounded(value: float) -> float:
    """Three digits; more would be noise."""
    return float(f"{value:.3g}")
