"""Compares the core's verdicts with the reference's, cell by cell and step by step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.property.history import Cell
from tests.property.spark_histories import Case, Instant, Opinion
from validator.reconcile.judge import CONTRIBUTIONS, STATES, VIOLATIONS

Row = Mapping[str, Any]

_RESULTS: Final = {
    "correct": "correct",
    "incomplete": "incomplete",
    "excess": "excess",
    "misplaced": "misplaced_results",
    "wrong_value": "wrong_value",
}
"""Class of a result in the reference -> the core's column."""


OF_RESULTS: Final = {"wrong_value"}
"""Violations that the reference judges as classes of results only."""


@dataclass
class Tally:
    """How much was compared, and all differences."""

    histories: int = 0
    steps: int = 0
    exact: int = 0
    provisional: int = 0
    classes: Counter[str] = field(default_factory=Counter)
    """Contributions (and results, with `results:`) of each class, over the cells that were compared exactly."""
    differences: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        seen = ", ".join(f"{name} {count}" for name, count in sorted(self.classes.items()))
        return (
            f"{self.histories} histories, {self.steps} steps: {self.exact} cells compared exactly, "
            f"{self.provisional} provisional\n  {seen}"
        )

    def plus(self, other: Tally) -> Tally:
        """The sum of both."""
        return Tally(
            self.histories + other.histories,
            self.steps + other.steps,
            self.exact + other.exact,
            self.provisional + other.provisional,
            self.classes + other.classes,
            self.differences + other.differences,
        )


def is_decided(case: Case, row: Row, copies: int, distinct: int) -> bool:
    """Whether the core's counts of a cell are final, not provisional.

    Where fingerprints cannot decide, as with collapsed repeats, an unanswered cell counts its events until its ids are
    compared.
    """
    if (case.rules.compares_all or case.oracle.having) and not row["compared"] and copies != distinct:
        return False
    if not row["in_scope"] or observed(row) == 0:
        return True
    return bool(row["agrees"] or (row["compared"] and (row["resolved"] or row["held"])))


def held_agrees(rows: Sequence[Row], held: frozenset[str], opinion: Opinion) -> bool:
    """Whether the core suspects the classes that the reference holds. The core may suspect fewer while violations on
    record differ from the current verdicts. It may suspect losses that the reference does not hold: the core counts no
    losses of a cell before the answers in the cell are resolved."""
    less, more = opinion.held - held, held - opinion.held - OF_RESULTS
    if any(row[name] != row[f"recorded_next_{name}"] for row in rows for name in VIOLATIONS):
        less = frozenset()
    if any(row["state"] == "missing" and not row["agrees"] and not row["resolved"] for row in rows):
        more -= {"missing"}
    return not less and not more


def observed(row: Row) -> int:
    """The number of ids that were placed in a cell by results, late records and rejected records."""
    return int(row["processed_count"] + row["late_count"] + row["rejected_count"])


def compare(case: Case, number: int, rows: Sequence[Row], instant: Instant, opinion: Opinion, tally: Tally) -> None:
    """Compare the core's verdicts after a step with the reference's and add the differences to ``tally``."""
    where = f"seed {case.seed}{' (causal)' if case.causal else ''}, step {number} of {len(case.history.steps)}"

    def differs(what: str, core: object, reference: object) -> None:
        if core != reference:
            tally.differences.append(f"{where}: {what}: the core says {core}, the reference {reference}")

    tally.steps += 1
    held = instant.suspected(rows)
    differs("watermark", instant.clock.watermark_us, opinion.watermark_us)
    differs("held", held_agrees(rows, held, opinion), True)
    cells: dict[Cell, Row] = {(row["window_start_us"], row["key"]): row for row in rows}
    differs("cells", sorted(cells), sorted(opinion.cells))
    whole = True
    for cell, row in cells.items():
        counts, results = opinion.cells.get(cell, (Counter[str](), Counter[str]()))
        core = Counter({name: row[name] for name in CONTRIBUTIONS})
        said = Counter({name: row[column] for name, column in _RESULTS.items()})
        said["unjudged"] = row["results"] - said.total()
        copies, distinct = opinion.copies.get(cell, 0), counts["expected"] + counts["out_of_scope"]
        differs(f"events of {cell}", row["expected_count"], copies)
        if is_decided(case, row, copies, distinct):
            tally.exact += 1
            tally.classes += core + Counter({f"results:{name}": count for name, count in said.items()})
            differs(f"{cell}", +core, +counts)
            differs(f"results of {cell}", +said, +results)
            if row["compared"] or row["agrees"]:
                owed = opinion.unconsumed_overdue.get(cell, 0)
                differs(f"unconsumed for too long of {cell}", row["unconsumed_overdue"], owed)
                tally.classes["unconsumed:overdue"] += owed
            continue
        whole = False
        tally.provisional += 1
        violations = Counter({name: core[name] for name in VIOLATIONS})
        differs(f"violations of the provisional {cell}", +violations, Counter())
        if observed(row):
            # Ids of cells in scope are compared as soon as no unread input can explain them.
            known = row["resolved"] or row["held"]
            differs(f"resolved, yet not compared {cell}", known and row["in_scope"], False)
            if row["in_scope"]:
                differs(f"judged results of the provisional {cell}", +said, +Counter({"unjudged": row["results"]}))
        else:
            # Until ids are compared, the core counts each copy of an event: only the classes agree with the reference.
            differs(f"classes of the uncompared {cell}", set(+core), set(+counts))
            differs(f"events of the uncompared {cell}", core["expected"] + core["out_of_scope"], copies)
    if whole:
        certain = [name for name in VIOLATIONS if name not in held]
        confirmed = {name for name in certain if sum(row[name] for row in cells.values()) > 0} - OF_RESULTS
        differs("confirmed", confirmed, set(opinion.confirmed))


def closing_differences(case: Case, rows: Sequence[Row], again: Sequence[Row]) -> list[str]:
    """The differences between folding all facts at once and folding them batch after batch."""
    left = {(row["window_start_us"], row["key"]): row for row in rows}
    right = {(row["window_start_us"], row["key"]): row for row in again}
    found = []
    for cell in sorted(left.keys() | right.keys()):
        one, other = left.get(cell), right.get(cell)
        if one is None or other is None:
            found.append(f"seed {case.seed}: {cell} is known {'at once' if one is None else 'step by step'} only")
            continue
        # Some agreeing cells are compared as a check. The choice depends on the facts that are in memory.
        # A comparison that an open transaction required has no effect before the cell is resolved.
        waits = not one["resolved"] and not one["held"]
        checked = {"compared"} if waits or (one["agrees"] and other["agrees"]) else set()
        names = {name for name in one if not name.startswith("recorded_")} - checked
        odd = {name: (one[name], other[name]) for name in sorted(names) if one[name] != other[name]}
        if odd:
            found.append(f"seed {case.seed}: {cell} step by step, at once: {odd}")
    return found


def _held(row: Row, name: str, persisted: int) -> bool:
    """Whether a violation may stay on record: the cell's ids are not compared again yet, or the contribution is still
    outstanding."""
    unknown = not row["agrees"] and not (row["compared"] and row["resolved"])
    outstanding = sum(row[state] or 0 for state in STATES) if name == "missing" else 0
    return persisted <= row[f"recorded_{name}"] and (unknown or persisted <= outstanding)


def unpersisted(before: Sequence[Row], now: Sequence[Row]) -> list[str]:
    """The cells whose violations after one step differ from those that the next step has on record."""
    was = {(row["window_start_us"], row["key"]): row for row in before}
    found = []
    for row in now:
        old = was.get((row["window_start_us"], row["key"]))
        for name in VIOLATIONS if old is not None else ():
            judged, persisted = old[name] or 0, row[f"recorded_{name}"]
            if judged != persisted and not _held(old, name, persisted):
                found.append(f"{row['window_start_us']}, {row['key']}: {name} judged {judged}, recorded {persisted}")
    return found
