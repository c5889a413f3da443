"""A plan for life whose results are kept, so that they can be asked for: what a service runs of an app.

Receives the rows of every epoch before it is committed; hands an output's latest answer, and its rows from an epoch on.
Where other processes run the epochs, it follows what those keep.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

import polars as pl

from penstock.catalogue.followed_results import FollowedResults
from penstock.catalogue.results import Answer, Results
from penstock.epoch.program import Fixed
from penstock.errors import UserError
from penstock.query.physical import Plan
from penstock.state.generation import FencedDirectory


class Kept(Fixed):
    """The outputs of an app, by name, under a state directory."""

    def __init__(self, plan: Plan, state: Path, *, follows: bool = False) -> None:
        super().__init__(plan)
        self._results: Results = FollowedResults(state) if follows else Results(state)

    @property
    def outputs(self) -> Mapping[str, Mapping[str, pl.DataType]]:
        """The outputs there are, and their columns."""
        return {name: dict(output.schema) for name, output in self._plan.outputs.items()}

    @property
    def kept_from(self) -> int:
        """What was told before this epoch may be gone."""
        return self._results.kept_from

    def begun(self, *, follows: bool = False, fenced_directory: FencedDirectory | None = None) -> None:
        self._results.load(self._plan.outputs)

    def joined(self) -> None:
        """Know what engines elsewhere have told so far."""
        self.begun()

    def followed(self, committed: int) -> Counter[str]:
        """Where other processes run the epochs: take in what they told up to a committed one; hands how often each
        output has told something since."""
        assert isinstance(self._results, FollowedResults)
        return self._results.follow(committed)

    def delivered(
        self, epoch: int, commands: int, rows: Mapping[str, pl.DataFrame], last: Mapping[str, int]
    ) -> None:
        self._results.put(epoch, rows, last)

    def ask(self, output: str) -> Answer | None:
        """An output's latest answer; None before its first."""
        if output not in self._plan.outputs:
            there_are = ", ".join(sorted(self._plan.outputs))
            raise UserError("UNKNOWN_JOB", f"there is no output {output}", hint=f"There are {there_are}.")
        return self._results.latest(output)

    def whole(self, output: str) -> Answer | None:
        """All that an output told in the last epoch in which it did."""
        return self._results.whole(output)

    def since(self, output: str, epoch: int, most: int | None = None) -> list[Answer]:
        """An output's rows of the epochs from one on, as far as they are kept."""
        return list(islice(self._results.since(output, epoch), most))
