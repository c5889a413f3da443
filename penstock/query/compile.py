"""Compile an app: optimise its logical plan, then lower it to the physical plan that the engine executes. Pure.

Every form is a frozen data structure made of the one before, and all are kept for EXPLAIN.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from penstock.errors import UserError
from penstock.query import rules
from penstock.query.limits import check_time
from penstock.query.logical import App, FromJob, Previous, nodes_of
from penstock.query.lower import lower_app
from penstock.query.physical import Plan


@dataclass(frozen=True)
class Forms:
    """An app in every form: as written, optimised, and as a physical plan. `prefix` starts the ids of stages."""

    written: App
    optimised: App
    prefix: str = ""

    @cached_property
    def plan(self) -> Plan:
        plan = lower_app(self.optimised, self.prefix)
        for improve in rules.PHYSICAL:
            check_time()
            plan = improve(plan)
        return plan


def compile_forms(app: App, prefix: str = "") -> Forms:
    """Every form of an app; `prefix` starts the ids of its stages."""
    optimised = app
    for rule in rules.LOGICAL:
        check_time()
        optimised = rule(optimised)
    return Forms(app, optimised, prefix)


def compile_app(app: App) -> Plan:
    """The physical plan of an app that reads no jobs."""
    return compile_standalone(app).plan


def compile_standalone(app: App) -> Forms:
    """Every form of an app, which must not read jobs."""
    for node in nodes_of(app):
        if isinstance(node, FromJob | Previous):
            raise UserError(
                "READS_A_JOB",
                f"an app that runs by itself cannot read the job {node.job}",
                where=str(node.origin),
                hint="Run it beside that job, with `penstock deploy`, or use the stream that the job emits.",
            )
    return compile_forms(app)
