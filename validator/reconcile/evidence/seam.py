"""The interface of an evidence: what results state about the events that they used, and what follows from it.

A module of this package that defines a concrete evidence is found by `validator.reconcile.evidence.kinds`. The task
that groups records, the verdicts and the comparison use it only through `Evidence`. Which evidence an oracle can judge
is for the oracle to say (`Oracle.check_evidence`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final, NamedTuple

import numpy as np
import pyarrow as pa

from validator.model.arrays import Bools, Ints, one_array
from validator.model.stated_values import Values
from validator.oracles.ids import Flags, IdVerdicts
from validator.oracles.seam import Oracle
from validator.reconcile.contributions import Comparison, Gathered, Items, TopicPartition
from validator.reconcile.record_groups import Groups

IDS_KEPT: Final = 20
"""Number of ids kept as examples per violation; further ids are only counted."""
VIOLATIONS_KEPT: Final = 10_000
"""Number of violations of each class of which a comparison keeps examples; further violations are only counted."""

Examples = dict[tuple[int, str], tuple[str, ...]]
"""(row of a cell, class of violation) -> what is shown of the violation: ids, or what is wrong with a value."""


class EventIds(NamedTuple):
    """The ids of events: integers, and texts for those that have none."""

    integers: Ints
    are_integers: Bools
    texts: pa.Array
    are_texts: Bools


class StatedSums(NamedTuple):
    """What each result adds to its side: contributions and both hashes."""

    contributions: Ints
    hash_a: Ints
    hash_b: Ints


@dataclass(frozen=True)
class WrongValues:
    """``of_results``: which results state a wrong value, each judged by itself. ``of_cells``: the cells whose sound
    results are wrong together. ``waits``: the cells whose value is judged later. ``clauses``: number of a cell -> what
    is wrong."""

    of_results: Bools
    of_cells: Bools
    waits: Bools
    clauses: Mapping[int, str] = field(default_factory=dict)


class Evidence(ABC):
    """The evidence of one pipeline."""

    names: ClassVar[tuple[str, ...]]
    """Values of `outputs[].evidence`."""
    names_ids: ClassVar[bool]
    """Whether results say which events they used."""
    moduli: ClassVar[tuple[int, int, int]]
    """What the sums of contributions and of both hashes are modulo; 0: 2^64."""

    def __init__(self, oracle: Oracle) -> None:
        self.oracle = oracle

    @property
    def stated(self) -> Values:
        """What results state about fields of events."""
        return self.oracle.stated

    values_may_change: ClassVar[bool]
    """Whether a further result of a cell may correct its value, so that none is wrong before its events are missing."""

    @property
    @abstractmethod
    def fingerprints_decide(self) -> bool:
        """Whether equal sums of both sides show that the results of a cell are right."""

    @abstractmethod
    def of_events(
        self, groups: Groups, events: pa.Table, ids: EventIds, contributing: Ints
    ) -> dict[str, pa.Array | Ints]:
        """Return columns of fact rows of events: ``hash_a``, ``hash_b`` and, if values depend on fields of the events,
        ``aggregates``. ``contributing``: 1 for each event that contributes to a cell, else 0."""

    @abstractmethod
    def of_results(self, groups: Groups, results: pa.Table, are_decoded: Bools) -> StatedSums:
        """Return what fact rows of results sum up."""

    @abstractmethod
    def items(self, gathered: Gathered) -> tuple[Items, list[str], list[TopicPartition]]:
        """Return all contributions of the facts, the texts by number, and the partitions by number (sorted)."""

    def owed(
        self, gathered: Gathered, items: Items, flags: Flags, size: int, *, drops_late: bool
    ) -> tuple[Items, Flags]:
        """Return the sorted ``items`` of ``size`` cells and their flags, as what results state changes them."""
        del gathered, size, drops_late
        return items, flags

    @abstractmethod
    def wrong_values(self, it: Comparison, flags: Flags, sums: Mapping[str, Ints], *, drops_late: bool) -> WrongValues:
        """Return which results state wrong values. ``sums``: the classes of ids per cell."""

    @abstractmethod
    def examples(
        self, it: Comparison, ids: IdVerdicts, is_known: Bools, sums: Mapping[str, Ints], wrong: WrongValues
    ) -> Examples:
        """Return examples of violations. ``is_known``: which ids some input has."""


def columns_of_lists(lists: pa.ChunkedArray, width: int) -> list[pa.Array]:
    """Return lists of ``width`` items each as so many columns."""
    items, rows = one_array(lists).flatten(), np.arange(len(lists)) * width
    return [items if width == 1 else items.take(pa.array(rows + i)) for i in range(width)]
