"""A stream whose operator has further outputs. Building it runs nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.errors import UserError
from penstock.origin import here
from penstock.query import logical
from penstock.query.stream import Stream


@dataclass(frozen=True, eq=False)
class WithOutputs(Stream):
    """The main output of an operator; the others are had by their names."""

    schemas: Mapping[str, logical.Schema]

    def __getitem__(self, name: str) -> Stream:
        origin = here()
        if name not in self.schemas or not name:
            others = ", ".join(repr(one) for one in self.schemas if one) or "none"
            raise UserError(
                "UNKNOWN_OUTPUT",
                f"there is no output {name!r}",
                where=str(origin),
                detail=f"the further outputs are {others}",
                hint="Declare it: .apply(operator, schema, outputs={'name': {...}}).",
            )
        return Stream(logical.Branch(origin, self.schemas[name], self.node, name))
