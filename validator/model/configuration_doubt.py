"""When the configuration is in doubt, not the pipeline (SEMANTICS 4.19 to 4.26). Pure rules on counts.

A wrong field or unit makes a whole topic unreadable, or makes results and events name different things. Neither proves
anything about the pipeline. So no violation is confirmed before the configuration is seen to fit: before 1 in 100
records of a topic decodes, and 1 in 100 contributions matches. The rules do not depend on batch boundaries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from validator.model.progress import IngestProgress

NEARLY_NONE: Final = 100
"""Fewer than 1 in this many is nearly none (SEMANTICS 4.19). A wrong field can be present in a few records by chance.
An engine that writes more than 99 unreadable records for each readable one cannot be distinguished from that."""
_RESULTS: Final = frozenset({"undecodable", "missing"})
_EXCESS: Final = frozenset({"misplaced", "unknown_id"})
_ALL: Final = frozenset({"missing", "duplicate", "misplaced", "unknown_id", "undecodable"})


@dataclass(frozen=True)
class TopicCounts:
    """Counts of the events of an input topic, or of the contributions in the results of an output topic. They are kept
    only if there are several inputs or outputs: for a single one the totals are enough. The same counts are kept for
    the ids in late records, and for those in rejected records.

    - ``read``: events that were read, contributions in results, or ids in the late or rejected records.
    - ``matched``: events that are in results, contributions that are proven to match events, or ids that belong to an
      event of the record's cell.
    - ``outstanding``: events that would be missing once due; always 0 for results, late and rejected records.
    - ``undecided``: events, contributions or ids that may match, but are not proven to.
    - ``outside``: ids that are not among ``read``. For late and rejected records: those whose cell is out of scope and
      has no event; a wrong time may have put these records in that cell. For results: those whose cell is out of scope
      and has an event. Results that newer ones have replaced stay in ``read`` or ``outside``.
    - ``claimed``: contributions in results that do not match because other output topics carry their ids in the same
      cell. ``lasting``: those of ``matched`` that no result of another topic can claim any more.
    """

    read: int = 0
    matched: int = 0
    outstanding: int = 0
    undecided: int = 0
    outside: int = 0
    lasting: int = 0
    claimed: int = 0

    def plus(self, other: TopicCounts, times: int = 1) -> TopicCounts:
        """Return the sum of both, ``other`` multiplied by ``times``."""
        return TopicCounts(
            self.read + times * other.read,
            self.matched + times * other.matched,
            self.outstanding + times * other.outstanding,
            self.undecided + times * other.undecided,
            self.outside + times * other.outside,
            self.lasting + times * other.lasting,
            self.claimed + times * other.claimed,
        )

    @property
    def right(self) -> int:
        """Contributions in results that match. A topic that repeats ids of other topics may have a wrong field: then
        only those count that no other topic can claim any more."""
        return self.lasting if self.claimed else self.matched

    @property
    def unmatched_aside(self) -> int:
        """Ids in late or rejected records that are not proven to match. The first match ends the doubt about those out
        of scope."""
        return self.read - self.matched + (0 if self.matched else self.outside)


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


def topics_in_doubt(progress: IngestProgress) -> tuple[TopicInDoubt, ...]:
    """Return the topics in doubt, by name."""
    sums: dict[tuple[str, str], tuple[int, int]] = {}
    for partition, frontier in progress.frontiers.items():
        accepted = progress.accepted_records.get(partition, 0)
        read, undecodable = sums.get((partition.topic, frontier.side), (0, 0))
        read += frontier.records - frontier.tombstones - accepted
        sums[partition.topic, frontier.side] = read, undecodable + frontier.undecodable - accepted
    found = (TopicInDoubt(side, topic, *counts) for (topic, side), counts in sorted(sums.items()))
    return tuple(
        one
        for one in found
        # SEMANTICS 4.20: no minimum, so the cut into batches does not matter; the first record that decodes ends the
        # doubt.
        if one.undecodable > 0 and (one.decoded == 0 or (one.decoded > 0 and one.decoded * NEARLY_NONE < one.read))
    )


def decoded_results(progress: IngestProgress, topic: str | None = None) -> int:
    """Return the number of results read so far that decoded: of one topic, or of all outputs."""
    return sum(
        it.records - it.undecodable - it.tombstones
        for partition, it in progress.frontiers.items()
        if it.side == "output" and topic in (None, partition.topic)
    )


def outputs_without_ids(progress: IngestProgress, outputs: Mapping[str, TopicCounts], listed: int) -> frozenset[str]:
    """Return the output topics that have decoded results, none of which carries an id. Their configured field may name
    another list than that of the ids.

    ``outputs``: counts of each output topic, if there are several. ``listed``: contributions in all results. If
    ``outputs`` does not cover them, a topic is returned only if no result has an id.
    """
    having = {topic: it.read + it.outside for topic, it in outputs.items()}
    # SEMANTICS 4.22: with one output, or without counts by output, an id in any result ends the doubt.
    if listed > 0 and (not having or sum(having.values()) < listed):
        return frozenset()
    topics = {partition.topic for partition, it in progress.frontiers.items() if it.side == "output"} - {
        topic for topic, count in having.items() if count
    }
    return frozenset(topic for topic in topics if decoded_results(progress, topic) > 0)


def matches_nothing(counts: Mapping[str, int], matched: int, carried: int) -> bool:
    """Return whether results carry contributions, and (nearly) none of them is proven to match an event.

    ``counts``: contributions by class. ``carried``: contributions in results. ``matched``: those of them that are
    proven to match. An engine that writes no results is not concerned: there is nothing to compare.
    `outputs_without_ids` is the rule for results without ids.
    """
    # SEMANTICS 4.21: one contribution in a result is enough for the doubt, and one match ends it.
    if matched == 0:
        return carried > 0
    # SEMANTICS 4.21: unresolved contributions count as unmatched here, since suspicion only waits.
    return matched * NEARLY_NONE < min(counts.get("expected", 0), unmatched(counts), carried)


def inputs_in_doubt(
    inputs: Mapping[str, TopicCounts], counts: Mapping[str, int], matched: int, carried: int
) -> tuple[str, ...]:
    """Return the input topics in doubt: they have events, but (nearly) none of these is proven to be in a result,
    while events of other inputs are.

    Their own fields may be wrong, or results may have their ids in a field that is not configured.
    """
    # SEMANTICS 4.23: the doubt of 4.21 concerns every topic already.
    if matches_nothing(counts, matched, carried) or not _are_counted(inputs, counts):
        return ()
    # A pipeline may use few events of a topic. Nearly none of them matching is a doubt only beside ids that match
    # nothing.
    beside = min(unmatched(counts), carried)
    return tuple(
        topic
        for topic, it in sorted(inputs.items())
        if it.read and ((it.matched == 0 and carried > 0) or it.matched * NEARLY_NONE < min(it.read, beside))
    )


def unmatched_outputs(
    outputs: Mapping[str, TopicCounts], counts: Mapping[str, int], matched: int, carried: int
) -> tuple[str, ...]:
    """Return the output topics in doubt: their results carry contributions, but (nearly) none of these is proven to
    match an event, while contributions of other outputs are."""
    if matches_nothing(counts, matched, carried):
        return ()
    # SEMANTICS 4.23: copies of results of other topics are duplicates.
    most = min(counts.get("expected", 0), unmatched(counts) + counts.get("duplicate", 0))
    return tuple(
        topic
        for topic, it in sorted(outputs.items())
        if it.read and (it.right == 0 or it.right * NEARLY_NONE < min(most, it.read))
    )


def set_aside_in_doubt(set_aside: Mapping[str, TopicCounts]) -> dict[str, int]:
    """Return side (late, rejected) -> number of ids in its records that are not proven to be of an event of the
    record's cell. A side is included only if (nearly) all of its ids are unproven.

    The configured field may hold another id, so each record may answer an outstanding event.
    """
    return {
        side: it.unmatched_aside
        for side, it in set_aside.items()
        # SEMANTICS 4.23: each of these records may answer another event than its id names.
        if it.matched * NEARLY_NONE < it.matched + it.unmatched_aside
    }


def set_aside_matched_by_chance(set_aside: Mapping[str, TopicCounts]) -> int:
    """Return the number of ids in late and rejected records that are not proven to be of an event of the record's cell.
    A side is included only if nearly all of its ids are unproven.

    To choose the sides, undecided ids count as right, as in `withdrawn`.
    """
    return sum(
        it.read - it.matched
        for it in set_aside.values()
        if it.read and max(1, it.matched + it.undecided) * NEARLY_NONE < it.read
    )


def _are_counted(inputs: Mapping[str, TopicCounts], counts: Mapping[str, int]) -> bool:
    """Return whether the counts of the inputs cover all events."""
    return sum(it.read for it in inputs.values()) >= counts.get("expected", 0)


def unmatched(counts: Mapping[str, int]) -> int:
    """Return the number of contributions in answers that no input explains so far."""
    return _proven_wrong(counts) + counts.get("unresolved", 0)


def _proven_wrong(counts: Mapping[str, int]) -> int:
    return counts.get("misplaced", 0) + counts.get("unknown_id", 0)


def suspected_by_inputs(
    inputs: Mapping[str, TopicCounts], counts: Mapping[str, int], matched: int, carried: int, *, copies_explain: bool
) -> frozenset[str]:
    """Return the violation classes that an input topic in doubt (`inputs_in_doubt`) may explain."""
    found = inputs_in_doubt(inputs, counts, matched, carried)
    classes = _excess(copies_explain=copies_explain) if found else frozenset()
    return classes | {"missing"} if any(inputs[topic].outstanding for topic in found) else classes


def suspected_by_outputs(
    outputs: Mapping[str, TopicCounts], counts: Mapping[str, int], matched: int, carried: int
) -> frozenset[str]:
    """Return the violation classes that an output topic in doubt (`unmatched_outputs`) may explain.

    Its ids may be those of other events and cells, also of events that other outputs answer (a duplicate). Each of its
    results may answer any number of outstanding events. Its undecodable results are those of `outputs_in_doubt`.
    """
    return _ALL - {"undecodable"} if unmatched_outputs(outputs, counts, matched, carried) else frozenset()


def suspected(
    progress: IngestProgress,
    counts: Mapping[str, int],
    matched: int,
    carried: int,
    *,
    copies_explain: bool,
    inputs: Mapping[str, TopicCounts] = MappingProxyType({}),
    outputs: Mapping[str, TopicCounts] = MappingProxyType({}),
    has_no_ids: bool = False,
) -> frozenset[str]:
    """Return the violation classes that a wrong configuration may explain. No further violation of them is confirmed.

    ``counts``, ``matched``, ``carried``: as in `matches_nothing`. ``copies_explain``: as in `Suspicion`. ``inputs``:
    counts of each input topic, if there are several. ``outputs``: those of each output topic. ``has_no_ids``: whether
    there are any `outputs_without_ids`. If no late or rejected record decodes, SEMANTICS 4.14 is enough: each record
    explains one contribution, whichever field is wrong.
    """
    classes = suspected_by_inputs(inputs, counts, matched, carried, copies_explain=copies_explain)
    classes |= suspected_by_outputs(outputs, counts, matched, carried)
    classes |= _ALL if matches_nothing(counts, matched, carried) else frozenset()
    classes |= {"missing"} if has_no_ids else frozenset()
    for one in topics_in_doubt(progress):
        if one.decoded:
            # SEMANTICS 4.20: the records that decoded may be nonsense.
            classes |= _ALL
        # SEMANTICS 4.20: any of the undecodable results may be the answer, so losses are not proven. A duplicate is.
        elif one.side == "output":
            classes |= _RESULTS
        # SEMANTICS 4.20: any of the undecodable events may explain excess. A loss of another event is proven.
        elif one.side == "input":
            classes |= _excess(copies_explain=copies_explain)
    return classes


def _excess(*, copies_explain: bool) -> frozenset[str]:
    return _EXCESS | {"duplicate"} if copies_explain else _EXCESS


def outputs_in_doubt(
    progress: IngestProgress,
    counts: Mapping[str, int],
    matched: int,
    carried: int,
    outputs: Mapping[str, TopicCounts] = MappingProxyType({}),
) -> frozenset[str]:
    """Return the output topics whose undecodable results are only suspected. ``outputs``: as in `suspected`."""
    found = topics_in_doubt(progress)
    topics = frozenset(
        partition.topic for partition, frontier in progress.frontiers.items() if frontier.side == "output"
    )
    if progress.cut_back or matches_nothing(counts, matched, carried) or any(one.decoded for one in found):
        return topics
    return topics & {*(one.topic for one in found), *unmatched_outputs(outputs, counts, matched, carried)}


def withdrawn(
    progress: IngestProgress,
    counts: Mapping[str, int],
    carried: int,
    inputs: Mapping[str, TopicCounts] = MappingProxyType({}),
    outputs: Mapping[str, TopicCounts] = MappingProxyType({}),
    *,
    has_no_ids: bool = False,
) -> frozenset[str]:
    """Return the classes whose confirmed violations are retracted, because the configuration now fits no record, or
    nearly none.

    They may have been confirmed before the first result, or while a few of the first records fitted by chance.
    Unresolved contributions do not count as wrong here, and those not compared yet count as right: both are temporary.
    """
    # SEMANTICS 4.24: what is unresolved or not compared may turn out right, so it retracts nothing.
    right, wrong = counts.get("processed", 0), min(_proven_wrong(counts), carried)
    if right:
        nearly_none = right * NEARLY_NONE < min(counts.get("expected", 0), wrong)
    else:
        # Wrong contributions in late records alone are not enough while all those in results are unresolved.
        nearly_none = carried - counts.get("unresolved", 0) > 0
    if nearly_none or any(one.decoded for one in topics_in_doubt(progress)):
        return _ALL
    # SEMANTICS 4.24: losses may have been confirmed before the first result, and an undecodable result may be the
    # answer.
    nothing_read = not right and not decoded_results(progress) and progress.undecodable("output") > 0
    unread = frozenset({"missing"}) if nothing_read or has_no_ids else frozenset()
    # SEMANTICS 4.24: with `max(1, ...)` a topic needs more than a hundred wrong contributions: one lost event of a new
    # topic must not retract what another topic proved.
    of_one = _are_counted(inputs, counts) and any(
        max(1, it.matched + it.undecided) * NEARLY_NONE < min(it.read, wrong) for it in inputs.values()
    )
    by_output = _withdrawn_by_outputs(outputs, counts, carried)
    return unread | by_output | (_ALL - {"undecodable"} if of_one else frozenset())


def refuted_outputs(
    outputs: Mapping[str, TopicCounts], counts: Mapping[str, int], carried: int
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the output topics of which no contribution matches, and those of which nearly none does.

    Contributions that are not compared yet count as right, as in `withdrawn`. If the counts of outputs do not cover all
    contributions in results, no topic is returned.
    """
    if sum(it.read for it in outputs.values()) < carried:
        return frozenset(), frozenset()
    most = min(counts.get("expected", 0), _proven_wrong(counts) + counts.get("duplicate", 0))
    rights = {topic: it.right + it.undecided for topic, it in outputs.items() if it.read}
    nearly = {topic for topic, right in rights.items() if max(1, right) * NEARLY_NONE < min(most, outputs[topic].read)}
    return frozenset(topic for topic, right in rights.items() if not right), frozenset(nearly)


def _withdrawn_by_outputs(
    outputs: Mapping[str, TopicCounts], counts: Mapping[str, int], carried: int
) -> frozenset[str]:
    """As `withdrawn`, for the classes to retract because (nearly) no contribution of an output topic matches."""
    none, nearly_none = refuted_outputs(outputs, counts, carried)
    if nearly_none:
        return _ALL - {"undecodable"}
    if not none:
        return frozenset()
    # SEMANTICS 4.24: losses may have been confirmed before the first result of the topic, which may be the answer. If
    # there are more wrong contributions than those topics have contributions, they were confirmed for another reason.
    explained, wrong = sum(outputs[topic].read for topic in none), _proven_wrong(counts)
    found = {"missing"} | (_EXCESS if wrong <= explained else frozenset())
    return frozenset(found | ({"duplicate"} if wrong + counts.get("duplicate", 0) <= explained else set()))
