"""The interface of an evidence: what results state about the events that they used, and what follows from it.

A module of this package that defines a concrete evidence is found by `validator.reconcile.evidence.kinds`. The
configuration, the task that groups records, the verdicts and the comparison use it only through `Evidence`.

Methods import the array libraries: reading a configuration needs none of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final, Literal, NamedTuple

from validator.model.stated_values import MODULAR, Values
from validator.oracles.seam import Declared, Oracle
from validator.settings.errors import broken_rule_at

if TYPE_CHECKING:
    import pyarrow as pa

    from validator.model.arrays import Bools, Ints
    from validator.oracles.ids import Flags, IdVerdicts
    from validator.reconcile.contributions import Comparison, Gathered, Items, TopicPartition
    from validator.reconcile.record_groups import Groups

FIELDS: Final = ("ids", "id", "values")
"""The fields of results that hold evidence."""
IDS_KEPT: Final = 20
"""Number of ids kept as examples per violation; further ids are only counted."""
VIOLATIONS_KEPT: Final = 10_000
"""Number of violations of each class of which a comparison keeps examples; further violations are only counted."""

Examples = dict[tuple[int, str], tuple[str, ...]]
"""(row of a cell, class of violation) -> what is shown of the violation: ids, or what is wrong with a value."""


class Shown(NamedTuple):
    """How results show evidence. ``field``: the field of results that has it. ``said``: what this is, for the
    reference."""

    field: str
    said: str


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

    names: ClassVar[Mapping[str, Shown]]
    """Value of `outputs[].evidence` -> how results show it."""
    names_ids: ClassVar[bool]
    """Whether results say which events they used."""
    moduli: ClassVar[tuple[int, int, int]]
    """What the sums of contributions and of both hashes are modulo; 0: 2^64."""
    values_may_change: ClassVar[bool]
    """Whether a further result of a cell may correct its value, so that none is wrong before its events are missing."""
    beside: ClassVar[tuple[str, ...]] = ()
    """Fields of results that may have more than the evidence."""
    instead: ClassVar[str] = ""
    """What to write if results have no such field, as a clause."""

    def __init__(self, oracle: Oracle) -> None:
        self.oracle = oracle

    @property
    def stated(self) -> Values:
        """What results state about fields of events."""
        return self.oracle.stated

    def check(self, declared: Declared) -> None:
        """Raise PydanticCustomError for topics that do not have this evidence, and for an oracle that cannot judge
        it."""
        for i, output in enumerate(declared.outputs):
            fields, own = [name for name in FIELDS if getattr(output.fields, name)], output.evidence
            if own not in self.names:
                problem = f"outputs[0] has evidence {declared.outputs[0].evidence}"
                raise broken_rule_at(f"outputs[{i}].evidence", problem, "use one evidence for every output")
            needed = self.names[own].field
            if needed not in fields and self.needs_field:
                fix = f"name the path of the {needed} in a result{self.instead}"
                raise broken_rule_at(f"outputs[{i}].fields.{needed}", f"evidence {own} needs it", fix)
            for other in fields:
                if other not in (needed, *self.beside):
                    fix = f"leave it out, or write evidence: {other}"
                    raise broken_rule_at(f"outputs[{i}].fields.{other}", f"evidence {own} does not use it", fix)

    def check_names(self, declared: Declared) -> None:
        """Raise PydanticCustomError if outputs state other values than the oracle, or for fields that no event has."""
        oracle = self.oracle
        if self.stated.repeated and not oracle.answers_events:
            fix = "leave it out, or use passthrough, map or filter"
            raise broken_rule_at("oracle.values", "same(PATH) needs results of one event each", fix)
        if not oracle.tables and list(oracle.values.values()).count("count") > 1:
            raise broken_rule_at("oracle.values", "two values are the number of events", "name count once")
        for one in declared.inputs:
            one.check_paths(("oracle.values", path) for path in oracle.seen_from(one.topic).stated.paths)
        for i, output in enumerate(declared.outputs):
            names = output.fields.values
            if names.keys() != oracle.values.keys():
                fix = f"name exactly {', '.join(sorted(oracle.values))}, as oracle.values does"
                said = f"it names {', '.join(sorted(names))}" if names else "it is missing"
                raise broken_rule_at(f"outputs[{i}].fields.values", said, fix)
            for value in self.stated.stated:
                if names[value.name].tolerance and value.function in (*MODULAR, "same"):
                    what = "a repeated field" if value.function == "same" else "a sum modulo 2^64"
                    place = f"outputs[{i}].fields.values.{value.name}.tolerance"
                    raise broken_rule_at(place, f"{what} is exact", "leave it out")

    @property
    def needs_field(self) -> bool:
        """Whether a result must have the field that shows the evidence."""
        return True

    @property
    def cannot_see(self) -> tuple[str, ...]:
        """Sentences for people: which violations results with this evidence cannot show."""
        return ()

    @property
    def names_events(self) -> bool:
        """Whether fact rows have the ids of events: results name them, or state sums from which ids follow."""
        uses = self.stated.sums_of_ids is not None or self.oracle.reads.collapses
        return self.names_ids or (self.oracle.reads.has_ids and uses)

    @property
    def value_class(self) -> Literal["wrong_value", "inconsistent"] | None:
        """The class of a result that states a wrong value; None if none can be wrong."""
        # SEMANTICS 2.15: with ids, a value is judged by the events of its own result.
        if self.names_ids:
            return "inconsistent" if self.oracle.values else None
        return "wrong_value" if self.stated.stated else None

    def class_of(self, column: str) -> str:
        """Return the class of violations that the core counts in a column of this name."""
        return self.value_class or column if column == "wrong_value" else column

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

    def updates(self, it: Comparison, flags: Flags, sums: Mapping[str, Ints], *, drops_late: bool) -> Ints:
        """Return how many results of each cell state a newer number instead of one more, as far as numbers show it; 0:
        none. Negative: the last number still lacks events that the engine must use."""
        import numpy as np

        del flags, sums, drops_late
        return np.zeros(len(it.rows), dtype=np.int64)

    @abstractmethod
    def examples(
        self, it: Comparison, ids: IdVerdicts, is_known: Bools, sums: Mapping[str, Ints], wrong: WrongValues
    ) -> Examples:
        """Return examples of violations. ``is_known``: which ids some input has."""
