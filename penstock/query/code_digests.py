"""Digests of the code of a query: of the user's functions and classes and of its expressions, by their names. Pure.

Replicas compare them: those that load another version of a file differ. The identity of state does not depend on
them, so code may change as long as the form of the state stays.

What counts of a function: its instructions with their constants, its defaults, what it closes over, and those globals
that it names: the user's functions and classes in turn, and plain values. What does not: files, lines, the position
in a file, docstrings, and all that comes with Python or an installed package.

Guarantees: equal code has equal digests in every process and under every patch of one minor version of Python.
Does not guarantee: equal digests under two minor versions, whose instructions differ; nor, of expressions, under two
versions of Polars. What a function reaches by `getattr`, a file or the network is not seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from penstock.query.describe_code import PYTHON, ClassOnly, CodeDigests
from penstock.query.logical import StreamDefinition
from penstock.query.physical import Plan
from penstock.query.steps import Edge, FilterStep, FunctionStep, MapStep, MergedStep, Step


def digest_plan(plan: Plan) -> dict[str, str]:
    """The digests of all code of a plan, by the names of functions and classes, and by the places that use any."""
    code = CodeDigests()
    for place, thing in _places(plan):
        code.add(place, thing)
    return code.digests()


def digest_objects(
    objects: Mapping[str, object],
    streams: Iterable[StreamDefinition] = (),
    plans: Mapping[str, Plan] | None = None,
) -> dict[str, str]:
    """The digests of functions and other objects by name, of streams, and of several plans by name."""
    code = CodeDigests()
    for place, thing in sorted(objects.items()):
        code.add(place, thing)
    for stream in streams:
        for place, thing in _stream_places(stream):
            code.add(place, thing)
    for name, plan in sorted((plans or {}).items()):
        for place, thing in _places(plan):
            code.add(f"{name}, {place}", thing)
    return code.digests()


def find_differences(own: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """The names whose digests differ. Python and functions come first, as a place differs if its function does."""
    return sorted(
        (name for name in own.keys() | other.keys() if own.get(name) != other.get(name)),
        key=lambda name: (name != PYTHON, ": " in name, name),
    )


def _places(plan: Plan) -> Iterator[tuple[str, object]]:
    """The parts of a plan that may have code, by where they are."""
    for scan in plan.scans.values():
        yield from _stream_places(scan.stream)
    for id_, stage in plan.stages.items():
        yield f"operator {id_}: settings", stage.operator
        yield f"operator {id_}: partitioners", stage.partitioners
    for edge in plan.edges:
        for number, step in enumerate(edge.steps, 1):
            yield f"{_path(edge)}: step {number}", _content_of(step)
    for name, output in plan.outputs.items():
        for number, step in enumerate(output.after, 1):
            yield f"output {name}: step {number}", _content_of(step)
        for number, sink in enumerate(output.sinks, 1):
            yield f"output {name}: sink {number}", ClassOnly(sink)


def _stream_places(stream: StreamDefinition) -> Iterator[tuple[str, object]]:
    yield f"stream {stream.name}: decoder", ClassOnly(stream.decoder)
    yield f"stream {stream.name}: log", ClassOnly(stream.log)


def _path(edge: Edge) -> str:
    port = f" port {edge.port}" if edge.port else ""
    return f"from {str(edge.source).replace(':', ' ')}{edge.output and f' {edge.output}'} to " + (
        f"{str(edge.target).replace(':', ' ')}{port}"
    )


def _content_of(step: Step) -> object:
    match step:
        case MapStep():
            return ("map", step.columns)
        case FilterStep():
            return ("filter", step.predicate)
        case FunctionStep():
            return ("function", step.function, dict(step.schema))
        case MergedStep():
            return tuple(_content_of(part) for part in step.parts)
    return (type(step).__name__, getattr(step, "names", getattr(step, "columns", ())))
