"""Writes elements of SVG: text, lines, rectangles, dots."""

from __future__ import annotations

from xml.sax.saxutils import escape

#: the colour of text
INK = "#4a5568"


def draw_text(
    x: float,
    y: float,
    text: str,
    *,
    anchor: str = "start",
    colour: str = INK,
    size: int = 11,
    bold: bool = False,
) -> str:
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}" font-size="{size}"{weight}>'
        f"{escape(text)}</text>"
    )


def draw_line(
    x1: float,
    y1: float,
    x2: float,
    y2: float,
    colour: str,
    *,
    width: float = 1,
    dash: str = "",
    opacity: float = 1,
) -> str:
    more = f' stroke-width="{width:g}"' if width != 1 else ""
    more += f' stroke-dasharray="{dash}"' if dash else ""
    more += f' stroke-opacity="{opacity:g}"' if opacity != 1 else ""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"{more}/>'


def draw_rectangle(x: float, y: float, wide: float, high: float, colour: str, *, opacity: float = 1) -> str:
    more = f' fill-opacity="{opacity:g}"' if opacity != 1 else ""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{high:.1f}" fill="{colour}"{more}/>'


def draw_dot(x: float, y: float, colour: str, radius: float) -> str:
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{colour}" stroke="white" stroke-width="0.8"/>'
    )
