"""Selects the events of all jobs on a stream at once, as a `SharedSelection` says.

Returns, group by group, the events of all its jobs, each with the number of its job; or their totals, where these can
be computed while selecting. What several jobs need is computed once.

On failure: a job whose expressions fail is reported by its number and gets perhaps no events; the others get theirs.
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
from penstock.query.jobs_plan import JobTable, SharedSelection, TemplateGroup
from penstock.query.pane_totals import GroupTotals, Mask, PaneTotals, can_be_summed
from penstock.query.steps import COMPUTING_RAISES, compute, run_steps

#: the rows of all jobs together that are in memory at a time
MAX_ROWS = 1 << 20
#: how often a value must be in a column, on average, for a condition to be evaluated once a value
REPEATED = 4

Rows = npt.NDArray[np.int64]
Jobs = npt.NDArray[np.uint32]
#: called with the number of a job that failed, and why
OnFailure = Callable[[int, PenstockError], None]


@dataclass(frozen=True)
class SelectedRows:
    """Rows of a group's jobs. With a dictionary, their keys are numbers in the column `_code`. `partial`: the rows are
    partial results, not events."""

    group: TemplateGroup
    rows: pl.DataFrame
    keys: KeyDictionary | None
    partial: bool = False

    def plain(self) -> pl.DataFrame:
        """The rows with the values of their keys."""
        if self.keys is None:
            return self.rows
        ordered = self.rows.sort(CODE)
        return ordered.drop(CODE).with_columns(self.keys.decode(ordered[CODE].to_numpy()))


def select_events(
    selection: SharedSelection, frame: pl.DataFrame, on_failure: OnFailure
) -> Iterator[SelectedRows]:
    """The rows of every group, in pieces."""
    batch = _Batch(selection, frame, on_failure)
    for group, tables in zip(selection.groups, selection.tables, strict=True):
        waiting: list[tuple[pl.DataFrame, EncodedKeys | None]] = []
        totals, keys = GroupTotals(), list[EncodedKeys]()
        for projection, table in tables.items():
            if table.totalled and (values := batch.values(projection)) is not None:
                first_code = sum(part.count for part in keys)
                keys.append(batch.keys(projection))
                batch.add_totals(projection, table, values, totals, first_code)
                table = replace(table, by_conditions={})
            for rows, jobs in _in_pieces(batch.find(table)):
                projected = batch.project(group, projection, rows, jobs)
                if projected is not None and projected[0].height:
                    waiting.append(projected)
                # without a stage, the columns of one projection are not those of another
                if not group.target or sum(piece.height for piece, _ in waiting) >= MAX_ROWS:
                    yield from _concat(group, waiting)
                    waiting = []
        yield from _concat(group, waiting)
        if totals:
            names = [f"k{number}" for number in range(len(keys[0].columns))]
            yield SelectedRows(group, totals.to_frame(), concat_keys(names, keys), partial=True)


@dataclass
class _Batch:
    """One frame of events, and what has been computed from it so far."""

    selection: SharedSelection
    frame: pl.DataFrame
    on_failure: OnFailure
    _rows: dict[tuple[int, ...], Rows] = field(default_factory=dict)
    _projected: dict[int, pl.DataFrame | None] = field(default_factory=dict)
    _columns: dict[Hashable, pl.Series] = field(default_factory=dict)
    _encoded: dict[int, EncodedColumn] = field(default_factory=dict)
    _summable: dict[int, bool] = field(default_factory=dict)
    _totals: dict[tuple[int, ...], PaneTotals] = field(default_factory=dict)
    _keys: dict[int, EncodedKeys] = field(default_factory=dict)
    _codes: dict[int, Codes] = field(default_factory=dict)

    def find(self, table: JobTable) -> Iterator[tuple[Rows, Jobs]]:
        """Pairs of rows and the jobs they are for."""
        for conditions, jobs in table.by_conditions.items():
            rows = self._find_rows(conditions, jobs)
            if rows is not None and len(rows):
                for job in jobs:
                    yield rows, np.full(len(rows), job, dtype=np.uint32)
        for (conditions, operands), constants in table.by_constants.items():
            jobs = constants[JOB].to_numpy()
            rows = self._find_rows(conditions, jobs)
            if rows is None or not len(rows):
                continue
            values = self._operand_values(operands, jobs)
            if values is None:
                continue
            names = [str(operand) for operand in operands]
            left = values.select(*names).with_row_index("row")
            if conditions:
                left = left[rows]
            met = left.join(constants.cast({n: values.schema[n] for n in names}), on=names, how="inner")
            yield met["row"].cast(pl.Int64).to_numpy(), met[JOB].to_numpy()

    def project(
        self, group: TemplateGroup, projection: int, rows: Rows, jobs: Jobs
    ) -> tuple[pl.DataFrame, EncodedKeys | None] | None:
        """The projection of these rows, with their jobs. Keys become numbers where only their equality matters."""
        whole = self._project_all(projection)
        if whole is None:
            projected = self._project_each_job(projection, rows, jobs)
            return None if projected is None else (projected, None)
        numbers = pl.Series(JOB, jobs, dtype=pl.UInt32)
        if not group.target or group.ordered:
            return whole[rows].with_columns(numbers), None
        codes, keys = self._key_codes(projection)[rows], self.keys(projection)
        light = whole.select(name for name in whole.columns if name == TIME or name[0] == "v")
        return light[rows].with_columns(numbers, pl.Series(CODE, codes)), keys

    def keys(self, projection: int) -> EncodedKeys:
        """The keys of all events."""
        if projection not in self._keys:
            columns = self._columns_of(projection, "k")
            assert columns is not None
            self._keys[projection] = EncodedKeys(tuple(self._encode(column) for column in columns))
        return self._keys[projection]

    def values(self, projection: int) -> list[pl.Series] | None:
        """The values of all events; None if they cannot be totalled."""
        columns = self._columns_of(projection, "v")
        if columns is None or self._columns_of(projection, "k") is None:
            return None
        for column in columns:
            if id(column) not in self._summable:
                self._summable[id(column)] = can_be_summed(column)
        return columns if all(self._summable[id(column)] for column in columns) else None

    def add_totals(
        self, projection: int, table: JobTable, values: list[pl.Series], totals: GroupTotals, first_code: int
    ) -> None:
        """Add the totals of the jobs that are found by conditions alone."""
        keys = tuple(map(id, self.keys(projection).columns))
        if keys not in self._totals:
            self._totals[keys] = PaneTotals(self._key_codes(projection), self.frame[TIME].to_numpy())
        events = self._totals[keys]
        for conditions, jobs in table.by_conditions.items():
            mask = self._mask_of_all(conditions, jobs)
            for job in jobs if mask is not None else ():
                member = table.totalled[int(job)]
                assert mask is not None
                assert member.pane is not None
                cells = events.select(mask, member.pane, values, member.extremes)
                if cells is not None:
                    totals.add(int(job), cells, first_code)

    # -- projections -----------------------------------------------------------------------------

    def _project_all(self, projection: int) -> pl.DataFrame | None:
        """The projection of all events; None if it fails, perhaps for an event that no job selects."""
        if projection not in self._projected:
            steps = self.selection.projections[projection]
            try:
                self._projected[projection] = run_steps(steps, self.frame, str(self.selection.source))
            except PenstockError:
                self._projected[projection] = None
        return self._projected[projection]

    def _project_each_job(self, projection: int, rows: Rows, jobs: Jobs) -> pl.DataFrame | None:
        """The projection of each job's events by themselves."""
        frames = []
        for job in np.unique(jobs):
            try:
                own = self.frame[rows[jobs == job]]
                projected = run_steps(self.selection.projections[projection], own, str(self.selection.source))
                frames.append(projected.with_columns(pl.lit(job, pl.UInt32).alias(JOB)))
            except PenstockError as error:
                self.on_failure(int(job), error)
        return pl.concat(frames) if frames else None

    def _columns_of(self, projection: int, kind: str) -> list[pl.Series] | None:
        """The columns of a projection that are keys (`k`) or values (`v`); None if it fails for some event.

        Most are plain columns, which are the same objects in all projections.
        """
        plain = self.selection.plain_columns[projection]
        if plain is not None:
            return [self._plain_column(*column) for name, column in plain if name[0] == kind]
        whole = self._project_all(projection)
        if whole is None:
            return None
        names = [name for name in whole.columns if name[0] == kind]
        return [self._columns.setdefault((projection, name), whole[name]) for name in names]

    def _plain_column(self, name: str, dtype: pl.DataType | None) -> pl.Series:
        if (name, dtype) not in self._columns:
            column = self.frame[name]
            self._columns[name, dtype] = column if dtype is None else column.cast(dtype, strict=False)
        return self._columns[name, dtype]

    def _key_codes(self, projection: int) -> Codes:
        if projection not in self._codes:
            self._codes[projection] = self.keys(projection).codes(self.frame.height)
        return self._codes[projection]

    def _encode(self, column: pl.Series) -> EncodedColumn:
        if id(column) not in self._encoded:
            self._encoded[id(column)] = EncodedColumn.of(column)
        return self._encoded[id(column)]

    # -- conditions ------------------------------------------------------------------------------

    def _find_rows(self, conditions: tuple[int, ...], jobs: Jobs) -> Rows | None:
        """The rows for which all these conditions hold; None, and the jobs fail, if one cannot be computed."""
        mask = self._mask_of_all(conditions, jobs)
        if mask is None:
            return None
        if conditions not in self._rows:
            self._rows[conditions] = np.flatnonzero(mask)
        return self._rows[conditions]

    def _mask_of_all(self, conditions: tuple[int, ...], jobs: Jobs) -> Mask | None:
        masks: list[Mask] = []
        for number in conditions:
            mask = self.masks[number]
            if isinstance(mask, PenstockError):
                self._fail(jobs, mask)
                return None
            masks.append(mask)
        if not masks:
            return np.ones(self.frame.height, dtype=np.bool_)
        combined = masks[0]
        for mask in masks[1:]:
            combined = combined & mask
        return combined

    @cached_property
    def masks(self) -> list[Mask | PenstockError]:
        """For each condition, the rows for which it holds, or why it cannot be computed."""
        try:
            masks = self.masks_by_value()
            rest = [n for n in range(len(self.selection.conditions)) if n not in masks]
            if rest:
                computed = compute(self.frame, [self.selection.masks[n] for n in rest])
                masks |= {n: computed[f"_{n}"].to_numpy() for n in rest}
            return [masks[n] for n in range(len(masks))]
        except COMPUTING_RAISES:  # one by one, to find which it was
            return [self._mask(condition) for condition in self.selection.conditions]

    def masks_by_value(self) -> dict[int, Mask]:
        """The conditions on columns whose values repeat: each is evaluated once a value."""
        masks: dict[int, Mask] = {}
        for name, numbers in self.selection.single_column_conditions.items():
            if not (self.frame.schema[name] == pl.String or self.frame.schema[name].is_integer()):
                continue
            column = self._encode(self._plain_column(name, None))
            if column.count * REPEATED > self.frame.height:
                continue
            computed = compute(column.values.to_frame(name), [self.selection.masks[n] for n in numbers])
            masks |= {n: computed[f"_{n}"].to_numpy().take(column.codes) for n in numbers}
        return masks

    def _mask(self, condition: pl.Expr) -> Mask | PenstockError:
        try:
            return compute(self.frame, [condition.fill_null(False).alias("_mask")])["_mask"].to_numpy()
        except COMPUTING_RAISES as failure:
            return _expression_error(condition, failure)

    def _operand_values(self, operands: tuple[int, ...], jobs: Jobs) -> pl.DataFrame | None:
        try:
            return self.frame.select(self.selection.operands[n].alias(str(n)) for n in operands)
        except COMPUTING_RAISES as failure:
            self._fail(jobs, _expression_error(self.selection.operands[operands[0]], failure))
            return None

    def _fail(self, jobs: Jobs, error: PenstockError) -> None:
        for job in jobs:
            self.on_failure(int(job), error)


def _expression_error(expr: pl.Expr, failure: BaseException) -> PenstockError:
    return UserError(
        "EXPRESSION_FAILED",
        f"{expr} cannot be computed",
        detail=str(failure).splitlines()[0] if str(failure) else type(failure).__name__,
        hint="Alter the job, or fix its events; then resume it.",
    )


def _concat(
    group: TemplateGroup, projected: Sequence[tuple[pl.DataFrame, EncodedKeys | None]]
) -> Iterator[SelectedRows]:
    """The rows with the values of their keys in one piece, and those with numbers in another."""
    plain = [rows for rows, keys in projected if keys is None]
    if plain:
        yield SelectedRows(group, pl.concat(plain), None)
    coded = [(rows, keys) for rows, keys in projected if keys is not None]
    if coded:
        names = [f"k{number}" for number in range(len(coded[0][1].columns))]
        dictionary = concat_keys(names, [keys for _, keys in coded])
        renumbered = [
            rows.with_columns(pl.col(CODE) + first)
            for (rows, _), (first, _) in zip(coded, dictionary.parts, strict=True)
        ]
        yield SelectedRows(group, pl.concat(renumbered), dictionary)


def _in_pieces(pairs: Iterator[tuple[Rows, Jobs]]) -> Iterator[tuple[Rows, Jobs]]:
    """The pairs, concatenated into pieces of about `MAX_ROWS`."""
    waiting: list[tuple[Rows, Jobs]] = []
    count = 0
    for rows, jobs in pairs:
        waiting.append((rows, jobs))
        count += len(rows)
        if count >= MAX_ROWS:
            yield np.concatenate([r for r, _ in waiting]), np.concatenate([j for _, j in waiting])
            waiting, count = [], 0
    if waiting:
        yield np.concatenate([r for r, _ in waiting]), np.concatenate([j for _, j in waiting])
