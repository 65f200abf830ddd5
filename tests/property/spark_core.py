"""The core over many histories: the stage of a batch makes the facts of all at once. The sidecar's own `Judging` judges
each of them step by step as it does live, and again at once from the tables of a state folder, as after a restart.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa

from tests.property import history_facts
from tests.property.spark_histories import Case, Instant, instants
from validator.model.books import PartitionSummary
from validator.model.frontier import PartitionId
from validator.reconcile.arrays import ABSENT
from validator.reconcile.judge import CONTRIBUTIONS, RESULTS, STATES, VIOLATIONS
from validator.state.known_facts import KnownFacts
from validator.state.tables import StateTables, Table
from validator.stream.committing import frontier_rows, hole_rows, mark_row, summaries
from validator.stream.judging import Judging, Sums
from validator.stream.recording import Moment, record_verdicts, record_violations
from validator.stream.recovery import Recovered, recover, restore_record
from validator.stream.run_record import RunRecord

Row = dict[str, Any]
RETENTION_US: Final = 3_600_000_000
_OF_CELL: Final = ("expected_count", "processed_count", "late_count", "rejected_count", "results")
_TIMES: Final = ("observed_us", "closed_us", "rest_us")


class Judged:
    """Cases, their facts by step, and what the time model knows after each."""

    def __init__(self, cases: Sequence[Case], folder: Path) -> None:
        self.cases = cases
        self.folder = folder
        self.facts = history_facts.facts(cases)
        self.instants: list[list[Instant]] = [
            instants(case, _summed(steps)) for case, steps in zip(cases, self.facts, strict=True)
        ]
        self.facts = [self._with_holes(number) for number in range(len(cases))]

    def _with_holes(self, number: int) -> list[pa.Table]:
        """The facts of a case with those of what was gone, as a batch commits them."""
        case, found = self.cases[number], []
        for step, (facts, instant) in enumerate(zip(self.facts[number], self.instants[number], strict=True)):
            gone = hole_rows(instant.books, instant.holes, history_facts.reach_at(case, step), RETENTION_US)
            found.append(pa.concat_tables([facts, gone]) if instant.holes else facts)
        return found

    def live(self, number: int) -> Iterator[list[Row]]:
        """The cells of a case after each step, judged batch after batch."""
        judging = self._judging(number, StateTables(self.folder / "nothing"), 0)
        for facts, instant in zip(self.facts[number], self.instants[number], strict=True):
            judging.absorb(facts if facts.num_rows else None, instant.clock, instant.places)
            yield rows_of(judging)

    def restarted(self, number: int, upto: int) -> tuple[list[Row], list[Row]]:
        """The cells of a case after step ``upto``: of the process that wrote the tables of a state, and of another
        that found them there."""
        state = self.folder / f"state-{number}"
        for judging, _ in self.recorded(number, StateTables(state), last=upto):
            left = rows_of(judging)
        found = recover(StateTables(state), self.instants[number][upto].books.rules, self.cases[number].rules.window_us)
        return left, self._judged_again(number, upto, found)

    def recorded(
        self,
        number: int,
        tables: StateTables,
        *,
        last: int | None = None,
        suspected: Mapping[int, frozenset[str]] = MappingProxyType({}),
        killed_after: Collection[int] = (),
    ) -> Iterator[tuple[Judging, RunRecord]]:
        """The cells of a case and the totals of its run after each step (up to ``last``), as ``tables`` are written.

        ``suspected``: step -> classes of violations that are suspected besides. After the steps ``killed_after``
        another process goes on with what the tables say.
        """
        case, record = self.cases[number], RunRecord()
        judging = self._judging(number, tables, 0)
        watermark_us: int | None = None
        pairs = list(zip(self.facts[number], self.instants[number], strict=True))[: None if last is None else last + 1]
        for step, (facts, instant) in enumerate(pairs):
            books = instant.books
            rows = [facts, frontier_rows(books, watermark_us, RETENTION_US)]
            if case.rest(step).value != "none":
                rows.append(mark_row(books, f"rest_{case.rest(step).value}", RETENTION_US))
            tables.append(pa.concat_tables(rows), Table.FACTS, writer="generation-1", version=step)
            watermark_us = books.watermark_us
            besides = suspected.get(step, frozenset())

            def suspects(sums: Sums, instant: Instant = instant, besides: frozenset[str] = besides) -> frozenset[str]:
                return instant.suspects(sums) | besides

            judging.absorb(facts if facts.num_rows else None, instant.clock, instant.places, suspects=suspects)
            moment = Moment(tables, "generation-1", step, books.lookup_us)
            recorded = record_violations(judging, (), moment, has_broker_time=False)
            if recorded is not None:
                record.violations_recorded(recorded, books.lookup_us)
            if judging.sums.changed:
                record_verdicts(judging, moment)
            yield judging, record
            if step in killed_after:
                judging, record = self._judging(number, tables, step + 1), RunRecord()
                judging.cells = recover(tables, books.rules, case.rules.window_us).cells
                restore_record(tables, record)

    def _judged_again(self, number: int, upto: int, found: Recovered) -> list[Row]:
        again = self._judging(number, StateTables(self.folder / f"state-{number}"), upto + 1)
        again.cells = found.cells
        instant = self.instants[number][upto]
        again.absorb(None, instant.clock, instant.places)
        return rows_of(again)

    def _judging(self, number: int, tables: StateTables, first_batch: int) -> Judging:
        return Judging(KnownFacts(tables, first_batch=first_batch), self.cases[number].rules)


def rows_of(judging: Judging) -> list[Row]:
    """The judged cells, one row each."""
    judged, cells = judging.judged, judging.cells
    assert judged is not None
    columns = {
        **{name: cells[name].tolist() for name in _OF_CELL},
        **{name: [None if value == ABSENT else value for value in cells[name].tolist()] for name in _TIMES},
        **{f"told_{name}": cells[f"told_{name}"].tolist() for name in VIOLATIONS},
        **{f"told_next_{name}": judged.on_record[name].tolist() for name in VIOLATIONS},
        **{name: judged.counts[name].tolist() for name in (*CONTRIBUTIONS, *RESULTS)},
        **{
            name: getattr(judged, name).tolist()
            for name in (
                "agrees",
                "compared",
                "resolved",
                "held",
                "unconsumed_overdue",
                "in_scope",
                "settled",
                "version",
            )
        },
        "state": [STATES[number] for number in judged.state.tolist()],
        "window_start_us": cells["window_start_us"].tolist(),
        "key": cells.keys().to_pylist(),
    }
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _summed(steps: Sequence[pa.Table]) -> dict[tuple[int, PartitionId], PartitionSummary]:
    """(step, partition) -> what the facts say of it."""
    return {(step, summary.place): summary for step, facts in enumerate(steps) for summary in summaries(facts)}
