"""The report: tables and plots made from raw runs, nothing else.

A run whose answer is wrong gives no figure, and
the report says so; so does it where the machine was busy.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.peers.growth_report import growth_section
from bench.peers.raw import BUSY, Run, agreement, median_speed
from bench.peers.roster import PEERS, WORKLOADS, Workload, left_out
from bench.peers.verdict import IDEAS, LATENCY, LIMITS, verdict
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
    parts = [_head(judged, machine), _overview(everything, judged)]
    windows = _medians(judged, "windows")
    for name, workload in WORKLOADS.items():
        mine = [run for run in judged if run.workload == name]
        if name == "latency" and mine:
            parts.append(_latency(workload, mine, windows, pictures))
        elif mine:
            parts.append(_workload(workload, everything, mine, pictures))
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

Made by `./run bench peers` from raw runs between {first} and {last}{with_sizes}.
{machine.get("cores")} cores{processor}, {machine.get("memory_gib")} GiB, {where}.{made}
Every engine gets the same files and runs in turn, in a process of its own; a figure stands here only if the answer is
that of the plain batch program on the same events. {_busy(busy, len(runs))}{small}

**Not all get as many events**: an engine that would take many minutes gets fewer. Penstock is faster the more there
are, so it is run on each of these sizes too. A figure of another engine stands beside Penstock's on the same events
only, and a ratio is one on the same events: Penstock's events a second divided by the engine's, so above 1 Penstock is
faster. Events a second on different sizes say nothing about each other.

There are **two clocks**. The engine's own runs from the start of the first epoch or job to the end of the last. The
whole process is from its start to its exit. Start-up is the difference. Penstock's workers load what they need before
its own clock starts: in small inputs that clock favours Penstock.

Memory is the most that the process and all it started held resident at once, sampled five times a second; pages they
share count for each, which is to the disadvantage of engines with several processes.
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


def _overview(everything: Sequence[Run], largest: Sequence[Run]) -> str:
    """Penstock beside each engine, by both clocks; a cell is one workload on the events that both got."""
    shown = [name for name in WORKLOADS if name != "latency" and any(run.workload == name for run in largest)]
    if not shown:
        return ""
    lines = [
        "## Penstock's speed divided by the engine's",
        "",
        "By the engine's own clock, then by the whole process; in brackets the events that both got. Above 1 Penstock "
        "is faster, below 1 the engine.",
        "",
        "| engine | " + " | ".join(shown) + " |",
        "|---" * (len(shown) + 1) + "|",
    ]
    for name, peer in PEERS.items():
        if name != "penstock" and any(run.peer == name for run in largest):
            cells = [_cell(everything, largest, workload, name) for workload in shown]
            lines.append(f"| {peer.title} | " + " | ".join(cells) + " |")
    absent = [peer.title for name, peer in PEERS.items() if all(run.peer != name for run in largest)]
    most = max((run.number for run in largest), default=1)
    runs_text = "One run each" if most == 1 else f"Medians of up to {most} runs"
    lines += [
        "",
        f"{runs_text}; workloads are explained below. A dash: no program, for the reason below, or not run.",
    ]
    if absent:
        lines.append(f"Not run here: {', '.join(absent)}.")
    return "\n".join(lines)


def _cell(everything: Sequence[Run], largest: Sequence[Run], workload: str, peer: str) -> str:
    mine = [run for run in largest if (run.workload, run.peer) == (workload, peer)]
    if not mine:
        return "–"
    if not any(run.status == "ok" for run in mine):
        return {"timeout": "not in time", "failed": "failed", "wrong": "wrong answer"}.get(
            mine[0].status, "–"
        )
    events = mine[0].events
    own, whole = (_times(everything, workload, peer, events, whole=whole) for whole in (False, True))
    return f"{_format_times(own)}, {_format_times(whole)} ({plots.short(events)})"


def _times(runs: Sequence[Run], workload: str, peer: str, events: int, *, whole: bool) -> float | None:
    """Penstock's speed divided by a peer's on the same events; None where one of them has no figure."""
    ours, theirs = (median_speed(runs, workload, name, events, whole=whole) for name in ("penstock", peer))
    return ours / theirs if ours and theirs else None


def _format_times(times: float | None) -> str:
    if times is None:
        return "–"
    return f"{times:.0f}" if times >= 9.95 else f"{times:.2g}" if times < 0.095 else f"{times:.2f}"


def _workload(
    workload: Workload, everything: Sequence[Run], largest: Sequence[Run], pictures: dict[str, str]
) -> str:
    """Each engine on the most events it got, Penstock on all sizes; `pictures` gets the plot of the ratios."""
    lines = [
        f"## {workload.name}: {workload.title}",
        "",
        "| engine | events | events/s | Penstock's | ratio | whole process | Penstock's | ratio | CPU us/event "
        "| start-up | peak memory | lines of code | runs |",
        "|---" * 13 + "|",
    ]
    ratios: dict[str, float] = {}
    for name, events in _sizes(workload, everything, largest):
        wanted = (workload.name, name, events, "ok")
        mine = [run for run in everything if (run.workload, run.peer, run.events, run.status) == wanted]
        if not mine:
            continue
        beside = ["", "", "", ""]
        if name != "penstock":
            own, whole = (_times(everything, workload.name, name, events, whole=at) for at in (False, True))
            ours = median_speed(everything, workload.name, "penstock", events)
            ours_whole = median_speed(everything, workload.name, "penstock", events, whole=True)
            beside = [
                "–" if ours is None else f"{_rounded(ours):,.0f}",
                _format_times(own),
                "–" if ours_whole is None else f"{events / ours_whole:.1f} s",
                _format_times(whole),
            ]
            if own is not None:
                ratios[PEERS[name].title] = own
        wall = statistics.median(run.wall for run in mine)
        cpu = statistics.median(run.cpu_seconds / events * 1e6 for run in mine)
        lines.append(
            f"| {PEERS[name].title} | {events:,} | {_spread(mine)} | {beside[0]} | {beside[1]} | {wall:.1f} s "
            f"| {beside[2]} | {beside[3]} | {cpu:.2f} | {_resources(mine)} |"
        )
    lines += ["", *_not_shown(workload, largest)]
    if len(ratios) > 1:
        title = f"{workload.name}: times as fast as each engine, same events, own clocks"
        lines += _picture(workload, title, "x", ratios, pictures)
    return "\n".join(lines)


def _sizes(
    workload: Workload, everything: Sequence[Run], largest: Sequence[Run]
) -> Iterator[tuple[str, int]]:
    """Peers with the events of their rows: Penstock with all sizes, from the largest on."""
    for name in PEERS:
        runs = everything if name == "penstock" else largest
        mine = {run.events for run in runs if (run.workload, run.peer) == (workload.name, name)}
        yield from ((name, events) for events in sorted(mine, reverse=True))


def _latency(
    workload: Workload, runs: Sequence[Run], windows: Mapping[str, float], pictures: dict[str, str]
) -> str:
    """`windows`: what each engine manages of windows."""
    lines = [
        f"## {workload.name}: {workload.title}",
        "",
        "| engine | latency p50 | latency p99 | events/s fed | of what it manages "
        "| start-up | peak memory | lines of code | runs |",
        "|---" * 9 + "|",
    ]
    medians: dict[str, float] = {}
    for name, peer in PEERS.items():
        mine = [run for run in runs if run.peer == name and run.status == "ok"]
        delays = sorted(delay for run in mine for delay in run.delays)
        if not delays:
            continue
        medians[peer.title] = statistics.median(delays)
        p99 = delays[min(len(delays) - 1, int(0.99 * len(delays)))]
        most = f"{mine[0].rate / windows[name]:.0%}" if name in windows else "–"
        lines.append(
            f"| {peer.title} | {medians[peer.title]:.2f} s | {p99:.2f} s | {mine[0].rate:,.0f} | {most} "
            f"| {_resources(mine)} |"
        )
    lines += ["", LATENCY, "", *_not_shown(workload, runs)]
    medians = {name: value for name, value in medians.items() if value > 0}
    if len(medians) > 1:
        lines += _picture(workload, workload.title, "s", medians, pictures)
    return "\n".join(lines)


def _resources(runs: Sequence[Run]) -> str:
    start = statistics.median(run.start_up for run in runs)
    memory = statistics.median(run.peak_bytes for run in runs) / 1e9
    stars = "*" if any(run.busy for run in runs) else ""
    return f"{start:.1f} s | {memory:.2f} GB | {runs[0].code_lines} | {len(runs)}{stars}"


def _picture(
    workload: Workload, title: str, unit: str, figures: Mapping[str, float], pictures: dict[str, str]
) -> list[str]:
    file = f"peers-{workload.name}.svg"
    limits = [PEERS[name].title for name in LIMITS]
    pictures[file] = plots.bars(
        f"{title} (logarithmic scale)", unit, figures, PEERS["penstock"].title, limits
    )
    return ["", f"![{workload.title}]({PICTURES}/{file})"]


def _not_shown(workload: Workload, runs: Sequence[Run]) -> list[str]:
    output = []
    for name, peer in PEERS.items():
        reason = left_out(peer, workload)
        bad = [run for run in runs if run.peer == name and run.status != "ok"]
        if reason is not None:
            output.append(f"- {peer.title}: no program; {reason}.")
        elif bad:
            word = {"wrong": "wrong answer, so no figure", "failed": "failed"}.get(bad[0].status, "stopped")
            output.append(f"- {peer.title}: {word}; {' '.join(bad[0].reason.split())[:300]}.")
        elif not any(run.peer == name for run in runs):
            output.append(f"- {peer.title}: not run.")
    return output


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


def _spread(runs: Sequence[Run]) -> str:
    """The median, and how far runs are apart."""
    speeds = [_rounded(run.events_per_second) for run in runs]
    spread = f" ({min(speeds):,.0f} to {max(speeds):,.0f})" if len(speeds) > 1 else ""
    return f"{_rounded(statistics.median(speeds)):,.0f}{spread}"


def _rounded(value: float) -> float:
    """Three digits; more would be noise."""
    return float(f"{value:.3g}")
