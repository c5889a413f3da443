"""Draws a plan as one SVG without external references: scans, stages by level, exchanges, outputs. Pure.

Rows flow from left to right; a column is a Spark stage.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from xml.sax.saxutils import escape

from penstock.query.explain import describe_step
from penstock.query.physical import Plan, Stage
from penstock.query.steps import Edge, EdgeSource, EdgeTarget

WIDE, GAP, MARGIN, LINE = 270, 190, 24, 17
_KINDS = {
    "scan": ("#e8f1fb", "#2b6cb0"),
    "state": ("#fdf3e1", "#b7791f"),
    "output": ("#e9f7ef", "#2f855a"),
}


@dataclass
class _Box:
    kind: str
    title: str
    lines: list[str]
    column: int
    x: int = 0
    y: int = 0

    @property
    def height(self) -> int:
        return 34 + LINE * len(self.lines)

    @property
    def middle(self) -> int:
        return self.y + self.height // 2


def draw_plan(plan: Plan) -> str:
    """The plan as SVG."""
    boxes = _boxes(plan)
    columns = plan.levels + 2
    heads = ["scan", *(f"slices {level}" for level in range(1, plan.levels + 1)), "gather, sinks"]
    height = _place_boxes(boxes, columns)
    width = 2 * MARGIN + columns * WIDE + (columns - 1) * GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="system-ui, sans-serif" font-size="12">',
        "<defs><marker id='arrow' viewBox='0 0 8 8' refX='7' refY='4' markerWidth='8' markerHeight='8' "
        "orient='auto'><path d='M0,0 L8,4 L0,8 z' fill='#4a5568'/></marker></defs>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for column, head in enumerate(heads):
        x = MARGIN + column * (WIDE + GAP)
        parts.append(
            f'<text x="{x}" y="{MARGIN + 4}" fill="#718096" font-size="13" font-weight="600">{escape(head)}</text>'
        )
    arriving: dict[EdgeTarget, int] = {}
    for edge in plan.edges:
        parts += _draw_edge(plan, edge, boxes, arriving)
    for box in boxes.values():
        parts += _draw_box(box)
    return "\n".join([*parts, "</svg>\n"])


def _boxes(plan: Plan) -> dict[str, _Box]:
    boxes: dict[str, _Box] = {}
    for name, scan in plan.scans.items():
        lines = _wrap(scan.stream.log.describe()) + _wrap("reads " + ", ".join(scan.columns))
        boxes[str(EdgeSource("scan", name))] = _Box("scan", f"stream {name}", lines, 0)
    for stage in plan.stages.values():
        boxes[stage.id] = _Box("state", stage.id, _stage_lines(stage), stage.level)
    for output in plan.outputs.values():
        lines = _wrap(output.top.describe()) if output.top else []
        sinks = [line for sink in output.sinks for line in _wrap(f"to {sink.describe()}")]
        box = _Box("output", f"output {output.name}", lines + sinks, plan.levels + 1)
        boxes[str(EdgeTarget("output", output.name))] = box
    return boxes


def _stage_lines(stage: Stage) -> list[str]:
    return [*_wrap(stage.operator.describe()), f"order: {stage.operator.order}"]


def _wrap(text: str) -> list[str]:
    return textwrap.wrap(text, 40)[:5]


def _place_boxes(boxes: dict[str, _Box], columns: int) -> int:
    """Place every box, column by column; return the height of the picture."""
    lowest = 0
    heights = [
        sum(box.height + 28 for box in boxes.values() if box.column == column) for column in range(columns)
    ]
    for column in range(columns):
        y = MARGIN + 22 + (max(heights) - heights[column]) // 2
        for box in boxes.values():
            if box.column == column:
                box.x, box.y = MARGIN + column * (WIDE + GAP), y
                y += box.height + 28
        lowest = max(lowest, y)
    return lowest + MARGIN


def _draw_box(box: _Box) -> list[str]:
    fill, stroke = _KINDS[box.kind]
    drawn = [
        f'<rect x="{box.x}" y="{box.y}" width="{WIDE}" height="{box.height}" rx="6" fill="{fill}" stroke="{stroke}"/>',
        f'<text x="{box.x + 10}" y="{box.y + 20}" font-weight="600" fill="{stroke}">{escape(box.title)}</text>',
    ]
    for number, line in enumerate(box.lines):
        y = box.y + 38 + LINE * number
        drawn.append(f'<text x="{box.x + 10}" y="{y}" fill="#2d3748">{escape(line)}</text>')
    return drawn


def _draw_edge(plan: Plan, edge: Edge, boxes: dict[str, _Box], arriving: dict[EdgeTarget, int]) -> list[str]:
    start = EdgeSource("scan", edge.source.name) if edge.source.kind == "late" else edge.source
    source, target = boxes[str(start)], boxes[str(edge.target)]
    place = arriving[edge.target] = arriving.get(edge.target, -1) + 1
    y_to = target.y + min(18 + 16 * place, target.height - 6)
    if source.column == target.column:  # without an exchange
        x_from, y_from, x_to, y_to = source.x + 40, source.y + source.height, target.x + 40, target.y
        path = f"M{x_from},{y_from} L{x_to},{y_to}"
        at = (x_from + 8, (y_from + y_to) // 2 + 4)
    else:
        x_from, y_from, x_to = source.x + WIDE, source.middle, target.x
        path = f"M{x_from},{y_from}"
        for column in range(source.column + 1, target.column):  # below whatever stands in between
            low = (
                max((box.y + box.height for box in boxes.values() if box.column == column), default=y_from)
                + 12
            )
            x = MARGIN + column * (WIDE + GAP)
            path += f" {_curve(x_from, y_from, x, low)} L{x + WIDE},{low}"
            x_from, y_from = x + WIDE, low
        path += f" {_curve(x_from, y_from, x_to, y_to)}"
        at = (x_to - 12, y_to - 6)
    dashed = ' stroke-dasharray="5 4"' if edge.forward else ""
    drawn = [
        f'<path d="{path}" fill="none" stroke="#4a5568" stroke-width="1.4"{dashed} marker-end="url(#arrow)">'
        f"<title>{escape(_steps(edge))}</title></path>"
    ]
    if label := escape(_label(plan, edge)):
        anchor = "start" if source.column == target.column else "end"
        text = f'<text x="{at[0]}" y="{at[1]}" text-anchor="{anchor}" font-size="11"'
        # a white shadow first, so that it can be read where it crosses a line
        drawn.append(f'{text} fill="white" stroke="white" stroke-width="4">{label}</text>')
        drawn.append(f'{text} fill="#4a5568">{label}</text>')
    return drawn


def _curve(x_from: int, y_from: int, x_to: int, y_to: int) -> str:
    bend = (x_to - x_from) // 2
    return f"C{x_from + bend},{y_from} {x_to - bend},{y_to} {x_to},{y_to}"


def _label(plan: Plan, edge: Edge) -> str:
    stage = plan.stage_of(edge.target)
    if stage is None:
        return "late events" if edge.source.kind == "late" else edge.output
    if edge.forward:
        return "forward"
    route = stage.route(edge.port).describe().split(":")[0]
    label = f"{route}{', reduced' if edge.reduce else ''}"
    return label if len(label) <= 28 else label[:27] + "…"


def _steps(edge: Edge) -> str:
    return "; ".join(describe_step(step) for step in edge.steps) or "as they are"
