"""Which lost or repeated event explains the values of a cell: `explain` with a configuration reads the events again.

The state has sums of events, and not what each of them adds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaException

from validator.codecs.columns import UNOWED
from validator.config.model import Config
from validator.model.kafka_options import OptionsRefused
from validator.model.stated_values import ADDED, EXACT, Stated
from validator.model.wording import plural
from validator.oracles.seam import Oracle
from validator.publish.explain import CellFacts
from validator.reconcile.explained_sums import Change, Sums, smallest_changes
from validator.reconcile.facts import Side
from validator.reconcile.values import Aggregate, Answered
from validator.stream.bounded import Ended, bounded
from validator.stream.sampling import OffsetRange, ReadEvent, events_of_cell

OFFSETS_MOST: Final = 500_000
"""Offsets between the first and the last event of a cell, on all partitions, that are read again."""
_SECONDS_MAX: Final = 120.0
_Row = Mapping[str, Any]


def lines(config: Config, state: Path, window: str, key: str) -> Iterator[str]:
    """Say which changes of the cell's events explain what its results state."""
    oracle = config.oracle
    if oracle.reads.names_ids:
        yield "  its results name their events: no event is read again"
        return
    if oracle.pair_rule is not None or oracle.merging_gap_us is not None or oracle.reads.signed:
        yield f"  events of a {oracle.noun} are not read again"
        return
    cell = CellFacts.of(state, window, key)
    difference = _Difference.of(oracle, cell.rows)
    if isinstance(difference, str):
        yield f"  no event is read again: {difference}"
        return
    if not difference.more and not any(difference.surplus):
        stated = {"the number": difference.more is not None, "the sums": bool(difference.judged)}
        said = " and ".join(name for name, is_stated in stated.items() if is_stated)
        yield f"  its results state {said} of its {plural(difference.events, 'event')}"
        return
    ranges = list(_ranges(cell.rows))
    if (offsets := sum(one.last - one.first + 1 for one in ranges)) > OFFSETS_MOST:
        yield f"  its events lie among {offsets:,} offsets: too many to be read again"
        return
    try:
        own_key = str(cell.rows[0]["key"])
        events = list(bounded(_SECONDS_MAX, events_of_cell, config, ranges, cell.start_us, own_key, _SECONDS_MAX))
    except (Ended, KafkaException, OptionsRefused) as error:
        yield f"  its events could not be read again: {error}"
        return
    added = [_added(one, difference.judged) for one in events]
    with localcontext(EXACT):
        columns = list(zip(*added, strict=True))
        sums = tuple(sum(column, Decimal(0)) for column in columns)
        changes = smallest_changes(list(zip(events, added, strict=True)), difference.more, difference.exact(columns))
    if len(events) != difference.events or sums != difference.sums:
        yield f"  {len(events)} of its {plural(difference.events, 'event')} could be read again"
        return
    yield _said(*changes)


@dataclass(frozen=True)
class _Difference:
    """How much more the results and set-aside records of a cell have than its events.

    ``judged``: the sums that are exact. ``events``, ``sums``: of the events. ``more``: the number of events that
    results state beyond these, None if they state none. ``surplus``: of each sum. ``roundings``: how much of it doubles
    may have lost.
    """

    judged: Sequence[Stated]
    events: int
    sums: Sums
    more: int | None
    surplus: Sums
    roundings: Sequence[Fraction]

    def exact(self, columns: Sequence[Sums]) -> Sums:
        """The surplus without what doubles lost. ``columns``: what the events add to each sum."""
        # Events explain only multiples of the last decimal place that one of them has.
        found = list(self.surplus)
        for i, column in enumerate(columns):
            unit = Decimal(1).scaleb(min(int(one.as_tuple().exponent) for one in column))
            nearest = found[i].quantize(unit)
            if abs(nearest - found[i]) <= self.roundings[i] < Fraction(unit) / 2:
                found[i] = nearest
        return tuple(found)

    @classmethod
    def of(cls, oracle: Oracle, rows: Sequence[_Row]) -> _Difference | str:
        """Return the difference; a clause if it is not known."""
        values, tolerances = oracle.stated, dict(oracle.reads.tolerances)
        inputs = [row for row in rows if row["side"] == Side.INPUT.value and row["status"] != UNOWED]
        aside = [row for row in rows if row["side"] in (Side.LATE.value, Side.REJECTED.value)]
        # SEMANTICS 2.16: the newest result replaces the earlier ones.
        of_output = [row for row in rows if row["side"] == Side.OUTPUT.value]
        results = [(row["batch"], one) for row in of_output for one in row["results"] or ()]
        results.sort(key=lambda found: (found[0], found[1]["offset"]))
        used = [one for _, one in (results[-1:] if oracle.reads.replaces else results)]
        if not used or not inputs:
            return "it has no result" if inputs else "it has no event"
        if any(one["count"] < row["contributions"] for row in aside for one in row["aggregates"] or ()):
            return "records that were set aside lack fields"
        chosen = [i for i, one in enumerate(values.stated) if one.function in ADDED and not tolerances.get(one.name)]
        if not chosen and not values.show_number:
            return "its results state neither a number of events nor an exact sum"
        judged = [values.stated[i] for i in chosen]
        events = sum(row["contributions"] for row in inputs)
        counted = sum(row["contributions"] for row in aside) + sum(one["count"] or 0 for one in used)
        with localcontext(EXACT):
            sums = tuple(_sum(inputs, one) for one in judged)
            stated = [
                sum((Decimal(one["values"][i] or 0) for one in used if one["values"]), Decimal(0)) for i in chosen
            ]
            surplus = [one + _sum(aside, of) - own for one, of, own in zip(stated, judged, sums, strict=True)]
        roundings = [Fraction(0) if one.name in tolerances else _rounding(inputs, one) for one in judged]
        of_events = (Decimal(0) if abs(one) <= most else one for one, most in zip(surplus, roundings, strict=True))
        return cls(judged, events, sums, counted - events if values.show_number else None, tuple(of_events), roundings)


def _sum(rows: Sequence[_Row], of: Stated) -> Decimal:
    parts = [row["aggregates"][of.place] for row in rows if row["aggregates"]]
    return sum((Decimal(one["count"] if of.function == "count" else one["sum"] or 0) for one in parts), Decimal(0))


def _rounding(inputs: Sequence[_Row], of: Stated) -> Fraction:
    parts = [Aggregate.of(row["contributions"], row["aggregates"][of.place]) for row in inputs if row["aggregates"]]
    return Answered(parts, (), (), all_used=True).rounding(of.function, Decimal(0))


def _added(event: ReadEvent, judged: Sequence[Stated]) -> Sums:
    numbers = [event.addends[one.place] for one in judged]
    return tuple(
        Decimal(number is not None) if one.function == "count" else number or Decimal(0)
        for one, number in zip(judged, numbers, strict=True)
    )


def _ranges(rows: Sequence[_Row]) -> Iterator[OffsetRange]:
    inputs = [row for row in rows if row["side"] == Side.INPUT.value]
    for topic, partition in sorted({(row["topic"], row["partition"]) for row in inputs}):
        own = [row for row in inputs if (row["topic"], row["partition"]) == (topic, partition)]
        first, last = min(row["first_offset"] for row in own), max(row["last_offset"] for row in own)
        yield OffsetRange(topic, partition, first, last)


def _said(number: int, changes: Sequence[Change[ReadEvent]]) -> str:
    if not number:
        return "  no lost or repeated event, and no pair of them, explains its values"
    first = _change(changes[0])
    if number == 1:
        return f"  its values are those of its events with {first}"
    return f"  {number:,} changes explain its values alike, such as {first}"


def _change(change: Change[ReadEvent]) -> str:
    parts = [
        f"{_place(one)} {what}"
        for one, what in ((change.lost, "lost"), (change.repeated, "repeated"))
        if one is not None
    ]
    return " and ".join(parts)


def _place(event: ReadEvent) -> str:
    return f"the event at {event.topic}-{event.partition} offset {event.offset}"
