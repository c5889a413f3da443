"""The compiler: from what the user said to what the tasks carry out. Every form in between is kept. Pure.

Receives an `App`; hands its forms, each a frozen data structure made of the one before: as written, optimised,
sub-queries with their edges (the `Plan` the engine runs).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from penstock.errors import UserError
from penstock.query import rules
from penstock.query.logical import App, FromJob, Previous, nodes_of
from penstock.query.lower import lower_app
from penstock.query.physical import Plan


@dataclass(frozen=True)
class Forms:
    """An application in every form: what was said, the same with less to do, and how it is carried out."""

    written: App
    optimised: App
    prefix: str = ""

    @cached_property
    def plan(self) -> Plan:
        plan = lower_app(self.optimised, self.prefix)
        for improve in rules.PHYSICAL:
            plan = improve(plan)
        return plan


def compile_forms(app: App, prefix: str = "") -> Forms:
    """Every form of an application; `prefix` is put before the names of its sub-queries."""
    optimised = app
    for rule in rules.LOGICAL:
        optimised = rule(optimised)
    return Forms(app, optimised, prefix)


def compile_app(app: App) -> Plan:
    """The physical plan of an application, which runs by itself."""
    return compile_standalone(app).plan


def compile_standalone(app: App) -> Forms:
    """Every form of an application that runs by itself: it cannot read jobs."""
    for node in nodes_of(app):
        if isinstance(node, FromJob | Previous):
            raise UserError(
                "READS_A_JOB",
                f"an app that runs by itself cannot read the job {node.job}",
                where=str(node.origin),
                hint="Run it beside that job, with `penstock deploy`, or use the stream that the job emits.",
            )
    return compile_forms(app)
