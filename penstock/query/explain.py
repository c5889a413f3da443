"""Every form of a query as text: as written, logical, optimised, sub-queries, Spark stages. Pure.

Receives an `App` and the `Plan` made of it; hands plain lines for people. What is said here is read off the
same objects that the engine runs.
"""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from penstock.duration import spelled
from penstock.operators.contract import Operator
from penstock.operators.routing import Grid
from penstock.origin import Origin
from penstock.query import logical
from penstock.query.compile import forms
from penstock.query.edges import Edge, EdgeSource
from penstock.query.physical import Plan, Stage
from penstock.query.steps import ExplodeStep, FilterStep, FunctionStep, KeepStep, MapStep, MergedStep, Step

#: the forms, in the order in which one is made of the other
FORMS = ("as written", "logical", "optimised", "sub-queries", "spark stages")


def explained(app: logical.App) -> dict[str, str]:
    """The text of every form, by its name."""
    made = forms(app)
    return {
        "as written": as_written(app),
        "logical": logical_form(app),
        "optimised": f"{logical_form(made.optimised)}\n\n{optimised(made.plan)}",
        "sub-queries": stages(made.plan),
        "spark stages": spark_stages(made.plan),
    }


# -- as written ----------------------------------------------------------------------------------


def as_written(app: logical.App) -> str:
    """A tree from every output down to its streams, each step with the user's line."""
    lines: list[tuple[str, str]] = []
    for output in app.outputs:
        lines.append((f"output {output.name}", _line(output.origin)))
        for place, sink in enumerate(output.sinks):
            lines.append((f"{'to' if not place else '  '} {sink.describe()}", ""))
        _branch(output.node, "", True, lines)
        lines.append(("", ""))
    return _aligned(lines[:-1])


def _branch(node: logical.Node, indent: str, last: bool, lines: list[tuple[str, str]]) -> None:
    lines.append((f"{indent}{'└─' if last else '├─'} {node.describe()}", _line(node.origin)))
    below = indent + ("   " if last else "│  ")
    for place, before in enumerate(node.inputs):
        _branch(before, below, place == len(node.inputs) - 1, lines)


def _line(origin: Origin) -> str:
    return str(origin).split(" ")[0]


def _aligned(lines: list[tuple[str, str]], most: int = 60) -> str:
    """Two columns: what, and where it was said; a long left side pushes the right one to the next line."""
    width = max((len(left) for left, right in lines if right and len(left) <= most), default=0)
    told = []
    for left, right in lines:
        if right and len(left) > most:
            told += [left, f"{'':{width}}  {right}"]
        else:
            told.append(f"{left:{width}}  {right}".rstrip())
    return "\n".join(told)


# -- logical -------------------------------------------------------------------------------------


def logical_form(app: logical.App) -> str:
    """Every node once, inputs before those who read them, with its columns."""
    numbers: dict[logical.Node, int] = {}
    told = []
    for number, node in enumerate(logical.nodes_of(app), 1):
        numbers[node] = number
        reads = ", ".join(f"#{numbers[before]}" for before in node.inputs)
        told.append(f"#{number} {node.describe()}" + (f"  <- {reads}" if reads else ""))
        told.append(f"   {_columns(node.schema)}")
    told += [f"output {output.name} <- #{numbers[output.node]}" for output in app.outputs]
    return "\n".join(told)


def _columns(schema: logical.Schema) -> str:
    return ", ".join(f"{name} {_type(dtype)}" for name, dtype in schema.items())


def _type(dtype: pl.DataType) -> str:
    if isinstance(dtype, pl.List):
        return f"[{_type(dtype.inner)}]"  # type: ignore[arg-type]
    return type(dtype).__name__ if isinstance(dtype, pl.DataType) else str(dtype)


# -- optimised -----------------------------------------------------------------------------------


def optimised(plan: Plan) -> str:
    """What is left to do once nothing is read, computed or sent that nobody needs."""
    told = []
    for name, scan in plan.scans.items():
        everything = list(scan.stream.decoder.schema())
        dropped = [column for column in everything if column not in scan.columns]
        told.append(
            f"stream {name}: reads {len(scan.columns)} of {len(everything)} columns: {', '.join(scan.columns)}"
        )
        if dropped:
            told.append(f"   never decoded: {', '.join(dropped)}")
        late = f", late after {spelled(scan.stream.lateness)}" if scan.stream.lateness else ""
        told.append(f"   event time: {scan.stream.time or 'none'}{late}")
    for edge in plan.edges:
        told.append(f"{_from(edge)} to {_to(edge)}")
        told += [f"   {step_text(step)}" for step in edge.steps]
        told.append(f"   {_sent(edge, plan)}")
    return "\n".join(told)


def step_text(step: Step) -> str:
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
            return "; ".join(step_text(part) for part in step.parts)
        case FunctionStep():
            return f"call {getattr(step.function, '__name__', 'a function')} on each batch"
        case ExplodeStep():
            return f"a row for every value of {', '.join(step.columns)}"


def _sent(edge: Edge, plan: Plan) -> str:
    """What goes over the edge."""
    sub = plan.stage_of(edge.target)
    if sub is None:
        top = plan.outputs[edge.target.name].top
        return f"send the slice's {top.describe()}" if top else "send the rows as they are"
    if edge.forward:
        return "hand over in the slice: the rows lie by this key already"
    if edge.reduce:
        return f"reduce before the exchange: {sub.operator.describe()}"
    return f"send {', '.join(sorted(sub.operator.needs(edge.port)))}"


# -- sub-queries ---------------------------------------------------------------------------------


def stages(plan: Plan) -> str:
    """The parts between two exchanges: why each begins where it does, and what it is exchanged by."""
    told = []
    for name in plan.scans:
        told.append(f"scan of {name} (level 0)")
        told.append("   cut: none; it is the stateless beginning and runs where the log is read")
        told += _onward(plan, EdgeSource("scan", name))
    for sub in plan.stages.values():
        told.append(f"{sub.id} (level {sub.level}): {sub.operator.describe()}")
        told += [f"   said at: {sub.origin}"] if str(sub.origin) else []
        told.append(f"   cut: {_reason(sub)}")
        told += [f"   {line}" for line in _exchanges(plan, sub)]
        told.append(f"   order: {_order(sub.operator)}")
        told += _onward(plan, EdgeSource("stage", sub.id))
    if not plan.stages:
        told.append("no further sub-query: nothing here remembers anything, so nothing is exchanged")
    return "\n".join(told)


def _exchanges(plan: Plan, sub: Stage) -> list[str]:
    """How the rows of each port come."""
    lines = []
    for port in range(sub.operator.ports):
        arriving = [edge for edge in plan.edges_to(sub.id) if edge.port == port]
        side = ("left ", "right ")[port] if sub.operator.ports > 1 else ""
        if all(edge.forward for edge in arriving):
            lines.append(f"{side}exchange: none; its rows lie in this slice already (forward)")
        else:
            lines.append(f"{side}exchange {sub.route(port).describe()}")
    return lines


def _reason(sub: Stage) -> str:
    if isinstance(sub.operator.route(), Grid):
        return "it compares rows with rows, so every two of its inputs must meet in one slice"
    keys = ", ".join(sub.operator.keys)
    if not keys:
        return "it keeps state over all rows, so all of them must meet in one place"
    return f"it keeps state per {keys}, so all rows of the same {keys} must meet in one slice"


def _order(operator: Operator) -> str:
    return {
        "strict": "strict: by event time, partition and offset; rows wait for the watermark",
        "epoch": "epoch: inside an epoch rows may come in any order",
        "none": "none: as it comes",
    }[operator.order]


def _onward(plan: Plan, source: EdgeSource) -> list[str]:
    return [f"   then: {_to(edge)}" for edge in plan.edges_from(source)]


# -- Spark stages --------------------------------------------------------------------------------


def spark_stages(plan: Plan) -> str:
    """One epoch as Spark sees it: one job, a stage for the scan and one for every level, then the driver."""
    streams = ", ".join(plan.scans)
    told = [f"stage 0  scan: read, decode, first steps of {streams}", "         a task per core, over spans"]
    told += _reduced(plan, (EdgeSource("scan", name) for name in plan.scans))
    for level in range(1, plan.levels + 1):
        here = plan.at_level(level)
        keys = "; ".join(f"{sub.id} {_brief(plan, sub)}" for sub in here)
        told.append(f"   ───── exchange {level} (shuffle): {keys}")
        told.append(f"stage {level}  slices: {', '.join(sub.id for sub in here)}")
        told.append("         a task per slice: state in, operators, new runs, results")
        told += _reduced(plan, (EdgeSource("stage", sub.id) for sub in here))
    told.append("   ───── collect")
    for output in plan.outputs.values():
        told.append(f"driver   gather {output.name}: {output.top.describe() if output.top else 'all rows'}")
        told += [f"         {step_text(step)}" for step in output.after]
        told += [f"         to {sink.describe()}" for sink in output.sinks] or ["         to no sink"]
    told.append("         commit: the manifest of the epoch, then Spark's")
    return "\n".join(told)


def _brief(plan: Plan, sub: Stage) -> str:
    ports = (sub.route(port).describe().split(":")[0] for port in range(sub.operator.ports))
    arriving = plan.edges_to(sub.id)
    return "forward" if all(edge.forward for edge in arriving) else " and ".join(dict.fromkeys(ports))


def _reduced(plan: Plan, sources: Iterable[EdgeSource]) -> list[str]:
    edges = (edge for source in sources for edge in plan.edges_from(source))
    return [f"         pre-reduces for {edge.target}" for edge in edges if edge.reduce and not edge.forward]


def _from(edge: Edge) -> str:
    source = edge.source
    if source.kind in ("scan", "late"):
        return f"{'scan' if source.kind == 'scan' else 'late events'} of {source.name}"
    return str(source)


def _to(edge: Edge) -> str:
    return str(edge.target) if edge.target.output is None else f"output {edge.target.output}"
