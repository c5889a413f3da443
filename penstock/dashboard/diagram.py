"""A job's graph in Mermaid's words. Pure.

Receives a graph; hands text. Labels are escaped: nothing in a query can become part of the drawing's own words.
"""

from __future__ import annotations

import re
import textwrap

from penstock.dashboard.markup import rate
from penstock.formatting import size
from penstock.server.response_bodies import Graph, GraphEdge, GraphNode

_STYLES = {
    "stream": "fill:#d0ebff,stroke:#1c7ed6,color:#12263a",
    "state": "fill:#fff3bf,stroke:#e67700,color:#12263a",
    "job": "fill:#e5dbff,stroke:#7048e8,color:#12263a",
    "output": "fill:#d3f9d8,stroke:#2f9e44,color:#12263a",
}
_SHAPES = {"stream": ("([", "])"), "state": ("[", "]"), "job": ("[[", "]]"), "output": ("([", "])")}
#: characters of a line, and lines of what is said of a node
_WIDE, _LINES = 34, 4


def mermaid(graph: Graph, narrow: bool) -> str:
    """The graph, from left to right, or from top to bottom where there is little room."""
    names = {node.id: f"n{number}" for number, node in enumerate(graph.nodes)}
    lines = [f"flowchart {'TB' if narrow else 'LR'}"]
    for node in graph.nodes:
        opening, closing = _SHAPES[node.kind]
        lines.append(f'    {names[node.id]}{opening}"{_about(node)}"{closing}:::{node.kind}')
    for edge in graph.edges:
        if edge.source in names and edge.target in names:
            label = _label(edge)
            arrow = f'-->|"{label}"|' if label else "-->"
            lines.append(f"    {names[edge.source]} {arrow} {names[edge.target]}")
    lines += [f"    classDef {kind} {style}" for kind, style in _STYLES.items()]
    return "\n".join(lines)


def _about(node: GraphNode) -> str:
    said = [line for text in node.about for line in textwrap.wrap(text, _WIDE)][:_LINES]
    figures = []
    if node.kind == "stream" and node.rows_per_second is not None:
        figures.append(f"{_few(node.rows_per_second)} events/s")
    if node.state_bytes is not None:
        figures.append(f"state {size(node.state_bytes)}")
    if node.utilisation is not None:
        figures.append(f"{node.utilisation:.0%} busy")
    if node.jobs > 1:
        figures.append(f"shared by {node.jobs} jobs")
    lines = [f"<b>{_escaped(node.title)}</b>", *map(_escaped, said)]
    return "<br/>".join([*lines, *([f"<i>{_escaped(', '.join(figures))}</i>"] if figures else [])])


def _label(edge: GraphEdge) -> str:
    said = textwrap.wrap(edge.label, _WIDE)
    lines = [_escaped(line) for line in said[:3]]
    if edge.rows_per_second is not None:
        lines.append(f"<b>{_few(edge.rows_per_second)} rows/s</b>")
    return "<br/>".join(lines)


def _few(value: float) -> str:
    """Three digits: the drawing is made anew only when something worth seeing has changed."""
    return rate(float(f"{value:.2g}"))


def _escaped(text: str) -> str:
    return re.sub(r"[^\w .,:/()+*=%-]", lambda found: f"#{ord(found[0])};", text)
