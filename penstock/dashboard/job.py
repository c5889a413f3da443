"""A job's page: its query and an editor for it, its graph, its latest answer, its history."""

from __future__ import annotations

from collections import deque
from typing import Any

from fastapi import Request
from markupsafe import Markup
from nicegui import ui

from penstock.dashboard.board import Board, JobView
from penstock.dashboard.charts import of_answer, over_time
from penstock.dashboard.diagram import mermaid
from penstock.dashboard.editor import altering
from penstock.dashboard.frame import (
    Shade,
    Tile,
    asked,
    button,
    card,
    every,
    framed,
    missing,
    put,
    read,
    shown,
    tried,
)
from penstock.dashboard.markup import Column, chip, clock, code, rate, table
from penstock.dashboard.parameters import Parameters
from penstock.errors import PenstockError
from penstock.formatting import size

#: pages narrower than this have their graph from top to bottom, in pixels
_NARROW = 720
_VERSIONS = (
    Column("when"),
    Column("what"),
    Column("version", number=True),
    Column("state", wide=True),
    Column("query"),
)
_VERBS = {"pause": "pause", "resume": "play_arrow", "flush": "output", "empty": "restart_alt"}


async def job(board: Board, request: Request, name: str) -> None:
    """The page."""
    try:
        first = await read(board.job, name)
    except PenstockError as error:
        with framed(board, request, "jobs"):
            missing(error.primary + ".")
        return
    with framed(board, request, "jobs") as shade:
        view = _View(board, name, first)
        view.head()
        view.cards()
        await ui.context.client.connected()
        await view.fit(shade)
        every(view.show)


class _View:
    """The parts of the page that change."""

    def __init__(self, board: Board, name: str, first: JobView) -> None:
        self._board, self._name, self._first = board, name, first
        self._narrow = False
        self._past: deque[tuple[float, float]] = deque(maxlen=300)
        self._drawn = ""
        self._parameters: Parameters | None = None

    def head(self) -> None:
        with (
            ui.element("div")
            .classes("pen-card-head")
            .style("display:flex;align-items:center;gap:10px;flex-wrap:wrap")
        ):
            ui.label(self._name).classes("text-xl font-bold").style("overflow-wrap:anywhere")
            self._life = shown().classes("at-life")
            ui.element("div").classes("pen-grow")
            self._verbs = {
                verb: button(verb.capitalize(), self._doing(verb), icon=icon).classes(f"at-{verb}")
                for verb, icon in _VERBS.items()
            }
            self._drop = button("Drop", self._dropping, kind="outline color=negative", icon="delete").classes(
                "at-drop"
            )
            if not self._board.changeable:
                for one in (*self._verbs.values(), self._drop):
                    one.set_visibility(False)
        self._error = shown()

    def cards(self) -> None:
        with ui.element("div").classes("pen-tiles"):
            self._tiles = {name: Tile(name) for name in ("rows told/s", "last told", "version", "state")}
        with ui.element("div").classes("pen-cols"):
            with card("Latest answer"):
                self._rows = shown().classes("at-answer")
            with card("Plot") as head:
                with head:
                    self._plotted = ui.label().classes("pen-note")
                self._plot = ui.echart(over_time({})).classes("pen-chart").style("height:320px")
        with card("Graph", "rates as they are now"):
            self._graph = ui.mermaid(
                "flowchart LR", config={"securityLevel": "strict", "flowchart": {"htmlLabels": True}}
            )
            self._graph.classes("pen-graph").classes("at-graph")
        with ui.element("div").classes("pen-cols"):
            with card("Query"):
                self._query = ui.element("div")
            with card("History"):
                self._versions = shown().classes("at-versions")

    async def fit(self, shade: Shade) -> None:
        """Ask the browser how wide and how dark it is."""
        wide = await asked("window.innerWidth", 1200)
        dark = await shade.dark()
        self._narrow = wide < _NARROW
        facts = self._first.facts
        with self._query:
            if self._board.changeable and not facts.of_python:
                altering(self._board, self._name, facts.query, dark)
                self._parameters = Parameters(self._board, self._name)
                self._parameters.show(facts.parameters)
            else:
                shown(code(facts.query))
                ui.label(_elsewhere(facts.of_python)).classes("pen-note")
            if facts.into:
                ui.label(f"Into {', '.join(facts.into)}").classes("pen-note")

    async def show(self) -> None:
        """Read anew."""
        try:
            view = await read(self._board.job, self._name)
        except PenstockError as error:
            put(self._life, chip("gone"))
            put(self._error, Markup('<div class="pen-banner">{}.</div>').format(error.primary))
            return
        facts = view.facts
        put(self._life, chip(facts.life))
        put(
            self._error,
            Markup('<div class="pen-banner">{}</div>').format(facts.error) if facts.error else Markup(),
        )
        self._verbs["pause"].set_visibility(self._board.changeable and facts.life == "running")
        self._verbs["resume"].set_visibility(self._board.changeable and facts.life != "running")
        self._tiles["rows told/s"].put(rate(facts.rows_per_second), f"{facts.rows:,} since the start")
        last = "-" if view.epoch is None else f"epoch {view.epoch:,}"
        self._tiles["last told"].put(last, f"{view.total:,} rows")
        self._tiles["version"].put(f"{facts.version:,}", "")
        kept = [node.state_bytes for node in view.graph.nodes if node.state_bytes] if view.graph else []
        self._tiles["state"].put(size(sum(kept)) if kept else "-", ", ".join(facts.streams))
        if self._parameters is not None:
            self._parameters.show(facts.parameters)
        put(self._rows, _answer(view))
        put(self._versions, _versions(view))
        self._draw(view)

    def _draw(self, view: JobView) -> None:
        drawing = "" if view.graph is None else mermaid(view.graph, self._narrow)
        if drawing and drawing != self._drawn:
            self._drawn = drawing
            self._graph.set_content(drawing)
        options = of_answer(view.rows)
        if options is None:
            options = self._over_time(view)
            self._plotted.set_text("rows told a second, since this page is open")
        else:
            self._plotted.set_text(f"{options['series'][0]['name']} of the latest answer")
        self._plot.options.clear()
        self._plot.options.update(options)
        self._plot.update()

    def _over_time(self, view: JobView) -> dict[str, Any]:
        points = self._board.epochs()
        if points and (not self._past or points[-1]["at"] > self._past[-1][0]):
            self._past.append((points[-1]["at"], round(view.facts.rows_per_second, 2)))
        return over_time({"rows/s": list(self._past)}, area=True)

    def _doing(self, verb: str) -> Any:
        async def do() -> None:
            answer = await tried(self._board.change, verb, self._name)
            if answer is not None:
                ui.notify(answer.says, type="positive")
                await self.show()

        return do

    async def _dropping(self) -> None:
        with ui.dialog() as dialog, ui.card():
            ui.label(f"Drop {self._name}? Its state and its answers go with it.")
            with ui.row():
                button("Drop", lambda: dialog.submit(True), kind="unelevated color=negative").classes(
                    "at-really"
                )
                button("Keep", lambda: dialog.submit(False))
        if await dialog and await tried(self._board.change, "drop", self._name) is not None:
            ui.navigate.to("/")


def _elsewhere(of_python: bool) -> str:
    """Where a query is changed that is not changed here."""
    if of_python:
        return "Written in Python: it is changed there."
    return "Agents reduce for it: it changes with their file, once agents and engine are started anew."


def _answer(view: JobView) -> Markup:
    columns = [Column(name, number=dtype.is_numeric()) for name, dtype in view.rows.schema.items()]
    told = table(columns, view.rows.iter_rows(), "It has told nothing yet.")
    more = view.total - view.rows.height
    return (
        told + Markup('<div class="pen-note">and {} more rows</div>').format(f"{more:,}")
        if more > 0
        else told
    )


def _versions(view: JobView) -> Markup:
    rows = []
    before = None
    for one in view.versions:
        changed = code(one.query) if one.query != before else Markup('<span class="pen-dim">as before</span>')
        before = one.query
        said = (
            Markup("{} {}").format(one.did, chip("error")) if one.error and one.did == "failed" else one.did
        )
        rows.append((clock(one.at), said, one.version, one.state, changed))
    return table(_VERSIONS, rows[::-1][:50], "It was written in Python and has one version.")
