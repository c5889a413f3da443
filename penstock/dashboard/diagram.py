"""Renders the graph of a job as a Mermaid flowchart. Pure.

Labels are escaped: nothing in a query can become Mermaid syntax.
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
#: characters of a line, and lines of text of a node
_LINE_CHARACTERS, _MAX_LINES = 34, 4


def render_mermaid(graph: Graph, narrow: bool) -> str:
    """Render a graph from left to right, or from top to bottom on a narrow page."""
    names = {node.id: f"n{number}" for number, node in enumerate(graph.nodes)}
    lines = [f"flowchart {'TB' if narrow else 'LR'}"]
    for node in graph.nodes:
        opening, closing = _SHAPES[node.kind]
        lines.append(f'    {names[node.id]}{opening}"{_node_text(node)}"{closing}:::{node.kind}')
    for edge in graph.edges:
        if edge.source in names and edge.target in names:
            label = _edge_text(edge)
            arrow = f'-->|"{label}"|' if label else "-->"
            lines.append(f"    {names[edge.source]} {arrow} {names[edge.target]}")
    lines += [f"    classDef {kind} {style}" for kind, style in _STYLES.items()]
    return "\n".join(lines)


def _node_text(node: GraphNode) -> str:
    about = [line for text in node.about for line in textwrap.wrap(text, _LINE_CHARACTERS)][:_MAX_LINES]
    figures = []
    if node.kind == "stream" and node.rows_per_second is not None:
        figures.append(f"{_round_rate(node.rows_per_second)} events/s")
    if node.state_bytes is not None:
        figures.append(f"state {size(node.state_bytes)}")
    if node.utilisation is not None:
        figures.append(f"{node.utilisation:.0%} busy")
    if node.jobs > 1:
        figures.append(f"shared by {node.jobs} jobs")
    lines = [f"<b>{_escape(node.title)}</b>", *map(_escape, about)]
    return "<br/>".join([*lines, *([f"<i>{_escape(', '.join(figures))}</i>"] if figures else [])])


def _edge_text(edge: GraphEdge) -> str:
    lines = [_escape(line) for line in textwrap.wrap(edge.label, _LINE_CHARACTERS)[:3]]
    if edge.rows_per_second is not None:
        lines.append(f"<b>{_round_rate(edge.rows_per_second)} rows/s</b>")
    return "<br/>".join(lines)


def _round_rate(value: float) -> str:
    """Few digits, so that the page draws the graph again only after a visible change."""
    return rate(float(f"{value:.2g}"))


def _escape(text: str) -> str:
    return re.sub(r"[^\w .,:/()+*=%-]", lambda match: f"#{ord(match[0])};", text)
