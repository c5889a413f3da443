"""What the query of a job can name: the streams and jobs of a catalogue, its parameters, the user's functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from penstock.catalogue.catalogue import Catalogue
from penstock.origin import here
from penstock.query import logical
from penstock.query.stream import Stream
from penstock.sql.scope import UserFunction
from penstock.sql.statements import Scalar


@dataclass(frozen=True)
class JobScope:
    """The names around one job's query."""

    catalogue: Catalogue
    parameters: Mapping[str, Scalar]
    functions: Mapping[str, UserFunction]
    #: a stream of the catalogue, and the rows of a job of it
    stream: Callable[[str], Stream]
    job: Callable[[str], Stream]
    #: reads its streams by itself, under this number
    private: int | None = None
    #: filled with the jobs of which columns are declared, and those
    declared: list[tuple[str, Mapping[str, pl.DataType]]] = field(default_factory=list)

    def names(self) -> Sequence[str]:
        return [*self.catalogue.streams, *self.catalogue.jobs]

    def streams(self) -> Sequence[str]:
        return list(self.catalogue.streams)

    def rows(self, name: str) -> Stream | None:
        if name in self.catalogue.jobs:
            return self.job(name)
        if name not in self.catalogue.streams:
            return None
        found = self.stream(name)
        return found if self.private is None else _by_itself(found, self.private)

    def previous(self, name: str, columns: Mapping[str, pl.DataType] | None) -> Stream | None:
        if columns is not None:
            self.declared.append((name, columns))
            return Stream(logical.Previous(here(), columns, name, ()))
        if name not in self.catalogue.jobs:
            return None
        node = self.job(name).node
        streams = tuple(dict.fromkeys(s for one in _sources(node) for s in one.streams))
        return Stream(logical.Previous(here(), node.schema, name, streams))


def _sources(node: logical.Node) -> Iterator[logical.FromJob]:
    if isinstance(node, logical.FromJob):
        yield node
    for before in node.inputs:
        yield from _sources(before)


def _by_itself(stream: Stream, number: int) -> Stream:
    """The same stream, read from its beginning by one job alone."""
    node = stream.node
    assert isinstance(node, logical.Source)
    alone = replace(node.stream, name=f"{node.stream.name}~{number}")
    return Stream(replace(node, stream=alone))
