"""Every form of a query as text: as written, logical, optimised, stages, Spark stages.

All of it is read from the same objects that the engine runs.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable

import polars as pl

from penstock.duration import spelled
from penstock.errors import UserError
from penstock.operators.contract import Operator
from penstock.operators.routes import Grid
from penstock.origin import Origin
from penstock.query import logical
from penstock.query.compile import compile_forms
from penstock.query.physical import Plan, Stage
from penstock.query.steps import (
    Edge,
    EdgeSource,
    ExplodeStep,
    FilterStep,
    FunctionStep,
    KeepStep,
    MapStep,
    MergedStep,
    Step,
)

#: the forms, each compiled from the one before
FORMS = ("as written", "logical", "optimised", "stages", "spark stages")
#: former name -> name
_FORMER_FORMS = {"sub-queries": "stages"}


def resolve_form(name: str) -> str:
    """The form of this name. A former name works for one version more, with a warning."""
    if name in _FORMER_FORMS:
        form = _FORMER_FORMS[name]
        message = f"the form {name!r} of explain is now {form!r}; the next version removes the former name"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return form
    if name not in FORMS:
        raise UserError("BAD_OPTION", f"there is no form {name!r}", hint=f"Use one of {', '.join(FORMS)}.")
    return name


def explain_app(app: logical.App) -> dict[str, str]:
    """The text of every form, by its name."""
    compiled = compile_forms(app)
    return {
        "as written": _explain_as_written(app),
        "logical": _explain_logical(app),
        "optimised": f"{_explain_logical(compiled.optimised)}\n\n{_explain_optimised(compiled.plan)}",
        "stages": _explain_stages(compiled.plan),
        "spark stages": _explain_spark_stages(compiled.plan),
    }


# -- as written ----------------------------------------------------------------------------------


def _explain_as_written(app: logical.App) -> str:
    """A tree from every output down to its streams, each step with the user's line."""
    lines: list[tuple[str, str]] = []
    for output in app.outputs:
        lines.append((f"output {output.name}", _line(output.origin)))
        for place, sink in enumerate(output.sinks):
            lines.append((f"{'to' if not place else '  '} {sink.describe()}", ""))
        _branch(output.node, "", True, lines)
        lines.append(("", ""))
    return _align(lines[:-1])


def _branch(node: logical.Node, indent: str, last: bool, lines: list[tuple[str, str]]) -> None:
    lines.append((f"{indent}{'└─' if last else '├─'} {node.describe()}", _line(node.origin)))
    below = indent + ("   " if last else "│  ")
    for place, before in enumerate(node.inputs):
        _branch(before, below, place == len(node.inputs) - 1, lines)


def _line(origin: Origin) -> str:
    return str(origin).split(" ")[0]


def _align(lines: list[tuple[str, str]], max_width: int = 60) -> str:
    """Two columns: a step, and its line. If the left side is too long, the right one goes to the next line."""
    width = max((len(left) for left, right in lines if right and len(left) <= max_width), default=0)
    aligned = []
    for left, right in lines:
        if right and len(left) > max_width:
            aligned += [left, f"{'':{width}}  {right}"]
        else:
            aligned.append(f"{left:{width}}  {right}".rstrip())
    return "\n".join(aligned)


# -- logical -------------------------------------------------------------------------------------


def _explain_logical(app: logical.App) -> str:
    """Every node once, inputs before their readers, with its columns."""
    numbers: dict[logical.Node, int] = {}
    lines = []
    for number, node in enumerate(logical.nodes_of(app), 1):
        numbers[node] = number
        reads = ", ".join(f"#{numbers[before]}" for before in node.inputs)
        lines.append(f"#{number} {node.describe()}" + (f"  <- {reads}" if reads else ""))
        lines.append(f"   {_columns(node.schema)}")
    lines += [f"output {output.name} <- #{numbers[output.node]}" for output in app.outputs]
    return "\n".join(lines)


def _columns(schema: logical.Schema) -> str:
    return ", ".join(f"{name} {_type(dtype)}" for name, dtype in schema.items())


def _type(dtype: pl.DataType) -> str:
    if isinstance(dtype, pl.List):
        return f"[{_type(dtype.inner)}]"  # type: ignore[arg-type]
    return type(dtype).__name__ if isinstance(dtype, pl.DataType) else str(dtype)


# -- optimised -----------------------------------------------------------------------------------


def _explain_optimised(plan: Plan) -> str:
    """The edges and scans, without anything that is not needed."""
    lines = []
    for name, scan in plan.scans.items():
        everything = list(scan.stream.decoder.schema())
        dropped = [column for column in everything if column not in scan.columns]
        lines.append(
            f"stream {name}: reads {len(scan.columns)} of {len(everything)} columns: {', '.join(scan.columns)}"
        )
        if dropped:
            lines.append(f"   never decoded: {', '.join(dropped)}")
        late = f", late after {spelled(scan.stream.lateness)}" if scan.stream.lateness else ""
        lines.append(f"   event time: {scan.stream.time or 'none'}{late}")
    for edge in plan.edges:
        lines.append(f"{_from(edge)} to {_to(edge)}")
        lines += [f"   {describe_step(step)}" for step in edge.steps]
        lines.append(f"   {_transfer(edge, plan)}")
    return "\n".join(lines)


def describe_step(step: Step) -> str:
    match step:
        case MapStep():
            return "compute " + ", ".join(
                name if str(expr) == f'col("{name}")' else f"{name} = {expr}" for name, expr in step.columns
            )
        case KeepStep():
            return "keep " + ", ".join(step.names)
        case FilterStep():
            return f"keep the rows where {step.predicate}"
        case MergedStep():
            return "; ".join(describe_step(part) for part in step.parts)
        case FunctionStep():
            return f"call {getattr(step.function, '__name__', 'a function')} on each batch"
        case ExplodeStep():
            return f"a row for every value of {', '.join(step.columns)}"


def _transfer(edge: Edge, plan: Plan) -> str:
    stage = plan.stage_of(edge.target)
    if stage is None:
        top = plan.outputs[edge.target.name].top
        return f"send the slice's {top.describe()}" if top else "send the rows as they are"
    if edge.forward:
        return "stay in the slice: the rows are partitioned by this key already"
    if edge.reduce:
        return f"reduce before the exchange: {stage.operator.describe()}"
    return f"send {', '.join(sorted(stage.operator.needs(edge.port)))}"


# -- stages --------------------------------------------------------------------------------------


def _explain_stages(plan: Plan) -> str:
    """The parts between two exchanges: why each starts where it does, and what its rows are exchanged by."""
    lines = []
    for name in plan.scans:
        lines.append(f"scan of {name} (level 0)")
        lines.append("   cut: none; it is the stateless start and runs where the log is read")
        lines += _onward(plan, EdgeSource("scan", name))
    for stage in plan.stages.values():
        lines.append(f"{stage.id} (level {stage.level}): {stage.operator.describe()}")
        lines += [f"   declared at: {stage.origin}"] if str(stage.origin) else []
        lines.append(f"   cut: {_reason(stage)}")
        lines += [f"   {line}" for line in _exchanges(plan, stage)]
        lines.append(f"   order: {_order(stage.operator)}")
        lines += _onward(plan, EdgeSource("stage", stage.id))
    if not plan.stages:
        lines.append("no further stage: no operator has state, so nothing is exchanged")
    return "\n".join(lines)


def _exchanges(plan: Plan, stage: Stage) -> list[str]:
    """How the rows of each port arrive."""
    lines = []
    for port in range(stage.operator.ports):
        arriving = [edge for edge in plan.edges_to(stage.id) if edge.port == port]
        side = ("left ", "right ")[port] if stage.operator.ports > 1 else ""
        if all(edge.forward for edge in arriving):
            lines.append(f"{side}exchange: none; its rows are in this slice already (forward)")
        else:
            lines.append(f"{side}exchange {stage.route(port).describe()}")
    return lines


def _reason(stage: Stage) -> str:
    if isinstance(stage.operator.route(), Grid):
        return "it compares rows with rows, so every two of its inputs must meet in one slice"
    keys = ", ".join(stage.operator.keys)
    if not keys:
        return "it keeps state over all rows, so all of them must meet in one place"
    return f"it keeps state per {keys}, so all rows of the same {keys} must meet in one slice"


def _order(operator: Operator) -> str:
    return {
        "strict": "strict: by event time, partition and offset; rows wait for the watermark",
        "epoch": "epoch: inside an epoch rows may come in any order",
        "none": "none: as they come",
    }[operator.order]


def _onward(plan: Plan, source: EdgeSource) -> list[str]:
    return [f"   then: {_to(edge)}" for edge in plan.edges_from(source)]


# -- Spark stages --------------------------------------------------------------------------------


def _explain_spark_stages(plan: Plan) -> str:
    """One epoch on Spark: one job, a stage for the scan and one for every level, then the driver."""
    streams = ", ".join(plan.scans)
    lines = [f"stage 0  scan: read, decode, first steps of {streams}", "         a task per core, over spans"]
    lines += _pre_reductions(plan, (EdgeSource("scan", name) for name in plan.scans))
    for level in range(1, plan.levels + 1):
        stages = plan.at_level(level)
        keys = "; ".join(f"{stage.id} {_brief(plan, stage)}" for stage in stages)
        lines.append(f"   ───── exchange {level} (shuffle): {keys}")
        lines.append(f"stage {level}  slices: {', '.join(stage.id for stage in stages)}")
        lines.append("         a task per slice: state in, operators, new runs, results")
        lines += _pre_reductions(plan, (EdgeSource("stage", stage.id) for stage in stages))
    lines.append("   ───── collect")
    for output in plan.outputs.values():
        lines.append(f"driver   gather {output.name}: {output.top.describe() if output.top else 'all rows'}")
        lines += [f"         {describe_step(step)}" for step in output.after]
        lines += [f"         to {sink.describe()}" for sink in output.sinks] or ["         to no sink"]
    lines.append("         commit: the manifest of the epoch, then Spark's")
    return "\n".join(lines)


def _brief(plan: Plan, stage: Stage) -> str:
    ports = (stage.route(port).describe().split(":")[0] for port in range(stage.operator.ports))
    arriving = plan.edges_to(stage.id)
    return "forward" if all(edge.forward for edge in arriving) else " and ".join(dict.fromkeys(ports))


def _pre_reductions(plan: Plan, sources: Iterable[EdgeSource]) -> list[str]:
    edges = (edge for source in sources for edge in plan.edges_from(source))
    return [f"         pre-reduces for {edge.target}" for edge in edges if edge.reduce and not edge.forward]


def _from(edge: Edge) -> str:
    source = edge.source
    if source.kind in ("scan", "late"):
        return f"{'scan' if source.kind == 'scan' else 'late events'} of {source.name}"
    return str(source)


def _to(edge: Edge) -> str:
    return str(edge.target) if edge.target.output is None else f"output {edge.target.output}"
