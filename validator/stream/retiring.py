"""Retention: cells that have not changed for `state.retention`, and whose end is past, leave memory, and their epochs
leave the facts table.

The decision is one commit to the facts table: a mark with the totals of what is retired, and again the rows of dropped
epochs whose cells stay, what all of them say of lateness, ids that have to stay known, and other marks. Killed before
it, nothing happened; killed after it, the next start finds the mark, and drops the folders that are left.
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

from validator.codecs.columns import UNOWED
from validator.core.judging import Judging
from validator.core.totals import Sums
from validator.model.arrays import ABSENT, Bools, Ints, ints
from validator.model.books import Books, Retirement
from validator.model.frontier import read_but_for_open_transactions_us
from validator.reconcile.cells import of_cells, unowed
from validator.reconcile.facts import Kind
from validator.reconcile.judge import EXCESS, VIOLATIONS, due_base, is_resolved
from validator.reconcile.lateness import kept
from validator.state.positions import ANEW, MARK, Positions, Stretch, joined
from validator.state.tables import SCHEMAS, StateTables, Table, rows_of
from validator.stream.committing import epoch_length_us, epoch_of, frontier_rows, mark_row
from validator.stream.failpoints import reach
from validator.stream.ids_kept import ids_kept
from validator.stream.void import rereads_of, without_void

RETIRED: Final = "retired "
"""Prefix of the mark of a retirement."""
_LOG_ENTRY: Final = re.compile(r"([0-9]{20})\.(json|crc|checkpoint\..*parquet|checkpoint\.parquet)")
"""What Delta puts into a log, by version."""
_PATIENCE: Final = 2
"""Retentions after which a cell that did not change leaves undecided."""
MARKS_KEPT: Final = 50
"""Retirements remembered; older ones concern cells that are themselves retired by now."""

Violation = tuple[str, int, str]
"""(class, window's start in microseconds, key)."""


@dataclass(frozen=True)
class Retired:
    """What retention has dropped so far: totals, the newest epoch dropped, and the horizons. ``positions``: those of
    undecodable records as they were known then (`Positions.to_json`); None in a mark of before."""

    sums: Sums = field(default_factory=Sums.empty)
    through_epoch: int = -1
    retirements: tuple[Retirement, ...] = ()
    positions: dict[str, Any] | None = None

    def to_mark(self) -> str:
        """Text for a mark row."""
        kept = {
            "sums": self.sums.to_json(),
            "through_epoch": self.through_epoch,
            "retirements": [[r.at_us, r.horizon_us] for r in self.retirements],
            "positions": self.positions,
        }
        return RETIRED + json.dumps(kept, sort_keys=True)

    @classmethod
    def from_mark(cls, text: str) -> Retired:
        """The value that `to_mark` wrote."""
        kept = json.loads(text.removeprefix(RETIRED))
        return cls(
            Sums.from_json(kept["sums"]),
            int(kept["through_epoch"]),
            tuple(Retirement(at, horizon) for at, horizon in kept["retirements"]),
            kept.get("positions"),
        )

    def with_proven(self, confirmed: Mapping[Violation, int]) -> Retired:
        """The same, once nothing but what is ``confirmed`` of the retired cells' violations counts as proven."""
        sums = self.sums
        proven = dict.fromkeys(VIOLATIONS, 0)
        for (name, _, _), count in confirmed.items():
            proven[name] += count
        proven = {name: min(count, sums.on_record.get(name, 0)) for name, count in proven.items()}
        sums = replace(
            sums,
            on_record=proven,
            unproven={name: max(sums.unproven.get(name, 0), sums.counts[name] - proven[name]) for name in VIOLATIONS},
            cells_in_excess=len({(window, key) for name, window, key in confirmed if name in EXCESS}),
            cells_missing=len({(window, key) for name, window, key in confirmed if name not in EXCESS}),
        )
        return replace(self, sums=sums)

    def known_positions(self) -> Positions:
        """The positions as a new value."""
        return Positions() if self.positions is None else Positions.from_json(self.positions)


@dataclass(frozen=True)
class Plan:
    """What retention does: its mark, the rows to append again, and which of the judged cells leave. ``newest_batch``:
    the last one whose facts are all among these rows, or gone."""

    retired: Retired
    carried: pa.Table
    goes: Bools
    newest_batch: int


def retired_so_far(tables: StateTables) -> Retired:
    """The newest mark of retention in the facts table."""
    newest: tuple[int, str] | None = None
    for part in tables.scan(Table.FACTS, ["kind", "batch", "mark"], ds.field("kind") == Kind.MARK.value):
        for row in part.to_pylist():
            if row["mark"].startswith(RETIRED) and (newest is None or row["batch"] > newest[0]):
                newest = (row["batch"], row["mark"])
    return Retired() if newest is None else Retired.from_mark(newest[1])


def oldest_epoch(state: Path) -> int | None:
    """The oldest epoch that has a folder."""
    return min((epoch for epoch, _ in _epochs(state)), default=None)


def _epochs(state: Path) -> Iterator[tuple[int, Path]]:
    """The epochs and their folders. A link is none of them, and nothing is removed through one."""
    for folder in (state / Table.FACTS.value).glob("epoch=*"):
        number = re.fullmatch("epoch=([0-9]+)", folder.name)
        if number is not None and not folder.is_symlink() and not folder.parent.is_symlink():
            yield int(number[1]), folder


def last_droppable(books: Books, retention_us: int, absent: Collection[str] = ()) -> int:
    """The newest epoch (its start in seconds) all of whose facts are older than ``retention_us``, in read-through
    time: while the sidecar is down, or behind, no fact becomes older. ``absent``: topics that do not exist now."""
    through_us = _read_through_us(books, absent)
    return (
        -1 if through_us is None else epoch_of(through_us - retention_us - epoch_length_us(retention_us), retention_us)
    )


def droppable(judging: Judging, books: Books, retention_us: int, absent: Collection[str] = ()) -> int:
    """As `last_droppable`, and before the first epoch with settled cells that may still be contradicted: what is read
    when an open transaction of outputs ends may be of these. They wait as cells in memory do (`_waited`)."""
    through, through_us = last_droppable(books, retention_us, absent), _read_through_us(books, absent)
    for epoch in _undecided_epochs(judging, books, through):
        patience_us = judging.rules.missing_after_us + _PATIENCE * retention_us
        if through_us is None or judging.settled.due_us(epoch)[epoch] > through_us - patience_us:
            return epoch - 1
    return through


def _undecided_epochs(judging: Judging, books: Books, through_epoch: int) -> list[int]:
    """The epochs up to this one with settled cells whose answers were not read through yet, as `_decided` has it."""
    clock = books.clock()
    decided_us = clock.due_through_us(clock.outputs_us, judging.rules.missing_after_us)
    found = judging.settled.due_us(through_epoch)
    return [epoch for epoch, due_us in found.items() if decided_us is None or due_us > decided_us]


def _read_through_us(books: Books, absent: Collection[str]) -> int | None:
    exist = [frontier for place, frontier in books.frontiers.items() if place.topic not in absent]
    return read_but_for_open_transactions_us(exist, books.lookup_us)


def plan(
    tables: StateTables,
    judging: Judging,
    books: Books,
    retired: Retired,
    retention_us: int,
    positions: Positions | None = None,
    unprovable: frozenset[str] = frozenset(),
    absent: Collection[str] = (),
) -> Plan:
    """What retirement would do now.

    ``positions``: those of undecodable records, as they are known now. ``unprovable``: the classes of violations of
    which what is only suspected in these cells is never to be confirmed. ``absent``: topics that do not exist now.
    """
    cells = judging.cells
    through, now = droppable(judging, books, retention_us, absent), epoch_of(books.lookup_us, retention_us)
    decided = _decided(judging, books)
    goes = (
        (cells["epoch"] <= through)
        & _passed(judging, books)
        & (decided | _waited(judging, books, retention_us, absent))
    )
    goes = cells.leaving(goes)
    known = None if positions is None else positions.to_json(books.batch + 1)
    undecided = int(np.count_nonzero(goes & ~decided))
    undecided += judging.settled.seen_in(_undecided_epochs(judging, books, through))
    leaving = replace(judging.sum_of(goes, unprovable), cells_undecided=undecided)
    # What stays is kept in its cell's newest epoch, so that a cell's facts leave together: a part of them would look
    # like a loss to the next start.
    epochs = np.where(cells["epoch"] > through, cells["epoch"], now)
    carried = [SCHEMAS[Table.FACTS].empty_table()]
    rests: dict[str, dict[str, Any]] = {}
    late: list[dict[str, Any]] = []
    going = judging.retiring(goes, through)
    horizon_us = going.horizon_us
    newest_batch = -1
    kept_of = partial(_kept_in, judging, books, goes, epochs, through, now)
    rereads = rereads_of(tables) if judging.rules.asks_lateness else {}
    for part in tables.scan(Table.FACTS, None, ds.field("epoch") <= through):
        newest_batch = max(newest_batch, int(ints(part["batch"]).max()))
        if judging.rules.asks_lateness:
            said = without_void(part, rereads)
            said = said if positions is None else positions.unsettled(said)
            late += [{**_bounded(row), "epoch": now} for row in kept(said, going.asked_from_us)]
        facts = of_cells(part)
        kept_in = kept_of(facts)
        stay = kept_in != ABSENT
        leaving_starts = ints(unowed(facts.filter(pa.array(~stay)))["window_start_us"])
        if len(leaving_starts):
            horizon_us = max(horizon_us or ABSENT, int(leaving_starts.max()) + 1)
        facts = facts.filter(pa.array(stay)).select(SCHEMAS[Table.FACTS].names).cast(SCHEMAS[Table.FACTS])
        place = facts.schema.get_field_index("epoch")
        carried.append(facts.set_column(place, "epoch", pa.array(kept_in[stay], pa.int64())))
        for mark in part.filter(pc.equal(part["kind"], Kind.MARK.value)).to_pylist():
            newest = rests.get(mark["mark"])
            is_folded = mark["mark"].startswith((RETIRED, MARK, ANEW))
            if not is_folded and (newest is None or mark["batch"] > newest["batch"]):
                rests[mark["mark"]] = {**mark, "epoch": now}
    known_ids = ids_kept(tables, judging, goes, lambda facts: kept_of(facts) != ABSENT, through, now)
    carried.append(rows_of(Table.FACTS, [*rests.values(), *late, *known_ids]))
    cells["epoch"][:] = np.where(goes, cells["epoch"], epochs)
    retirements = retired.retirements
    if horizon_us is not None:
        retirements = (*retirements, Retirement(books.lookup_us, horizon_us))[-MARKS_KEPT:]
    new = Retired(retired.sums.plus(leaving).plus(going.settled), through, retirements, known)
    return Plan(new, pa.concat_tables(carried), goes, newest_batch)


def _bounded(row: dict[str, Any]) -> dict[str, Any]:
    """A row of `kept` with no more stretches than a partition keeps."""
    if row["stretches"] is None:
        return row
    return {**row, "stretches": [one._asdict() for one in joined(Stretch(**one) for one in row["stretches"])]}


def _kept_in(
    judging: Judging, books: Books, goes: Bools, epochs: Ints, through: int, now: int, facts: pa.Table
) -> Ints:
    """The epoch in which each of these rows of decoded records is written again, `ABSENT` where it leaves. What stays
    are the rows of cells that stay, in memory or settled, and of events that owe nothing those that are in no cell
    and whose cell would have to stay (`_passed`), or may be a settled one: it knows no epoch of such rows.
    ``epochs``: of the cells in memory.

    The others leave, and their cells are out of scope as retired ones are: a record that was set aside and comes
    after them would name an id that nobody knows any more.
    """
    rows = judging.cells.rows_of_facts(facts)
    here = rows >= 0
    found = judging.settled.epochs_of(facts, through)
    found[here] = np.where(goes[rows[here]], ABSENT, epochs[rows[here]])
    alone = ~here & (found == ABSENT) & (ints(facts["status"]) == UNOWED)
    if alone.any():
        starts = ints(facts["window_start_us"], 0)[alone]
        ends, passed_us = judging.rules.oracle.ends_us(starts), books.watermark_us
        is_open = np.full(len(ends), True) if passed_us is None else ends > passed_us
        found[alone] = np.where(is_open, now, judging.settled.epochs_at(starts, through))
    return found


def commit(plan: Plan, tables: StateTables, judging: Judging, books: Books, retention_us: int, *, writer: str) -> Books:
    """Append what ``plan`` says as a batch of ``writer``, and let its cells leave memory and its folders the disk. The
    books after it."""
    new = plan.retired
    books = replace(books, batch=books.batch + 1, retirements=new.retirements)
    rows = [
        plan.carried,
        frontier_rows(books, books.watermark_us, retention_us),
        mark_row(books, new.to_mark(), retention_us),
    ]
    reach("before_retiring")
    tables.append(pa.concat_tables(rows), Table.FACTS, writer=writer, version=books.batch)
    reach("after_retiring")
    judging.retire(plan.goes, new.through_epoch, new.sums)
    # What is known does not depend on whether it is still in memory.
    judging.known.forget(plan.newest_batch + 1)
    drop_folders(tables, new.through_epoch)
    trim_logs(tables.state)
    return books


def _passed(judging: Judging, books: Books) -> Bools:
    """The cells whose end the watermark has passed. The others stay, whatever their age: the horizon that a retired
    cell leaves behind hides all that comes before it, and an event of the year 3000 would blind us."""
    ends = judging.cells["end_us"]
    if books.watermark_us is None:
        return np.zeros(len(ends), dtype=np.bool_)
    return ends <= books.watermark_us


def _decided(judging: Judging, books: Books) -> Bools:
    """Which cells have a decided class for every contribution: outputs were read through the instant at which what is
    outstanding is missing, and inputs through the one that explains every answer.

    A cell can close in the batch that would retire it, where the inputs paused for longer than the retention.
    """
    clock, cells = books.clock(), judging.cells
    through_us = clock.due_through_us(clock.outputs_us, judging.rules.missing_after_us)
    if through_us is None:
        return np.zeros(len(cells), dtype=np.bool_)
    decided: Bools = (due_base(cells) <= through_us) & is_resolved(cells, clock)
    return decided


def _waited(judging: Judging, books: Books, retention_us: int, absent: Collection[str]) -> Bools:
    """Which cells leave undecided: neither a transaction that stays open nor a topic that was deleted keeps cells
    forever.

    They have not changed for `_PATIENCE` retentions. Those that closed late wait for a retention since: a restart knows
    a closing time no better than that.
    """
    cells, through_us = judging.cells, _read_through_us(books, absent)
    if through_us is None:
        return np.zeros(len(cells), dtype=np.bool_)
    changed_us = np.maximum(cells["expected_us"], cells["observed_us"])
    is_old = changed_us <= through_us - judging.rules.missing_after_us - _PATIENCE * retention_us
    waited: Bools = is_old & (due_base(cells) <= through_us - judging.rules.missing_after_us - retention_us)
    return waited


def drop_folders(tables: StateTables, through_epoch: int) -> None:
    """Take dropped epochs out of the table, then their folders off the disk; again and again does no harm."""
    folders = [folder for epoch, folder in _epochs(tables.state) if epoch <= through_epoch]
    if not folders:
        return
    tables.delete_facts(through_epoch)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def trim_logs(state: Path, keep: int = 20) -> None:
    """Remove log entries that a checkpoint has made superfluous. Delta itself removes whole days only, and
    lists what is left at every commit."""
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
