"""The page of a job: its latest result, its graph, an editor for its query, its parameters, its history."""

from __future__ import annotations

from collections import deque
from typing import Any

from fastapi import Request
from markupsafe import Markup
from nicegui import ui

from penstock.dashboard.backend import Backend, JobView
from penstock.dashboard.charts import result_chart, time_chart
from penstock.dashboard.diagram import render_mermaid
from penstock.dashboard.editor import alter_editor
from penstock.dashboard.frame import (
    Theme,
    Tile,
    button,
    card,
    evaluate,
    html,
    page_frame,
    refresh,
    run,
    run_or_notify,
    update_chart,
    update_html,
)
from penstock.dashboard.markup import Column, chip, clock, code, duration, empty_note, rate, table
from penstock.dashboard.parameters import Parameters
from penstock.errors import PenstockError
from penstock.formatting import size
from penstock.server.response_bodies import SinkLag

#: on pages narrower than this, in pixels, the graph runs from top to bottom
_NARROW_PIXELS = 720
#: changes of the job that are shown
_MAX_VERSIONS = 50
#: a sink that lacks rows for so long is reported, also without an error
_LAG_SECONDS = 10.0
_VERSIONS = (
    Column("when"),
    Column("what"),
    Column("version", number=True),
    Column("state", wide=True),
    Column("query"),
)
_VERBS = {"pause": "pause", "resume": "play_arrow", "flush": "output", "empty": "restart_alt"}


async def job(backend: Backend, request: Request, name: str) -> None:
    """Show the page."""
    try:
        first = await run(backend.job, name)
    except PenstockError as error:
        with page_frame(backend, request, "jobs"):
            html(empty_note(error.primary + "."))
        return
    with page_frame(backend, request, "jobs") as theme:
        page = _JobPage(backend, name, first)
        page.add_head()
        page.add_cards()
        await ui.context.client.connected()
        await page.add_query(theme)
        refresh(page.show)


class _JobPage:
    """The elements of the page."""

    def __init__(self, backend: Backend, name: str, first: JobView) -> None:
        self._backend, self._name, self._first = backend, name, first
        self._is_narrow = False
        #: rows emitted a second since the page was opened
        self._rates: deque[tuple[float, float]] = deque(maxlen=300)
        self._diagram = ""
        self._parameters: Parameters | None = None

    def add_head(self) -> None:
        with (
            ui.element("div")
            .classes("pen-card-head")
            .style("display:flex;align-items:center;gap:10px;flex-wrap:wrap")
        ):
            ui.label(self._name).classes("text-xl font-bold").style("overflow-wrap:anywhere")
            self._life = html().classes("at-life")
            ui.element("div").classes("pen-grow")
            self._verbs = {
                verb: button(verb.capitalize(), self._command(verb), icon=icon).classes(f"at-{verb}")
                for verb, icon in _VERBS.items()
            }
            self._drop = button(
                "Drop", self._confirm_drop, kind="outline color=negative", icon="delete"
            ).classes("at-drop")
            if not self._backend.takes_commands:
                for one in (*self._verbs.values(), self._drop):
                    one.set_visibility(False)
        self._error = html()

    def add_cards(self) -> None:
        with ui.element("div").classes("pen-tiles"):
            self._tiles = {name: Tile(name) for name in ("rows/s", "last result", "version", "state")}
        with ui.element("div").classes("pen-cols"):
            with card("Latest result"):
                self._rows = html().classes("at-answer")
            with card("Plot") as head:
                with head:
                    self._plot_note = ui.label().classes("pen-note")
                self._plot = ui.echart(time_chart({})).classes("pen-chart").style("height:320px")
        with card("Graph", "with current rates"):
            self._graph = ui.mermaid(
                "flowchart LR", config={"securityLevel": "strict", "flowchart": {"htmlLabels": True}}
            )
            self._graph.classes("pen-graph").classes("at-graph")
        with ui.element("div").classes("pen-cols"):
            with card("Query"):
                self._query = ui.element("div")
            with card("History"):
                self._versions = html().classes("at-versions")

    async def add_query(self, theme: Theme) -> None:
        """Show the query, in an editor that fits the theme of the browser, and note how wide the page is."""
        width = await evaluate("window.innerWidth", 1200)
        dark = await theme.is_dark()
        self._is_narrow = width < _NARROW_PIXELS
        facts = self._first.facts
        with self._query:
            if self._backend.takes_commands and not facts.of_python:
                alter_editor(self._backend, self._name, facts.query, dark)
                self._parameters = Parameters(self._backend, self._name)
                self._parameters.show(facts.parameters)
            else:
                html(code(facts.query))
                ui.label(_read_only_note(facts.of_python)).classes("pen-note")
            if facts.into:
                ui.label(f"Into {', '.join(facts.into)}").classes("pen-note")

    async def show(self) -> None:
        """Refresh the page."""
        try:
            view = await run(self._backend.job, self._name)
        except PenstockError as error:
            update_html(self._life, chip("gone"))
            update_html(self._error, Markup('<div class="pen-banner">{}.</div>').format(error.primary))
            return
        facts = view.facts
        update_html(self._life, chip(facts.life))
        problems = [facts.error] if facts.error else []
        problems += [_describe_lag(one) for one in facts.behind if one.error or one.seconds >= _LAG_SECONDS]
        banners = [Markup('<div class="pen-banner">{}</div>').format(text) for text in problems]
        update_html(self._error, Markup("").join(banners))
        self._verbs["pause"].set_visibility(self._backend.takes_commands and facts.life == "running")
        self._verbs["resume"].set_visibility(self._backend.takes_commands and facts.life != "running")
        self._tiles["rows/s"].set(rate(facts.rows_per_second), f"{facts.rows:,} since the start")
        last = "-" if view.epoch is None else f"epoch {view.epoch:,}"
        self._tiles["last result"].set(last, f"{view.total:,} rows")
        self._tiles["version"].set(f"{facts.version:,}", "")
        state = [node.state_bytes for node in view.graph.nodes if node.state_bytes] if view.graph else []
        self._tiles["state"].set(size(sum(state)) if state else "-", ", ".join(facts.streams))
        if self._parameters is not None:
            self._parameters.show(facts.parameters)
        update_html(self._rows, _result_table(view))
        update_html(self._versions, _version_table(view))
        self._draw(view)

    def _draw(self, view: JobView) -> None:
        diagram = "" if view.graph is None else render_mermaid(view.graph, self._is_narrow)
        if diagram and diagram != self._diagram:
            self._diagram = diagram
            self._graph.set_content(diagram)
        options = result_chart(view.rows)
        if options is None:
            options = self._rate_chart(view)
            self._plot_note.set_text("rows emitted a second, since this page was opened")
        else:
            self._plot_note.set_text(f"{options['series'][0]['name']} of the latest result")
        update_chart(self._plot, options)

    def _rate_chart(self, view: JobView) -> dict[str, Any]:
        points = self._backend.epochs()
        if points and (not self._rates or points[-1]["at"] > self._rates[-1][0]):
            self._rates.append((points[-1]["at"], round(view.facts.rows_per_second, 2)))
        return time_chart({"rows/s": list(self._rates)}, area=True)

    def _command(self, verb: str) -> Any:
        async def do() -> None:
            reply = await run_or_notify(self._backend.change, verb, self._name)
            if reply is not None:
                ui.notify(reply.says, type="positive")
                await self.show()

        return do

    async def _confirm_drop(self) -> None:
        with ui.dialog() as dialog, ui.card():
            ui.label(f"Drop {self._name}? Its state and its results are deleted.")
            with ui.row():
                button("Drop", lambda: dialog.submit(True), kind="unelevated color=negative").classes(
                    "at-really"
                )
                button("Cancel", lambda: dialog.submit(False))
        if await dialog and await run_or_notify(self._backend.change, "drop", self._name) is not None:
            ui.navigate.to("/")


def _read_only_note(of_python: bool) -> str:
    """Where to change a query that cannot be changed on the page."""
    if of_python:
        return "Written in Python: change it there."
    return "Agents reduce for it: change their SQL file, and restart agents and engine."


def _describe_lag(one: SinkLag) -> str:
    text = f"{one.sink} lacks {one.epochs:,} epochs after {one.cursor:,}, for {duration(one.seconds)}"
    return f"{text}: {one.error}" if one.error else text


def _result_table(view: JobView) -> Markup:
    columns = [Column(name, number=dtype.is_numeric()) for name, dtype in view.rows.schema.items()]
    rows = table(columns, view.rows.iter_rows(), "No result yet.")
    more = view.total - view.rows.height
    note = Markup('<div class="pen-note">and {} more rows</div>').format(f"{more:,}")
    return rows + note if more > 0 else rows


def _version_table(view: JobView) -> Markup:
    rows = []
    before = None
    for one in view.versions:
        query = code(one.query) if one.query != before else Markup('<span class="pen-dim">as before</span>')
        before = one.query
        has_error = one.error and one.did == "failed"
        change = Markup("{} {}").format(one.did, chip("error")) if has_error else one.did
        rows.append((clock(one.at), change, one.version, one.state, query))
    return table(_VERSIONS, rows[::-1][:_MAX_VERSIONS], "It was written in Python and has one version.")
