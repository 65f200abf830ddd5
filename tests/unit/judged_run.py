"""A run without Kafka and Spark: the code of a batch judges facts and records the changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa

from tests.unit.read_through import Suspected, read_through
from tests.unit.reconcile_rows import MINUTE_US, fact, facts
from validator.core.judging import Judging
from validator.core.unread import unread_rows
from validator.model.arrays import ABSENT
from validator.model.frontier import Frontier, PartitionId
from validator.model.violation import Violation
from validator.oracles.tumbling_window import TumblingWindow
from validator.reconcile.judge import VIOLATIONS, Rules
from validator.state.acknowledgements import AcknowledgementJournal
from validator.state.known_facts import KnownFacts
from validator.state.tables import StateTables
from validator.stream.recording import CommitContext, record
from validator.stream.recovery import _restore_recorded, follow_acknowledged, restore_record, unread_of
from validator.stream.reporting import _unacknowledged
from validator.stream.run_record import RunRecord

NO_FRONTIERS: Final[Mapping[PartitionId, Frontier]] = MappingProxyType({})
RULES = Rules(oracle=TumblingWindow.of(MINUTE_US), overdue_after_us=1, missing_after_us=2)


class JudgedRun:
    """Runs batches on the state folder ``state``. An instant is also the number of its batch."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.tables = StateTables(state)
        self.record = RunRecord()
        self.judging = Judging(KnownFacts(self.tables, first_batch=0), RULES)
        self._journal = AcknowledgementJournal(state)
        self._progress = read_through(0)

    def after(
        self,
        at_us: int,
        *rows: dict[str, Any],
        suspected: frozenset[str] = frozenset(),
        outputs_us: int | None = None,
    ) -> None:
        """Run a batch at ``at_us`` that reads all topics through (answers until ``outputs_us``)."""
        self.take(at_us, facts(*rows) if rows else None, suspected=suspected, outputs_us=outputs_us)

    def take(
        self,
        at_us: int,
        table: pa.Table | None,
        *,
        suspected: frozenset[str] = frozenset(),
        outputs_us: int | None = None,
        frontiers: Mapping[PartitionId, Frontier] = NO_FRONTIERS,
    ) -> None:
        """As `after`, with the batch's facts as a table. ``frontiers``: of some partitions."""
        progress = read_through(at_us, outputs_us=outputs_us)
        self._progress = replace(progress, frontiers={**progress.frontiers, **frontiers})
        unread = None if table is None else unread_rows(table)
        effects = self.judging.step(table, self._progress, Suspected(classes=suspected), unread=unread)
        context = CommitContext(self.tables, "test", at_us, at_us)
        record(effects, context, self.record, lambda: at_us)
        self.published()

    def published(self) -> None:
        """The step of a batch before publishing."""
        follow_acknowledged(self.tables, self.record, self._journal.read())

    def restarted(self, frontiers: Mapping[PartitionId, Frontier] = NO_FRONTIERS) -> None:
        """Restore the run's record and each cell's violations on record from the tables, as a start does."""
        self._progress = replace(self._progress, frontiers={**self._progress.frontiers, **frontiers})
        self.record = RunRecord()
        restore_record(self.tables, self.record)
        cells = self.judging.cells
        for name in VIOLATIONS:
            for part, value in (("recorded", 0), ("confirmed", 0), ("began", ABSENT)):
                cells.put(f"{part}_{name}", slice(None), value)
        unread = unread_of(self.tables, self._progress, self.judging.unread.unexamined)
        self.judging = Judging(self.judging.known, RULES, cells=cells, unread=unread)
        _restore_recorded(self.tables, cells)
        self.judging.judge_recovered(self._progress)
        self.published()

    def open(self, name: str) -> int:
        """Contributions in confirmed violations of class ``name`` that are not acknowledged."""
        return _unacknowledged(self.judging.sums.counts, self.record.acknowledged.left)[name]

    def violation(self, key: str) -> str:
        """The id of the violation of the cell with this key."""
        [found] = [entry.id for entry in self.record.latest.values() if entry.key == key]
        return found


def lost(run: JudgedRun, at_us: int, key: str, *ids: int) -> None:
    """Run two batches, after which these events of a cell are missing."""
    run.after(at_us, fact("input", ids, batch=at_us, lookup_us=at_us, key=key))
    run.after(at_us + 5)


class Cell:
    """One cell that receives batch after batch."""

    def __init__(self, folder: Path) -> None:
        self.judging = Judging(KnownFacts(StateTables(folder), first_batch=0), RULES)

    def absorb(
        self, at_us: int, *rows: dict[str, Any], inputs_us: int | None = None, outputs_us: int | None = None
    ) -> list[Violation]:
        """The changes of violations in a batch at ``at_us``, dated by broker time. ``inputs_us``, ``outputs_us``: how
        far inputs and outputs are read through."""
        progress = read_through(at_us, inputs_us=inputs_us, outputs_us=outputs_us)
        batch_facts = facts(*rows) if rows else None
        return self.judging.step(batch_facts, progress, Suspected()).violations

    def after(
        self, at_us: int, *rows: dict[str, Any], inputs_us: int | None = None, outputs_us: int | None = None
    ) -> dict[str, tuple[int, int]]:
        """Class -> (confirmed, retracted) in such a batch."""
        moved = self.absorb(at_us, *rows, inputs_us=inputs_us, outputs_us=outputs_us)
        return {one.violation_class: (one.confirmed, one.retracted) for one in moved}
