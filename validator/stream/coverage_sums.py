"""The coverage sums (SEMANTICS 5.1): three counts of the same records, made at different places.

The reader counts the offsets that it passes without a record, before decoding. The fact rows count the records of each
partition. The cells count them again, in memory, settled or retired. None of them is computed from another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from validator.core.totals import CellTotals
from validator.model.frontier import Frontier, PartitionId
from validator.model.progress import IngestProgress
from validator.model.wording import plural

Accounted = dict[str, int]
"""What became of records -> their number; ``read``: how many were read."""

_ANSWERS = ("output", "late", "rejected")


def events_of(progress: IngestProgress, sums: CellTotals) -> Accounted:
    """Return the terms of the sum over events. The cells of ``sums`` include retired ones."""
    return {
        "read": progress.records("input"),
        "settled": sums.events.get("settled", 0),
        "open": sums.events.get("open", 0),
        "out_of_scope": sums.events.get("out_of_scope", 0),
        "in_no_cell": progress.unowed(),
        "undecodable": progress.undecodable("input"),
        "tombstone": progress.tombstones("input"),
    }


def answers_of(progress: IngestProgress, sums: CellTotals) -> Accounted:
    """Return the terms of the sum over results, late and rejected records."""
    return {
        "read": sum(map(progress.records, _ANSWERS)),
        "in_cells": sums.answers,
        "undecodable": sum(map(progress.undecodable, _ANSWERS)),
        "tombstone": sum(map(progress.tombstones, _ANSWERS)),
    }


def balances(terms: Mapping[str, int]) -> bool:
    """Return whether all records that were read are found again."""
    return sum(count for name, count in terms.items() if name != "read") == terms["read"]


def failed_sums(progress: IngestProgress, sums: CellTotals) -> Iterator[str]:
    """Yield a sentence for each sum that does not hold."""
    for partition, frontier in sorted(progress.frontiers.items()):
        spanned = frontier.next_offset - frontier.first_offset
        if frontier.records + frontier.expired + frontier.invisible != spanned:
            yield _of_partition(partition, frontier, spanned)
    for name, terms in (("events", events_of(progress, sums)), ("answers", answers_of(progress, sums))):
        if not balances(terms):
            yield _of_records(name, terms)


def _of_partition(partition: PartitionId, it: Frontier, spanned: int) -> str:
    return (
        f"the coverage sum of {partition} does not hold: {plural(it.records, 'record')} read + "
        f"{it.expired:,} expired + {plural(it.invisible, 'offset')} without a visible record is not "
        f"{plural(spanned, 'offset')} spanned"
    )


def _of_records(name: str, terms: Mapping[str, int]) -> str:
    found = " + ".join(f"{count:,} {term.replace('_', ' ')}" for term, count in terms.items() if term != "read")
    return f"the coverage sum over {name} does not hold: {found} is not {terms['read']:,} read"
