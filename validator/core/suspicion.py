"""Which violation classes are only suspected, because unreadable records or a wrong configuration may explain them.

Pure rules on committed counts (SEMANTICS 4.13 to 4.18 and 4.23).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from validator.core import split_sessions
from validator.core.doubts import Fits, Row, Sign, explained_by, outputs_of, rows, withdrawn_by
from validator.core.totals import CellTotals
from validator.model.classes import ViolationClass
from validator.model.frontier import Frontier
from validator.model.progress import IngestProgress
from validator.reconcile.judge import EXCESS, INCORRECT, VIOLATIONS

_OUTSTANDING: Final = ("pending", "overdue", "blocked", "unconsumed", "dropped_late", "missing")


@dataclass(frozen=True)
class Suspicion:
    """The rules for one configuration.

    ``explained_by_one``: number of contributions that one hidden record may explain; None: all of a cell, as in a join,
    where the partner of an event may be in unreadable input; then ``cells_each`` is the number of cells of one record.
    ``hidden_inputs_lose``: whether a hidden input record
    may explain missing contributions (in a session it may separate or join events). ``copies_explain``: whether an
    unreadable copy may explain a duplicate. ``absent_sides``: the sides of which a configured topic does not exist.
    ``shared_outputs``: the output topics with results of other services, too. ``missing_after_us``: as configured.
    """

    explained_by_one: int | None = 1
    hidden_inputs_lose: bool = False
    copies_explain: bool = True
    absent_sides: frozenset[str] = frozenset()
    shared_outputs: frozenset[str] = frozenset()
    cells_each: int = 1
    missing_after_us: int = 0

    def hidden_inputs(self, progress: IngestProgress) -> float:
        """Return the largest possible number of input records that could not be read. It is infinite if a topic does
        not exist (its name may be misspelt), or was deleted and recreated."""
        # SEMANTICS 4.7, 4.9: how many records were never read is not known.
        if "input" in self.absent_sides or progress.inputs_replaced:
            return math.inf
        return progress.hidden("input") + progress.expired_of("input") + progress.compacted_of("input")

    def hidden_answers(self, progress: IngestProgress) -> float:
        """Return the number of late and rejected records that could not be decoded. It is infinite if a topic does not
        exist: the name of a topic of answers may be misspelt, and an input topic may have been deleted before the
        engine had read it."""
        # SEMANTICS 4.9: an answer topic may be misspelt, and an input deleted before the engine had read it.
        if self.absent_sides:
            return math.inf
        return progress.hidden("late") + progress.hidden("rejected")

    def rows_are_hidden(self, progress: IngestProgress) -> bool:
        """Return whether a row of a table may be one that was never read."""
        # SEMANTICS 4.9: the name of its topic may be misspelt.
        return progress.rows_are_hidden or "table" in self.absent_sides

    def by_hidden_records(self, progress: IngestProgress, sums: CellTotals, *, misnamed: int = 0) -> frozenset[str]:
        """Return the classes of cell violations that hidden records may explain.

        A hidden input record explains at most ``explained_by_one`` contributions. Excess beyond that is proven
        (SEMANTICS 4.13). A hidden late or rejected record explains at most the same number of missing
        contributions. After a log was cut back, nothing is confirmed: the sidecar has counted the lost records and
        their replacements, and the pipeline may have only the replacements. ``misnamed``: number of late and
        rejected records whose ids may name other events.
        """
        # SEMANTICS 4.8: records that were counted may not be those of the pipeline.
        if progress.cut_back:
            return frozenset(VIOLATIONS)
        each = self.explained_by_one or self.cells_each
        return self._by_numbers(
            sums,
            self.hidden_inputs(progress) * each,
            self.hidden_answers(progress) * each,
            misnamed,
            rows_are_hidden=self.rows_are_hidden(progress),
        )

    def _by_numbers(
        self, sums: CellTotals, hidden: float, answers: float, misnamed: int, *, rows_are_hidden: bool = False
    ) -> frozenset[str]:
        """Return the classes that these numbers of hidden inputs, hidden answers and misnamed records may explain."""
        classes = set()
        by_cell = self.explained_by_one is None
        # SEMANTICS 4.14: if the sidecar misreads a format, it knows no id of it, however many records carry one. In
        # joins and with sessions such a record may also make any id of a cell right.
        if hidden:
            classes |= {"unknown_id", "misplaced"} if by_cell else {"unknown_id"}
        # SEMANTICS 4.23: the event that a misnamed record answers stays outstanding, so there are no more than those.
        explained = hidden + min(misnamed, sum(sums.counts.get(name, 0) for name in _OUTSTANDING))
        if explained:
            # SEMANTICS 4.15: where repeats are dropped, a hidden copy raises no `e`.
            explicable = {name for name in EXCESS if name != "duplicate" or self.copies_explain}
            excess = sums.cells_in_excess if by_cell else sum(sums.on_record.get(name, 0) for name in explicable)
            # SEMANTICS 4.13: more excess than hidden records can explain is proven, since no correct engine caused all
            # of it.
            if excess <= explained:
                classes |= explicable
            # SEMANTICS 4.14: an at-least-once engine may repeat any answer, so an id counts once per cell, however
            # often it occurs. Otherwise tolerated repeats would use up the records that explain a misplaced id.
            if sums.incorrect_ids <= explained:
                classes.update(INCORRECT)
        if (hidden or answers or rows_are_hidden) and sums.on_record.get("wrong_value"):
            # SEMANTICS 2.29: a hidden event or set-aside record may have any value, and so may a hidden row (2.37).
            classes.add("wrong_value")
        answers += misnamed + (hidden if self.hidden_inputs_lose else 0)
        missing = sums.cells_missing if by_cell else sums.on_record.get("missing", 0)
        # SEMANTICS 4.14: the answers to as many contributions may be among the hidden records. 2.37: a hidden row may
        # have removed any number of rows.
        if (answers and missing <= answers) or (rows_are_hidden and self.hidden_inputs_lose):
            classes.add("missing")
        return frozenset(classes)

    def suspected(self, progress: IngestProgress, sums: CellTotals) -> frozenset[str]:
        """Return the violation classes of which nothing more is confirmed."""
        # SEMANTICS 2.20: what hidden records or a wrong configuration may explain.
        classes = self._by_records(progress, sums) | self._by_configuration(progress, sums)
        if not sums.on_record.get("wrong_value"):
            classes -= {"wrong_value"}
        return classes | {"undecodable"} if unproven_outputs(progress, sums) else classes

    def withdrawn(self, progress: IngestProgress, sums: CellTotals) -> frozenset[str]:
        """Return the violation classes whose confirmed violations are retracted.

        They are retracted if the configuration fits (nearly) no record, or if it fits nearly no late or rejected record
        and the late and rejected records are enough to explain the class.
        """
        found = rows(progress, sums)
        of = (sums.set_aside[row.side] for row in _set_aside(found) if row.withdraws is not Fits.SOME)
        misnamed = sum(it.read - it.matched for it in of)
        by_set_aside = self._by_numbers(sums, 0, 0, misnamed) if misnamed else frozenset()
        classes = withdrawn_by(progress, sums, found) | by_set_aside | by_fit(sums) | self._by_condition(progress)
        classes |= split_sessions.withdrawn(sums)
        classes |= {"wrong_value"} if values_in_doubt(sums) else set()
        classes |= _by_table(sums)
        # SEMANTICS 4.24: a class that nothing may explain stays confirmed. Each retracted class is also suspected in
        # the same batch, so it is not confirmed again at once.
        return classes & self.suspected(progress, sums) if classes else classes

    def unprovable_if_retired(self, progress: IngestProgress, sums: CellTotals) -> frozenset[str]:
        """Return the violation classes whose suspected violations stay suspected in cells that are retired now.

        A finite number of hidden records explains a finite number of violations, also of retired cells. Any other doubt
        may end when more records are read. These records may explain violations of retired cells, but the verdicts of
        retired cells do not change any more.
        """
        # SEMANTICS 4.18: a number of hidden records also bounds the violations of retired cells. These doubts do not.
        classes = set(self._by_configuration(progress, sums))
        if misnamed(progress, sums):
            classes |= self._by_records(progress, sums)
        if math.isinf(self.hidden_inputs(progress)):
            classes |= {*EXCESS, "wrong_value"}
        if self.rows_are_hidden(progress):
            classes |= {"wrong_value", "missing"} if self.hidden_inputs_lose else {"wrong_value"}
        if math.isinf(self.hidden_answers(progress)) or (
            self.hidden_inputs_lose and math.isinf(self.hidden_inputs(progress))
        ):
            classes.add(ViolationClass.MISSING.value)
        return frozenset(VIOLATIONS) if progress.cut_back else frozenset(classes)

    def _by_records(self, progress: IngestProgress, sums: CellTotals) -> frozenset[str]:
        """As `by_hidden_records`, with the misnamed records.

        While (nearly) no late record has the id of an event of its cell, each late record may answer another event than
        its id names. The same holds for rejected records.
        """
        return self.by_hidden_records(progress, sums, misnamed=sum(misnamed(progress, sums).values()))

    def _by_configuration(self, progress: IngestProgress, sums: CellTotals) -> frozenset[str]:
        found = (explained_by(row, copies_explain=self.copies_explain) for row in rows(progress, sums))
        of_values = {"wrong_value"} if values_in_doubt(sums) else set[str]()
        others = (split_sessions.suspected(sums), of_values, self._by_condition(progress), _by_table(sums))
        # SEMANTICS 4.6: compaction may have removed a change that results still show.
        superseded = frozenset(VIOLATIONS if progress.supersedes(self.missing_after_us) else ())
        return by_fit(sums).union(*others, *found, superseded)

    def _by_condition(self, progress: IngestProgress) -> frozenset[str]:
        # SEMANTICS 4.22: the condition may be wrong.
        return frozenset({"missing"} if without_results(progress, self.shared_outputs) else ())


def without_results(progress: IngestProgress, topics: Iterable[str]) -> list[str]:
    """Return the topics of which records were read, but none that is a result or does not decode."""
    found = {topic: [it for at, it in progress.frontiers.items() if at.topic == topic] for topic in sorted(topics)}
    return [topic for topic, of in found.items() if of and _are_ignored(of)]


def _are_ignored(frontiers: Iterable[Frontier]) -> bool:
    found = list(frontiers)
    return 0 < sum(it.records for it in found) == sum(it.tombstones for it in found)


def values_in_doubt(sums: CellTotals) -> bool:
    """Return whether values are wrong in most cells of which all events were answered (SEMANTICS 2.29)."""
    return sums.results.get("wrong_value", 0) > sums.results.get("correct", 0)


def _by_table(sums: CellTotals) -> frozenset[str]:
    # SEMANTICS 2.35: the log of a table lacks changes, and an engine need not count below 0 as the sidecar does.
    # The order of rows on several partitions is unknown.
    return frozenset(VIOLATIONS) if sums.overdrawn or sums.rows_unordered else frozenset()


def by_fit(sums: CellTotals) -> frozenset[str]:
    """Return the violation classes that a systematic mismatch, or another emission, may explain."""
    if sums.fit is None:
        return frozenset()
    # SEMANTICS 4.28, 4.29: a wrong parameter of the oracle explains every contribution, another emission only repeats.
    found = frozenset(VIOLATIONS) if sums.fit.mismatch is not None else frozenset()
    return found | {ViolationClass.DUPLICATE.value} if sums.fit.growth is not None else found


def _set_aside(found: Iterable[Row]) -> Iterator[Row]:
    return (row for row in found if row.sign is Sign.MATCHES and row.side in ("late", "rejected"))


def misnamed(progress: IngestProgress, sums: CellTotals) -> dict[str, int]:
    """Return side (late, rejected) -> number of ids in its records that are not proven to be of an event of the
    record's cell. A side is included only if (nearly) all of its ids are unproven."""
    found = _set_aside(rows(progress, sums))
    return {row.side: sums.set_aside[row.side].unmatched_aside for row in found if row.suspects is not Fits.SOME}


def _outputs(found: Iterable[Row], *signs: Sign) -> frozenset[str]:
    return frozenset(row.topic for row in found if row.side == "output" and row.sign in signs and row.topic is not None)


def withdrawn_outputs(progress: IngestProgress, sums: CellTotals, withdrawn: frozenset[str]) -> frozenset[str]:
    """Return the output topics of which no undecodable result is confirmed any more. ``withdrawn``: the violation
    classes of which no violation is confirmed any more."""
    # SEMANTICS 4.24: a wrong field may be absent in some records, so undecodable results of a doubted topic prove
    # nothing.
    if "undecodable" in withdrawn:
        return outputs_of(progress)
    found = (row for row in rows(progress, sums) if row.withdraws is not Fits.SOME)
    return _outputs(found, Sign.MATCHES, Sign.LISTS)


def unproven_outputs(progress: IngestProgress, sums: CellTotals) -> frozenset[str]:
    """Return the output topics of which no more undecodable results are confirmed."""
    found = [row for row in rows(progress, sums) if row.suspects is not Fits.SOME]
    # SEMANTICS 4.20, 4.21: these doubts concern every result.
    of_all = any(not row.side or (row.sign is Sign.DECODES and row.suspects is Fits.NEARLY_NONE) for row in found)
    return outputs_of(progress) if progress.cut_back or of_all else _outputs(found, *Sign)
