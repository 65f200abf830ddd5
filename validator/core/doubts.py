"""When the configuration is in doubt, not the pipeline (SEMANTICS 4.19 to 4.26). Pure rules on counts.

One rule: of a topic, of a side, or of all results, nothing fits or nearly nothing. `rows` has the counts of each case,
`_SUSPECTED` and `_WITHDRAWN` what follows. To suspect, unproven counts as not fitting; to withdraw what was confirmed,
it counts as fitting. The rules do not depend on batch boundaries.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from validator.core.totals import CellTotals, TopicCounts
from validator.model.progress import IngestProgress

NEARLY_NONE: Final = 100
"""Fewer than 1 in this many is nearly none (SEMANTICS 4.19). A wrong field can be present in a few records by chance.
An engine that writes more than 99 unreadable records for each readable one cannot be distinguished from that."""
_RESULTS: Final = frozenset({"undecodable", "missing"})
_EXCESS: Final = frozenset({"misplaced", "unknown_id"})
_CONTRIBUTIONS: Final = _EXCESS | {"missing", "duplicate", "wrong_value"}
_ALL: Final = _CONTRIBUTIONS | {"undecodable"}
_VALUES: Final = frozenset({"wrong_value"})
_NOTHING: Final[frozenset[str]] = frozenset()


class Fits(Enum):
    """How much fits."""

    SOME = "some"
    NEARLY_NONE = "nearly none"
    NONE = "none"


class Sign(Enum):
    """What is counted: records that decode, results that list ids, or contributions that match."""

    DECODES = "decodes"
    LISTS = "lists"
    MATCHES = "matches"


def _degree(fits: int, read: int, beside: int) -> Fits:
    """``read``: what could fit. ``beside``: what does not fit although it could (SEMANTICS 4.19: no minimum, so the cut
    into batches does not matter)."""
    if max(1, fits) * NEARLY_NONE < beside:
        return Fits.NEARLY_NONE
    return Fits.NONE if fits == 0 < read else Fits.SOME


@dataclass(frozen=True)
class Row:
    """What fits of a topic, of a side (``topic`` is None), or of all results (``side`` is empty).

    ``suspects``, ``withdraws``: how much fits, with unproven contributions as not fitting, and as fitting. ``loses``:
    whether events of this input would be missing.
    """

    sign: Sign
    side: str
    topic: str | None
    suspects: Fits
    withdraws: Fits
    loses: bool = False


_SUSPECTED: Final = {
    # SEMANTICS 4.20: any undecodable result may be the answer, any undecodable event explain excess; if a few decode,
    # those may be nonsense. SEMANTICS 4.14 is enough for late and rejected records.
    (Sign.DECODES, "output"): (_RESULTS, _ALL),
    (Sign.DECODES, "input"): (_EXCESS, _ALL),
    (Sign.DECODES, "table"): (_VALUES, _VALUES),
    (Sign.DECODES, "late"): (_NOTHING, _ALL),
    (Sign.DECODES, "rejected"): (_NOTHING, _ALL),
    (Sign.LISTS, "output"): (frozenset({"missing"}), _NOTHING),
    (Sign.MATCHES, ""): (_ALL, _ALL),
    (Sign.MATCHES, "input"): (_EXCESS, _EXCESS),
    # SEMANTICS 4.23: its ids may be those of other events and cells, also of events that other outputs answer.
    (Sign.MATCHES, "output"): (_CONTRIBUTIONS, _CONTRIBUTIONS),
}
"""Sign and side -> suspected classes if nothing fits, and if nearly nothing does."""
_WITHDRAWN: Final = {
    **{(Sign.DECODES, side): (_NOTHING, _ALL) for side in ("output", "input", "late", "rejected")},
    (Sign.DECODES, "table"): (_NOTHING, _VALUES),
    (Sign.LISTS, "output"): (frozenset({"missing"}), _NOTHING),
    (Sign.MATCHES, ""): (_ALL, _ALL),
    (Sign.MATCHES, "input"): (_NOTHING, _CONTRIBUTIONS),
    (Sign.MATCHES, "output"): (_NOTHING, _CONTRIBUTIONS),
}
"""Sign and side -> classes whose confirmed violations are retracted if nothing fits, and if nearly nothing does."""


@dataclass(frozen=True)
class TopicInDoubt:
    """A topic of which no record, or nearly none, has decoded since the state began.

    ``read``: records without tombstones and without settled records. ``undecodable``: those of them that did not
    decode.
    """

    side: str
    topic: str
    read: int
    undecodable: int

    @property
    def decoded(self) -> int:
        """Number of records that decoded."""
        return self.read - self.undecodable

    @property
    def fits(self) -> Fits:
        """How many records decode."""
        if not self.decoded:
            return Fits.NONE if self.undecodable else Fits.SOME
        return _degree(self.decoded, self.read, self.read if self.undecodable else 0)


def topics_in_doubt(progress: IngestProgress) -> tuple[TopicInDoubt, ...]:
    """Return the topics of which (nearly) no record decodes, by name."""
    sums: dict[tuple[str, str], tuple[int, int]] = {}
    for partition, frontier in progress.frontiers.items():
        accepted = progress.accepted_records.get(partition, 0)
        read, undecodable = sums.get((partition.topic, frontier.side), (0, 0))
        read += frontier.records - frontier.tombstones - accepted
        sums[partition.topic, frontier.side] = read, undecodable + frontier.undecodable - accepted
    found = (TopicInDoubt(side, topic, *counts) for (topic, side), counts in sorted(sums.items()))
    return tuple(one for one in found if one.fits is not Fits.SOME)


def decoded_results(progress: IngestProgress, topic: str | None = None) -> int:
    """Return the number of results read so far that decoded: of one topic, or of all outputs."""
    return sum(
        it.records - it.undecodable - it.tombstones
        for partition, it in progress.frontiers.items()
        if it.side == "output" and topic in (None, partition.topic)
    )


def unmatched(sums: CellTotals) -> int:
    """Return the number of contributions in answers that no input explains so far."""
    return _wrong(sums) + sums.counts["unresolved"]


def _wrong(sums: CellTotals) -> int:
    return sums.counts["misplaced"] + sums.counts["unknown_id"]


def rows(progress: IngestProgress, sums: CellTotals) -> list[Row]:
    """Return a row for each topic, each side and all results of which something may not fit."""
    found = [Row(Sign.DECODES, one.side, one.topic, one.fits, one.fits) for one in topics_in_doubt(progress)]
    found += [Row(Sign.LISTS, "output", topic, Fits.NONE, Fits.NONE) for topic in _without_ids(progress, sums)]
    expected, processed, carried = sums.counts["expected"], sums.counts["processed"], sums.carried
    beside, wrong = min(unmatched(sums), carried), min(_wrong(sums), carried)
    whole = Row(
        Sign.MATCHES,
        "",
        None,
        _degree(sums.matched, carried, min(expected, beside) if sums.matched else 0),
        # SEMANTICS 4.24: wrong ids of late records alone are not enough while those in results are unresolved.
        _degree(processed, carried - sums.counts["unresolved"], min(expected, wrong) if processed else 0),
    )
    found.append(whole)
    for row in (*_inputs(sums, beside, wrong), *_outputs(sums)):
        # SEMANTICS 4.23: the doubt about all results concerns every topic already.
        found.append(row if whole.suspects is Fits.SOME else _not_suspecting(row))
    # SEMANTICS 4.23: each late or rejected record may answer another event than its id names.
    for side, it in sums.set_aside.items():
        suspects = _degree(it.matched, it.unmatched_aside, (it.matched + it.unmatched_aside) if it.matched else 0)
        found.append(Row(Sign.MATCHES, side, None, suspects, _degree(it.matched + it.undecided, 0, it.read)))
    return [row for row in found if (row.suspects, row.withdraws) != (Fits.SOME, Fits.SOME)]


def _not_suspecting(row: Row) -> Row:
    return Row(row.sign, row.side, row.topic, Fits.SOME, row.withdraws, row.loses)


def _inputs(sums: CellTotals, beside: int, wrong: int) -> Iterator[Row]:
    """A pipeline may use few events of a topic. Nearly none of them matching is a doubt only beside ids that match
    nothing."""
    # The counts of the inputs must cover all events.
    if sum(it.read for it in sums.inputs.values()) < sums.counts["expected"]:
        return
    for topic, it in sorted(sums.inputs.items()):
        suspects = _degree(it.matched, min(it.read, sums.carried), min(it.read, beside) if it.matched else 0)
        # SEMANTICS 4.24: a single lost event of a new topic must not retract what another topic proved.
        withdraws = _degree(it.matched + it.undecided, 0, min(it.read, wrong))
        yield Row(Sign.MATCHES, "input", topic, suspects, withdraws, it.outstanding > 0)


def _outputs(sums: CellTotals) -> Iterator[Row]:
    # SEMANTICS 4.23: copies of results of other topics are duplicates.
    copies, expected = sums.counts["duplicate"], sums.counts["expected"]
    covers_all = sum(it.read for it in sums.outputs.values()) >= sums.carried
    for topic, it in sorted(sums.outputs.items()):
        beside, wrong = (min(it.read, expected, count + copies) for count in (unmatched(sums), _wrong(sums)))
        withdraws = _degree(it.right + it.undecided, it.read, wrong) if covers_all else Fits.SOME
        yield Row(Sign.MATCHES, "output", topic, _degree(it.right, it.read, beside if it.right else 0), withdraws)


def _without_ids(progress: IngestProgress, sums: CellTotals) -> list[str]:
    """Return the output topics that have decoded results, none of which carries an id. Their configured field may name
    another list than that of the ids."""
    having = {topic: it.read + it.outside for topic, it in sums.outputs.items()}
    # SEMANTICS 4.22: with one output, or without counts by output, an id in any result ends the doubt.
    listed = sums.carried + sums.outside
    if listed > 0 and (not having or sum(having.values()) < listed):
        return []
    topics = outputs_of(progress) - {topic for topic, count in having.items() if count}
    return sorted(topic for topic in topics if decoded_results(progress, topic) > 0)


def outputs_of(progress: IngestProgress) -> frozenset[str]:
    """Return the output topics that were read."""
    return frozenset(place.topic for place, it in progress.frontiers.items() if it.side == "output")


def explained_by(row: Row, *, copies_explain: bool) -> frozenset[str]:
    """Return the violation classes that ``row`` may explain. ``copies_explain``: as in `Suspicion`."""
    if row.suspects is Fits.SOME:
        return _NOTHING
    classes = _SUSPECTED.get((row.sign, row.side), (_NOTHING, _NOTHING))[row.suspects is Fits.NEARLY_NONE]
    # SEMANTICS 4.15: where repeats are dropped, a further copy explains no duplicate.
    classes |= {"duplicate"} if classes == _EXCESS and copies_explain else _NOTHING
    return classes | {"missing"} if row.loses else classes


def withdrawn_by(progress: IngestProgress, sums: CellTotals, found: list[Row]) -> frozenset[str]:
    """Return the violation classes whose confirmed violations are retracted because of the rows ``found``.

    They may have been confirmed before the first result, or while a few of the first records fitted by chance.
    """
    classes = _NOTHING
    for row in found:
        if row.withdraws is not Fits.SOME:
            of_row = _WITHDRAWN.get((row.sign, row.side), (_NOTHING, _NOTHING))
            classes |= of_row[row.withdraws is Fits.NEARLY_NONE]
    # SEMANTICS 4.24: losses may have been confirmed before the first result, and an undecodable result may be the
    # answer.
    if not sums.counts["processed"] and not decoded_results(progress) and progress.undecodable("output") > 0:
        classes |= {"missing"}
    none = [row.topic for row in found if row.side == "output" and row.sign is Sign.MATCHES and _is_none(row, sums)]
    if not none:
        return classes
    # SEMANTICS 4.24: losses may have been confirmed before the first result of the topic, which may be the answer. If
    # there are more wrong contributions than those topics have contributions, they were confirmed for another reason.
    explained, wrong = sum(sums.outputs[topic].read for topic in none if topic is not None), _wrong(sums)
    classes |= {"missing"} | (_EXCESS if wrong <= explained else _NOTHING)
    return classes | ({"duplicate"} if wrong + sums.counts["duplicate"] <= explained else _NOTHING)


def _is_none(row: Row, sums: CellTotals) -> bool:
    """Return whether no contribution of an output may match."""
    it = sums.outputs.get(row.topic or "", TopicCounts())
    return row.withdraws is not Fits.SOME and it.right + it.undecided == 0
