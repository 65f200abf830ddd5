"""Records that belong to no cell because their content is not known: undecodable ones, and those not examined.

Undecodable results are violations, one per partition of an output topic, with two of the offsets. The frontiers count
them. While the configuration is in doubt the violations are suspected, like those of other classes. If the topic is
read again from its start, because its fields were corrected, suspected violations are retracted.

Records are not examined if they exceed the size limits or do not fit into memory. The key of their fact row is the
reason.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from validator.codecs.columns import UNDECODABLE, UNEXAMINED
from validator.model.classes import ViolationClass
from validator.model.frontier import PartitionId
from validator.model.progress import IngestProgress
from validator.model.violation import Violation, state_of, violation_id
from validator.model.wording import plural
from validator.reconcile.facts import Kind, Side

CLASS: Final = ViolationClass.UNDECODABLE.value
EXTENT_COLUMNS: Final = ("topic", "partition", "first_offset", "last_offset")
OF_RESULTS: Final = (
    (pc.field("kind") == Kind.FACT.value)
    & (pc.field("side") == Side.OUTPUT.value)
    & (pc.field("status") == UNDECODABLE)
)
"""The condition that a fact row is of undecodable results."""
_COLUMNS: Final = ("topic", "partition", "first_offset", "key", "records")

Extents = Mapping[str, tuple[int, int]]
"""Partition -> first and last offset of undecodable results."""


class Unexamined(NamedTuple):
    """The unexamined records of a partition: their number, and the offset and reason of the first."""

    records: int
    offset: int
    reason: str


@dataclass
class Unread:
    """Such records of one state.

    ``recorded``: partition -> its violation, as in the violations table. ``unrecorded``: the offsets of all undecodable
    results, if a kill left some that the table lacks.
    """

    unexamined: Mapping[PartitionId, Unexamined] = field(default_factory=dict)
    recorded: dict[str, Violation] = field(default_factory=dict)
    unrecorded: Extents = field(default_factory=dict)

    def changed_violations(
        self,
        progress: IngestProgress,
        rows: pa.Table | None,
        *,
        suspected: Collection[str] = (),
        withdrawn: Collection[str] = (),
    ) -> list[Violation]:
        """Return the changed violations: one per partition whose number of undecodable or confirmed results changed
        since it was recorded. They count as recorded then.

        ``rows``: the `unread_rows` of the batch of ``progress``. ``suspected``: topics of which no further result is
        confirmed. ``withdrawn``: topics of which no result is confirmed any more.
        """
        changed: dict[str, tuple[int, int]] = {}
        grown = []
        for partition, frontier in sorted(progress.frontiers.items()):
            if frontier.side != Side.OUTPUT.value:
                continue
            name, topic, count = str(partition), partition.topic, frontier.undecodable
            known = self.recorded.get(name)
            before, sure_before = (0, 0) if known is None else (known.count, known.confirmed_now)
            sure = 0 if topic in withdrawn else min(sure_before, count) if topic in suspected else count
            if (count, sure) != (before, sure_before):
                changed[name] = count, sure
                grown += [name] if count > before else []
        bad = [] if rows is None else [rows.filter(OF_RESULTS)]
        extents = extents_in(bad) if grown else {}
        if not all(name in extents for name in grown):
            extents = extents_in(bad, self.unrecorded)
        found = [self._violation(name, *now, extents.get(name), progress.lookup_us) for name, now in changed.items()]
        self.recorded |= {one.key: one for one in found}
        return found

    def _violation(
        self, name: str, count: int, confirmed: int, extent: tuple[int, int] | None, lookup_us: int
    ) -> Violation:
        before = self.recorded.get(name)
        growth = confirmed - (0 if before is None else before.confirmed_now)
        offsets = [] if extent is None else sorted(set(extent))
        # Retention may have dropped the facts with the offsets.
        where = f", for example at offset {' and '.join(map(str, offsets))}" if offsets else ""
        doubt = "; the configuration of the topic is in doubt" if confirmed < count else ""
        explanation = f"{plural(count, 'record')} of {name} could not be decoded{where}{doubt}"
        return Violation(
            id=violation_id(CLASS, 0, name),
            violation_class=CLASS,
            state=state_of(count, confirmed),
            window_start_us=None,
            key=name,
            count=count,
            ids=tuple(f"{name}@{offset}" for offset in offsets),
            first_us=before.first_us if before is not None and before.count else lookup_us,
            changed_us=lookup_us,
            explanation=explanation if count else "the fields of the topic were corrected, and it is read again",
            confirmed=max(0, growth),
            retracted=max(0, -growth),
            confirmed_now=confirmed,
            provable_us=lookup_us,
            at_us=lookup_us,
        )


def unread_rows(facts: pa.Table) -> pa.Table:
    """Return the few fact rows of records whose content is not known."""
    is_unread = pc.is_in(facts["status"], pa.array((UNDECODABLE, UNEXAMINED), facts["status"].type))
    return facts.filter(pc.and_(pc.equal(facts["kind"], Kind.FACT.value), is_unread))


def with_unexamined(found: Mapping[PartitionId, Unexamined], rows: pa.Table) -> dict[PartitionId, Unexamined]:
    """Return ``found`` with the unexamined records among rows of `unread_rows`."""
    rows, found = rows.filter(pc.is_valid(rows["key"])), dict(found)
    for topic, number, offset, reason, records in zip(*(rows[name].to_pylist() for name in _COLUMNS), strict=True):
        partition = PartitionId(topic, number)
        known = found.get(partition, Unexamined(0, offset, reason))
        first = min((known.offset, known.reason), (offset, reason))
        found[partition] = Unexamined(known.records + records, *first)
    return found


def extents_in(parts: Iterable[pa.Table], known: Extents | None = None) -> dict[str, tuple[int, int]]:
    """Return ``known`` with the offsets of rows of undecodable results."""
    found = dict(known or {})
    for part in parts:
        for topic, partition, first, last in zip(*(part[name].to_pylist() for name in EXTENT_COLUMNS), strict=True):
            name = f"{topic}-{partition}"
            least, most = found.get(name, (first, last))
            found[name] = (min(first, least), max(last, most))
    return found
