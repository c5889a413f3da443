"""Choosing: which of a batch's events are whose, for all jobs of a crowd at once.

Receives the decoded events of a stream; hands, group by group, the events of all jobs of the group, each with the
number of its job, or the totals of them where these can be tallied. What several jobs ask for is computed once.

A job that fails fails alone: it is named, and the others get their events.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from penstock.errors import PenstockError, UserError
from penstock.operators.contract import TIME
from penstock.operators.job_windows import JOB
from penstock.operators.key_codes import CODE, Codes, EncodedColumn, EncodedKeys, KeyDictionary, concat_keys
from penstock.query.crowd import Crowd, Group, Table
from penstock.query.steps import computed, run_steps
from penstock.query.tally import Counted, Mask, Tally, can_be_added

#: as many rows of all jobs together are worked on at a time
MOST_ROWS = 1 << 20
#: as often a column's values are there on average for a condition to be asked of each of them once
REPEATED = 4

Rows = npt.NDArray[np.int64]
#: told of a job that failed, and why
Failed = Callable[[int, PenstockError], None]


@dataclass(frozen=True)
class Selection:
    """Rows of a group's jobs; with a dictionary, their keys are numbers in the column `_code`. `tallied`: they are
    partial answers already."""

    group: Group
    rows: pl.DataFrame
    keys: KeyDictionary | None
    tallied: bool = False

    def plain(self) -> pl.DataFrame:
        """The rows with their keys as they are."""
        if self.keys is None:
            return self.rows
        ordered = self.rows.sort(CODE)
        return ordered.drop(CODE).with_columns(self.keys.decode(ordered[CODE].to_numpy()))


def selected(crowd: Crowd, frame: pl.DataFrame, failed: Failed) -> Iterator[Selection]:
    """The rows of every group, in pieces; of each job all or, if it failed, perhaps none."""
    batch = _Batch(crowd, frame, failed)
    for group, tables in zip(crowd.groups, crowd.tables, strict=True):
        waiting: list[tuple[pl.DataFrame, EncodedKeys | None]] = []
        counted, keys = Counted(), list[EncodedKeys]()
        for projection, table in tables.items():
            if table.tallied and (values := batch.values(projection)) is not None:
                first = sum(part.count for part in keys)
                keys.append(batch.keys(projection))
                batch.count(projection, table, values, counted, first)
                table = replace(table, alone={})
            for rows, jobs in _pieces(batch.pairs(table)):
                made = batch.projected(group, projection, rows, jobs)
                if made is not None and made[0].height:
                    waiting.append(made)
                # only what goes to one sub-query has the same columns
                if not group.target or sum(piece.height for piece, _ in waiting) >= MOST_ROWS:
                    yield from _selections(group, waiting)
                    waiting = []
        yield from _selections(group, waiting)
        if counted.found:
            names = [f"k{number}" for number in range(len(keys[0].columns))]
            yield Selection(group, counted.frame(), concat_keys(names, keys), tallied=True)


@dataclass
class _Batch:
    """One frame of events, with what has been computed of it."""

    crowd: Crowd
    frame: pl.DataFrame
    failed: Failed
    _passing: dict[tuple[int, ...], Rows] = field(default_factory=dict)
    _projected: dict[int, pl.DataFrame | None] = field(default_factory=dict)
    _kept: dict[Hashable, pl.Series] = field(default_factory=dict)
    _coded: dict[int, EncodedColumn] = field(default_factory=dict)
    _addable: dict[int, bool] = field(default_factory=dict)
    _tallies: dict[tuple[int, ...], Tally] = field(default_factory=dict)
    _keys: dict[int, EncodedKeys] = field(default_factory=dict)
    _numbers: dict[int, Codes] = field(default_factory=dict)

    def pairs(self, table: Table) -> Iterator[tuple[Rows, npt.NDArray[np.uint32]]]:
        """Rows and the jobs they are for."""
        for conditions, jobs in table.alone.items():
            rows = self._rows(conditions, jobs)
            if rows is not None and len(rows):
                for job in jobs:
                    yield rows, np.full(len(rows), job, dtype=np.uint32)
        for (conditions, operands), constants in table.joined.items():
            jobs = constants[JOB].to_numpy()
            rows = self._rows(conditions, jobs)
            if rows is None or not len(rows):
                continue
            values = self._values(operands, jobs)
            if values is None:
                continue
            names = [str(operand) for operand in operands]
            found = values.select(*names).with_row_index("row")
            if conditions:
                found = found[rows]
            met = found.join(constants.cast({n: values.schema[n] for n in names}), on=names, how="inner")
            yield met["row"].cast(pl.Int64).to_numpy(), met[JOB].to_numpy()

    def projected(
        self, group: Group, projection: int, rows: Rows, jobs: npt.NDArray[np.uint32]
    ) -> tuple[pl.DataFrame, EncodedKeys | None] | None:
        """What is computed of these rows, with their jobs; keys as numbers where only equality matters."""
        whole = self._whole(projection)
        if whole is None:
            made = self._one_by_one(projection, rows, jobs)
            return None if made is None else (made, None)
        numbered = pl.Series(JOB, jobs, dtype=pl.UInt32)
        if not group.target or group.ordered:
            return whole[rows].with_columns(numbered), None
        codes, keys = self._codes(projection)[rows], self.keys(projection)
        light = whole.select(name for name in whole.columns if name == TIME or name[0] == "v")
        return light[rows].with_columns(numbered, pl.Series(CODE, codes)), keys

    def _whole(self, projection: int) -> pl.DataFrame | None:
        """What is computed of all events; None where that fails, perhaps for an event that no job has chosen."""
        if projection not in self._projected:
            steps = self.crowd.projections[projection]
            try:
                self._projected[projection] = run_steps(steps, self.frame, str(self.crowd.source))
            except PenstockError:
                self._projected[projection] = None
        return self._projected[projection]

    def keys(self, projection: int) -> EncodedKeys:
        """The keys of all events."""
        if projection not in self._keys:
            columns = self._columns_of(projection, "k")
            assert columns is not None
            self._keys[projection] = EncodedKeys(tuple(self._encoded(column) for column in columns))
        return self._keys[projection]

    def values(self, projection: int) -> list[pl.Series] | None:
        """The values of all events, for tallies; None where they cannot be."""
        found = self._columns_of(projection, "v")
        if found is None or self._columns_of(projection, "k") is None:
            return None
        for column in found:
            if id(column) not in self._addable:
                self._addable[id(column)] = can_be_added(column)
        return found if all(self._addable[id(column)] for column in found) else None

    def count(
        self, projection: int, table: Table, values: list[pl.Series], counted: Counted, first: int
    ) -> None:
        """Tally the events of jobs that are found by conditions alone."""
        meant = tuple(map(id, self.keys(projection).columns))
        if meant not in self._tallies:
            self._tallies[meant] = Tally(self._codes(projection), self.frame[TIME].to_numpy())
        tally = self._tallies[meant]
        for conditions, jobs in table.alone.items():
            mask = self._chosen(conditions, jobs)
            for job in jobs if mask is not None else ():
                member = table.tallied[int(job)]
                assert mask is not None
                assert member.pane is not None
                cells = tally.cells(mask, member.pane, values, member.ends)
                if cells is not None:
                    counted.add(int(job), cells, first)

    def _columns_of(self, projection: int, kind: str) -> list[pl.Series] | None:
        """The columns of a projection that are keys (`k`) or values (`v`); None where it fails for some event.

        Most are plain columns, and of many jobs: these are the very same, whatever the projection.
        """
        plain = self.crowd.plain_columns[projection]
        if plain is not None:
            return [self._plain(*meant) for name, meant in plain if name[0] == kind]
        whole = self._whole(projection)
        if whole is None:
            return None
        names = [name for name in whole.columns if name[0] == kind]
        return [self._kept.setdefault((projection, name), whole[name]) for name in names]

    def _plain(self, name: str, dtype: pl.DataType | None) -> pl.Series:
        if (name, dtype) not in self._kept:
            column = self.frame[name]
            self._kept[name, dtype] = column if dtype is None else column.cast(dtype, strict=False)
        return self._kept[name, dtype]

    def _codes(self, projection: int) -> Codes:
        if projection not in self._numbers:
            self._numbers[projection] = self.keys(projection).codes(self.frame.height)
        return self._numbers[projection]

    def _one_by_one(self, projection: int, rows: Rows, jobs: npt.NDArray[np.uint32]) -> pl.DataFrame | None:
        """What is computed of each job's events by itself."""
        made = []
        for job in np.unique(jobs):
            try:
                mine = self.frame[rows[jobs == job]]
                found = run_steps(self.crowd.projections[projection], mine, str(self.crowd.source))
                made.append(found.with_columns(pl.lit(job, pl.UInt32).alias(JOB)))
            except PenstockError as error:
                self.failed(int(job), error)
        return pl.concat(made) if made else None

    def _rows(self, conditions: tuple[int, ...], jobs: npt.NDArray[np.uint32]) -> Rows | None:
        """The rows that pass all of some conditions; None, and the jobs failed, where one cannot be computed."""
        mask = self._chosen(conditions, jobs)
        if mask is None:
            return None
        if conditions not in self._passing:
            self._passing[conditions] = np.flatnonzero(mask)
        return self._passing[conditions]

    def _chosen(self, conditions: tuple[int, ...], jobs: npt.NDArray[np.uint32]) -> Mask | None:
        """Whether each row passes all of some conditions."""
        masks: list[Mask] = []
        for number in conditions:
            found = self._masks[number]
            if isinstance(found, PenstockError):
                for job in jobs:
                    self.failed(int(job), found)
                return None
            masks.append(found)
        if not masks:
            return np.ones(self.frame.height, dtype=np.bool_)
        met = masks[0]
        for mask in masks[1:]:
            met = met & mask
        return met

    @cached_property
    def _masks(self) -> list[npt.NDArray[np.bool_] | PenstockError]:
        try:
            found = self._of_values()
            rest = [n for n in range(len(self.crowd.conditions)) if n not in found]
            asked = computed(self.frame, [self.crowd.masks[n] for n in rest]) if rest else self.frame
            return [
                found[n] if n in found else asked[f"_{n}"].to_numpy() for n in range(len(rest) + len(found))
            ]
        except Exception:  # one by one, to tell which it was
            return [self._mask(condition) for condition in self.crowd.conditions]

    def _of_values(self) -> dict[int, Mask]:
        """The conditions on columns of which a value is there many times: asked of each value once."""
        found: dict[int, Mask] = {}
        for name, numbers in self.crowd.of_one.items():
            if not (self.frame.schema[name] == pl.String or self.frame.schema[name].is_integer()):
                continue
            column = self._encoded(self._plain(name, None))
            if column.count * REPEATED > self.frame.height:
                continue
            asked = computed(column.values.to_frame(name), [self.crowd.masks[n] for n in numbers])
            found |= {n: asked[f"_{n}"].to_numpy().take(column.codes) for n in numbers}
        return found

    def _encoded(self, column: pl.Series) -> EncodedColumn:
        if id(column) not in self._coded:
            self._coded[id(column)] = EncodedColumn.of(column)
        return self._coded[id(column)]

    def _mask(self, condition: pl.Expr) -> npt.NDArray[np.bool_] | PenstockError:
        try:
            return computed(self.frame, [condition.fill_null(False).alias("_mask")])["_mask"].to_numpy()
        except Exception as failure:
            return cannot(condition, failure)

    def _values(self, operands: tuple[int, ...], jobs: npt.NDArray[np.uint32]) -> pl.DataFrame | None:
        try:
            return self.frame.select(self.crowd.operands[n].alias(str(n)) for n in operands)
        except Exception as failure:
            for job in jobs:
                self.failed(int(job), cannot(self.crowd.operands[operands[0]], failure))
            return None


def cannot(what: pl.Expr, failure: Exception) -> PenstockError:
    """What to tell of an expression that raises."""
    return UserError(
        "EXPRESSION_FAILED",
        f"{what} cannot be computed",
        detail=str(failure).splitlines()[0] if str(failure) else type(failure).__name__,
        hint="Alter the job, or have its events mended; then resume it.",
    )


def _selections(group: Group, made: Sequence[tuple[pl.DataFrame, EncodedKeys | None]]) -> Iterator[Selection]:
    """Rows put together: those with their keys as they are, and those with numbers."""
    plain = [rows for rows, keys in made if keys is None]
    if plain:
        yield Selection(group, pl.concat(plain), None)
    coded = [(rows, keys) for rows, keys in made if keys is not None]
    if coded:
        names = [f"k{number}" for number in range(len(coded[0][1].columns))]
        dictionary = concat_keys(names, [keys for _, keys in coded])
        moved = [
            rows.with_columns(pl.col(CODE) + first)
            for (rows, _), (first, _) in zip(coded, dictionary.parts, strict=True)
        ]
        yield Selection(group, pl.concat(moved), dictionary)


def _pieces(
    pairs: Iterator[tuple[Rows, npt.NDArray[np.uint32]]],
) -> Iterator[tuple[Rows, npt.NDArray[np.uint32]]]:
    """The pairs in pieces of not too many rows."""
    waiting: list[tuple[Rows, npt.NDArray[np.uint32]]] = []
    count = 0
    for rows, jobs in pairs:
        waiting.append((rows, jobs))
        count += len(rows)
        if count >= MOST_ROWS:
            yield np.concatenate([r for r, _ in waiting]), np.concatenate([j for _, j in waiting])
            waiting, count = [], 0
    if waiting:
        yield np.concatenate([r for r, _ in waiting]), np.concatenate([j for _, j in waiting])
