"""A compiled job in a few lines, for EXPLAIN. Pure."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from penstock.catalogue.compiled_job import CompiledJob
from penstock.query import logical


def explain_job(job: CompiledJob) -> str:
    """What a job tells, what it reads, and by which operators."""
    columns = ", ".join(f"{name} {dtype}" for name, dtype in job.schema.items())
    lines = [f"tells {columns}"]
    if job.template is not None:
        said = job.template
        lines.append(f"reads stream {said.source.stream.name}: {', '.join(sorted(said.needed))}")
        lines += [f"where {condition}" for condition in said.conditions]
        lines += [
            f"where {operand} == {value!r} (looked up with other jobs)" for operand, value in said.equalities
        ]
        if said.aggregation is not None:
            what = ", ".join(aggregate.describe() for aggregate in said.aggregation.aggregates)
            lines.append(f"{what} over {said.aggregation.window.describe()}, with all jobs of this shape")
        if said.top is not None:
            lines.append(replace(said.top, by=_told_as(said.top.by, job.node)).describe())
    else:
        assert job.plan is not None
        lines.append(f"reads {', '.join([*job.scans, *(f'job {name}' for name in sorted(job.reads))])}")
        lines += [f"{sub.id}: {sub.operator.describe()}" for sub in job.plan.stages.values()]
    return "\n".join(lines)


def _told_as(column: str, node: logical.Node) -> str:
    """What the rows call the column that a ranking goes by, below their last steps."""
    if isinstance(node, logical.Top) or not node.inputs:
        return column
    below = _told_as(column, node.inputs[0])
    if isinstance(node, logical.Map):
        named = [name for name, made in node.columns if made.meta.undo_aliases().meta.eq(pl.col(below))]
        return named[0] if named else "value that it does not tell" if node.only else below
    return below
