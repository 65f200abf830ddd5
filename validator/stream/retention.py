"""Retention: cells that have not changed for `state.retention`, and whose end the watermark has passed, are retired.

They leave memory, and their epochs leave the facts table. The decision is one commit to the facts table: a mark with
the totals of the retired cells, and copies of those rows of dropped epochs that are still needed. These are the rows of
cells that stay, rows that prove lateness, ids that must stay known, and other marks. If the sidecar is killed before
the commit, nothing has happened. If it is killed after the commit, the next start finds the mark and removes the
remaining folders.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from validator.codecs.columns import UNOWED, VERSION
from validator.core.judging import Judging
from validator.core.totals import CellTotals
from validator.model.arrays import ABSENT, Bools, Ints, ints
from validator.model.frontier import read_but_for_open_transactions_us
from validator.model.progress import IngestProgress, Retirement
from validator.reconcile.cells import of_cells, unowed
from validator.reconcile.facts import Kind
from validator.reconcile.judge import EXCESS, INCORRECT, VIOLATIONS, due_base, is_resolved, is_retired_by
from validator.reconcile.lateness import lateness_rows
from validator.state.positions import LOG_RESET, MARK, Positions, Stretch, joined
from validator.state.tables import SCHEMAS, StateTables, Table, rows_of
from validator.stream.commit_rows import epoch_length_us, epoch_of, frontier_rows, mark_row
from validator.stream.failpoints import reach
from validator.stream.ids_kept import ids_kept
from validator.stream.void_facts import rereads_of, without_void

RETIRED: Final = "retired "
"""Prefix of a retirement's mark."""
_LOG_ENTRY: Final = re.compile(r"([0-9]{20})\.(json|crc|checkpoint\..*parquet|checkpoint\.parquet)")
"""Names of the files in a Delta log; the first group is the version."""
_PATIENCE: Final = 2
"""Number of retentions after which an unchanged cell is retired undecided (SEMANTICS 7.7)."""
MARKS_KEPT: Final = 50
"""Number of retirements kept (`_bounded_retirements`)."""

Violation = tuple[str, int, str]
"""(class, window's start in microseconds, key)."""


@dataclass(frozen=True)
class Retired:
    """What retention has dropped so far: totals, the newest dropped epoch, and the horizons.

    ``positions``: those of undecodable records at the last retirement (`Positions.to_json`); None before the first.
    ``sample``: `FitSample.to_json` at the last retirement.
    """

    sums: CellTotals = field(default_factory=CellTotals.empty)
    through_epoch: int = -1
    retirements: tuple[Retirement, ...] = ()
    positions: dict[str, Any] | None = None
    sample: list[Any] = field(default_factory=list)

    def to_mark(self) -> str:
        """The text of a mark row."""
        kept = {
            "sums": self.sums.to_json(),
            "through_epoch": self.through_epoch,
            "retirements": [[r.at_us, r.horizon_us] for r in self.retirements],
            "positions": self.positions,
            "sampled_ids": self.sample,
        }
        return RETIRED + json.dumps(kept, sort_keys=True)

    @classmethod
    def from_mark(cls, text: str) -> Retired:
        """The value from the text of `to_mark`."""
        kept = json.loads(text.removeprefix(RETIRED))
        return cls(
            CellTotals.from_json(kept["sums"]),
            int(kept["through_epoch"]),
            tuple(Retirement(at, horizon) for at, horizon in kept["retirements"]),
            kept["positions"],
            kept["sampled_ids"],
        )

    def with_proven(self, confirmed: Mapping[Violation, int]) -> Retired:
        """A copy in which only the ``confirmed`` violations of retired cells count as proven."""
        sums = self.sums
        proven = dict.fromkeys(VIOLATIONS, 0)
        for (name, _, _), count in confirmed.items():
            proven[name] += count
        proven = {name: min(count, sums.on_record.get(name, 0)) for name, count in proven.items()}
        sums = replace(
            sums,
            on_record=proven,
            unproven={
                name: max(sums.unproven.get(name, 0), sums.violations(name) - proven[name]) for name in VIOLATIONS
            },
            cells_in_excess=len({(window, key) for name, window, key in confirmed if name in EXCESS}),
            incorrect_ids=len({(window, key) for name, window, key in confirmed if name in INCORRECT}),
            cells_missing=len({(window, key) for name, window, key in confirmed if name == "missing"}),
        )
        return replace(self, sums=sums)

    def known_positions(self) -> Positions:
        """A new `Positions` with the kept positions."""
        return Positions() if self.positions is None else Positions.from_json(self.positions)


@dataclass(frozen=True)
class Plan:
    """A planned retirement.

    ``retired``: the new mark. ``carried``: the rows to append again. ``removed``: which judged cells leave memory.
    ``newest_batch``: the newest batch with facts in the dropped epochs.
    """

    retired: Retired
    carried: pa.Table
    removed: Bools
    newest_batch: int


def retired_so_far(tables: StateTables) -> Retired:
    """The value of the newest retirement mark in the facts table; an empty one if there is none."""
    newest: tuple[int, str] | None = None
    for part in tables.scan(Table.FACTS, ["kind", "batch", "mark"], ds.field("kind") == Kind.MARK.value):
        for row in part.to_pylist():
            if row["mark"].startswith(RETIRED) and (newest is None or row["batch"] > newest[0]):
                newest = (row["batch"], row["mark"])
    return Retired() if newest is None else Retired.from_mark(newest[1])


def oldest_epoch(state: Path) -> int | None:
    """The oldest epoch that has a folder; None if there is none."""
    return min((epoch for epoch, _ in _epochs(state)), default=None)


def _epochs(state: Path) -> Iterator[tuple[int, Path]]:
    """The epochs and their folders. Symbolic links are left out, so that nothing is removed through one."""
    for folder in (state / Table.FACTS.value).glob("epoch=*"):
        number = re.fullmatch("epoch=([0-9]+)", folder.name)
        if number is not None and not folder.is_symlink() and not folder.parent.is_symlink():
            yield int(number[1]), folder


def last_droppable(progress: IngestProgress, retention_us: int, absent: Collection[str] = ()) -> int:
    """The newest epoch (its start in seconds) whose facts are all older than ``retention_us``; -1 if there is none.

    Age is measured in read-through time: while the sidecar is down or behind, facts do not age. ``absent``: topics that
    do not exist now.
    """
    # SEMANTICS 7.5: read-through time stands still while the sidecar is down or behind, so no cell is retired before
    # its answers could be read.
    through_us = _read_through_us(progress, absent)
    return (
        -1 if through_us is None else epoch_of(through_us - retention_us - epoch_length_us(retention_us), retention_us)
    )


def droppable(judging: Judging, progress: IngestProgress, retention_us: int, absent: Collection[str] = ()) -> int:
    """As `last_droppable`, but before the first epoch with settled cells that may still be contradicted.

    Results that become readable when an open transaction ends may belong to such cells. These epochs wait as long as
    cells in memory do (`_waited`).
    """
    through, through_us = last_droppable(progress, retention_us, absent), _read_through_us(progress, absent)
    for epoch in _undecided_epochs(judging, progress, through):
        patience_us = judging.rules.missing_after_us + _PATIENCE * retention_us
        if through_us is None or judging.evicted.due_us(epoch)[epoch] > through_us - patience_us:
            return epoch - 1
    return through


def _undecided_epochs(judging: Judging, progress: IngestProgress, through_epoch: int) -> list[int]:
    """The epochs up to ``through_epoch`` with settled cells whose results are not read through yet (see `_decided`)."""
    clock = progress.clock()
    decided_us = clock.due_through_us(clock.outputs_us, judging.rules.missing_after_us)
    found = judging.evicted.due_us(through_epoch)
    return [epoch for epoch, due_us in found.items() if decided_us is None or due_us > decided_us]


def _read_through_us(progress: IngestProgress, absent: Collection[str]) -> int | None:
    exist = [frontier for partition, frontier in progress.frontiers.items() if partition.topic not in absent]
    return read_but_for_open_transactions_us(exist, progress.lookup_us)


def plan(
    tables: StateTables,
    judging: Judging,
    progress: IngestProgress,
    retired: Retired,
    retention_us: int,
    positions: Positions | None = None,
    unprovable: frozenset[str] = frozenset(),
    absent: Collection[str] = (),
) -> Plan:
    """The retirement that is possible now.

    ``positions``: the current positions of undecodable records. ``unprovable``: violation classes whose suspected
    violations in the retired cells are never confirmed. ``absent``: topics that do not exist now.
    """
    cells = judging.cells
    through, now = droppable(judging, progress, retention_us, absent), epoch_of(progress.lookup_us, retention_us)
    decided = _decided(judging, progress)
    removed = (
        (cells["epoch"] <= through)
        & _passed(judging, progress)
        & (decided | _waited(judging, progress, retention_us, absent))
    )
    removed = cells.removable(removed)
    known = None if positions is None else positions.to_json(progress.batch + 1)
    of_cells_left = removed & ~decided if cells.non_cells is None else removed & ~decided & ~cells.non_cells
    undecided = int(np.count_nonzero(of_cells_left))
    undecided += judging.evicted.seen_in(_undecided_epochs(judging, progress, through))
    leaving = replace(judging.sum_of(removed, unprovable), cells_undecided=undecided)
    # Remaining rows are written to their cell's newest epoch, so that all facts of a cell are dropped together. A part
    # of them would look like a loss to the next start.
    epochs = np.where(cells["epoch"] > through, cells["epoch"], now)
    carried = [SCHEMAS[Table.FACTS].empty_table()]
    rests: dict[str, dict[str, Any]] = {}
    late: list[dict[str, Any]] = []
    effect = judging.retirement_effect(removed, through)
    horizon_us = effect.horizon_us
    newest_batch = -1
    kept_of = partial(_kept_in, judging, progress, removed, epochs, through, now)
    rereads = rereads_of(tables) if judging.rules.asks_lateness else {}
    for part in tables.scan(Table.FACTS, None, ds.field("epoch") <= through):
        newest_batch = max(newest_batch, int(ints(part["batch"]).max()))
        if judging.rules.asks_lateness:
            in_force = without_void(part, rereads)
            in_force = in_force if positions is None else positions.unsettled(in_force)
            late += [{**_bounded(row), "epoch": now} for row in lateness_rows(in_force, effect.lateness_from_us)]
        facts = of_cells(part)
        kept_in = kept_of(facts)
        stay = kept_in != ABSENT
        leaving_starts = ints(unowed(facts.filter(pa.array(~stay)))["window_start_us"])
        if len(leaving_starts):
            horizon_us = max(horizon_us or ABSENT, int(leaving_starts.max()) + 1)
        facts = facts.filter(pa.array(stay)).select(SCHEMAS[Table.FACTS].names).cast(SCHEMAS[Table.FACTS])
        # SEMANTICS 2.37: a row of a table holds until another one replaces it.
        rows = part.filter(pc.equal(part["status"], VERSION))
        if judging.cells.kept_rows is not None:
            rows = rows.filter(pa.array(judging.cells.kept_rows.needed(rows)))
        rows = rows.select(SCHEMAS[Table.FACTS].names).cast(SCHEMAS[Table.FACTS])
        place = facts.schema.get_field_index("epoch")
        carried.append(rows.set_column(place, "epoch", pa.repeat(pa.scalar(now, pa.int64()), rows.num_rows)))
        carried.append(facts.set_column(place, "epoch", pa.array(kept_in[stay], pa.int64())))
        for mark in part.filter(pc.equal(part["kind"], Kind.MARK.value)).to_pylist():
            newest = rests.get(mark["mark"])
            is_folded = mark["mark"].startswith((RETIRED, MARK, LOG_RESET))
            if not is_folded and (newest is None or mark["batch"] > newest["batch"]):
                rests[mark["mark"]] = {**mark, "epoch": now}
    known_ids = ids_kept(tables, judging, removed, lambda facts: kept_of(facts) != ABSENT, through, now)
    carried.append(rows_of(Table.FACTS, [*rests.values(), *late, *known_ids]))
    cells["epoch"] = np.where(removed, cells["epoch"], epochs)
    retirements = retired.retirements
    if horizon_us is not None:
        retirements = (*retirements, Retirement(progress.lookup_us, horizon_us))
        retirements = _bounded_retirements(retirements, judging, ~removed)
    new = Retired(
        retired.sums.plus(leaving).plus(effect.evicted), through, retirements, known, judging.sample.to_json()
    )
    return Plan(new, pa.concat_tables(carried), removed, newest_batch)


def _bounded_retirements(retirements: tuple[Retirement, ...], judging: Judging, stay: Bools) -> tuple[Retirement, ...]:
    """The retirements without the one that matters least, if there are more than `MARKS_KEPT`.

    SEMANTICS 7.6. The highest horizon stays: it puts new cells of retired windows out of scope, also after retirements
    of earlier windows. Of the others, the oldest of those goes that alone put the fewest remaining cells out of scope.
    Otherwise a retired id that cumulative results list again would be judged as an id without an event.
    """
    if len(retirements) <= MARKS_KEPT:
        return retirements
    seen_us = judging.cells.begin_seen_us[stay]
    begins_us = (judging.cells.begins_us - judging.rules.oracle.scope_margin_us)[stay]

    def outside(it: Retirement) -> Bools:
        return is_retired_by(seen_us, begins_us, it.at_us, it.horizon_us)

    # One retirement at a time: a table of all retirements would take 50 bytes per cell or more.
    times = np.zeros(len(seen_us), dtype=np.uint16)
    for it in retirements:
        times += outside(it)
    by_one = times == 1
    alone = [int(np.count_nonzero(outside(it) & by_one)) for it in retirements]
    highest = max(range(len(retirements)), key=lambda number: retirements[number].horizon_us)
    spare = min((number for number in range(len(retirements)) if number != highest), key=lambda number: alone[number])
    return (*retirements[:spare], *retirements[spare + 1 :])


def _bounded(row: dict[str, Any]) -> dict[str, Any]:
    """A row of `lateness_rows` with its stretches joined, which limits their number."""
    if row["stretches"] is None:
        return row
    return {**row, "stretches": [one._asdict() for one in joined(Stretch(**one) for one in row["stretches"])]}


def _kept_in(
    judging: Judging, progress: IngestProgress, removed: Bools, epochs: Ints, through: int, now: int, facts: pa.Table
) -> Ints:
    """The epoch to which each of these rows of decoded records is written again, `ABSENT` if the row is dropped.

    The rows of cells that stay, in memory or settled, are kept. The row of an event that owes no contribution may have
    no cell. It is kept if its window has not closed (`_passed`), or if a settled cell that stays has the same window
    start: settled cells do not record whether they have such rows. ``epochs``: those of the cells in memory.

    `plan` moves the horizon past the cells of dropped rows, as it does for retired cells. Otherwise a late or rejected
    record of such a cell that is read afterwards would have an unknown id.
    """
    rows = judging.cells.rows_of_facts(facts)
    here = rows >= 0
    found = judging.evicted.epochs_of(facts, through)
    found[here] = np.where(removed[rows[here]], ABSENT, epochs[rows[here]])
    alone = ~here & (found == ABSENT) & (ints(facts["status"]) == UNOWED)
    if alone.any():
        starts = ints(facts["window_start_us"], 0)[alone]
        ends, passed_us = judging.rules.oracle.ends_us(starts), progress.watermark_us
        is_open = np.full(len(ends), True) if passed_us is None else ends > passed_us
        found[alone] = np.where(is_open, now, judging.evicted.epochs_at(starts, through))
    return found


def commit(
    plan: Plan, tables: StateTables, judging: Judging, progress: IngestProgress, retention_us: int, *, writer: str
) -> IngestProgress:
    """Append the rows of ``plan`` as a batch of ``writer``, then remove its cells from memory and folders from disk.

    Returns the progress after that batch.
    """
    new = plan.retired
    progress = replace(progress, batch=progress.batch + 1, retirements=new.retirements)
    rows = [
        plan.carried,
        frontier_rows(progress, progress.watermark_us, retention_us),
        mark_row(progress, new.to_mark(), retention_us),
    ]
    reach("before_retiring")
    tables.append(pa.concat_tables(rows), Table.FACTS, writer=writer, version=progress.batch)
    reach("after_retiring")
    judging.retire(plan.removed, new.through_epoch, new.sums)
    # Comparisons must not depend on whether a dropped fact is still in memory.
    judging.known.forget(plan.newest_batch + 1)
    drop_folders(tables, new.through_epoch)
    trim_logs(tables.state)
    return progress


def _passed(judging: Judging, progress: IngestProgress) -> Bools:
    """Which cells end at or before the watermark. Other cells stay at any age.

    SEMANTICS 7.5: retiring a cell puts all earlier cells out of scope. Retiring one of the year 3000 would end all
    checking.
    """
    ends = judging.cells["end_us"]
    if progress.watermark_us is None:
        return np.zeros(len(ends), dtype=np.bool_)
    return ends <= progress.watermark_us


def _decided(judging: Judging, progress: IngestProgress) -> Bools:
    """Which cells have a decided class for every contribution.

    SEMANTICS 7.7. For them, outputs are read through the instant at which outstanding contributions are missing, and
    inputs are read far enough to explain every result. Age does not show this: if inputs pause for longer than the
    retention, a cell may close in the batch that would retire it.
    """
    clock, cells = progress.clock(), judging.cells
    through_us = clock.due_through_us(clock.outputs_us, judging.rules.missing_after_us)
    if through_us is None:
        return np.zeros(len(cells), dtype=np.bool_)
    decided: Bools = (due_base(cells) <= through_us) & is_resolved(cells, clock)
    return decided


def _waited(judging: Judging, progress: IngestProgress, retention_us: int, absent: Collection[str]) -> Bools:
    """Which cells are retired undecided (SEMANTICS 7.7): neither an open transaction nor a deleted topic may keep cells
    forever.

    These cells have not changed for `_PATIENCE` retentions. They also became due at least one retention ago: after a
    restart, closing times are known only to within one retention.
    """
    cells, through_us = judging.cells, _read_through_us(progress, absent)
    if through_us is None:
        return np.zeros(len(cells), dtype=np.bool_)
    changed_us = np.maximum(cells["expected_us"], cells["observed_us"])
    is_old = changed_us <= through_us - judging.rules.missing_after_us - _PATIENCE * retention_us
    waited: Bools = is_old & (due_base(cells) <= through_us - judging.rules.missing_after_us - retention_us)
    return waited


def drop_folders(tables: StateTables, through_epoch: int) -> None:
    """Remove dropped epochs from the table, then their folders from the disk. Idempotent."""
    folders = [folder for epoch, folder in _epochs(tables.state) if epoch <= through_epoch]
    if not folders:
        return
    tables.delete_facts(through_epoch)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def trim_logs(state: Path, keep: int = 20) -> None:
    """Remove log entries that a checkpoint has superseded, except the last ``keep`` versions before it.

    Delta itself removes only whole days of entries, and lists the remaining ones at every commit.
    """
    for table in Table:
        log = state / table.value / "_delta_log"
        pointer = log / "_last_checkpoint"
        if not pointer.exists() or log.is_symlink() or log.parent.is_symlink():
            continue
        version = int(json.loads(pointer.read_text())["version"])
        for entry in log.iterdir():
            number = _LOG_ENTRY.fullmatch(entry.name)
            if number is not None and int(number[1]) < version - keep:
                entry.unlink(missing_ok=True)
