"""Results name the ids of the events that they used, and may state values beside them (SEMANTICS 2.32)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from validator.oracles.seam import Declared
from validator.reconcile.evidence.seam import (
    IDS_KEPT,
    VIOLATIONS_KEPT,
    EventIds,
    Evidence,
    Examples,
    Shown,
    StatedSums,
    WrongValues,
)
from validator.settings.built import HAVING, VALUES_BESIDE_IDS
from validator.settings.errors import broken_rule_at

if TYPE_CHECKING:
    import pyarrow as pa

    from validator.model.arrays import Bools, Ints
    from validator.oracles.ids import Flags, IdVerdicts
    from validator.reconcile.contributions import Comparison, Gathered, Items, TopicPartition
    from validator.reconcile.record_groups import Groups


class Ids(Evidence):
    """Lists of ids, or one id."""

    names: ClassVar = {"ids": Shown("ids", "a list"), "id": Shown("id", "of its one event")}
    names_ids: ClassVar = True
    moduli: ClassVar = (0, 0, 0)
    # SEMANTICS 2.32: values may be stated beside ids, and are checked against them.
    beside: ClassVar = ("values",)
    instead: ClassVar = "; if results state a number or a sum instead, write evidence: values"
    values_may_change: ClassVar = False

    def check(self, declared: Declared) -> None:
        """Also refuse events without an id, values that cannot be judged beside ids, and bounds of values."""
        super().check(declared)
        oracle = self.oracle
        if oracle.values or any(output.fields.values for output in declared.outputs):
            if not oracle.judges_values_beside_ids:
                fix = "leave it out, or use evidence values" if oracle.judges_values else "leave it out"
                raise broken_rule_at("oracle.values", VALUES_BESIDE_IDS.problem, fix)
            if not oracle.values:
                fix = "write each name and its aggregate: {clicks: count}"
                raise broken_rule_at("oracle.values", "results state values, and it is missing", fix)
            self.check_names(declared)
        fix = "name the path of the event's id"
        fix += "; if results carry no ids, write evidence: values" if oracle.judges_values else ""
        for place, entry in declared.events:
            if entry.fields.id is None:
                raise broken_rule_at(f"{place}.fields.id", "it is missing", fix)
        if oracle.having:
            raise broken_rule_at("oracle.having", HAVING.problem, "leave it out")

    @property
    def fingerprints_decide(self) -> bool:
        """False if results state values, of which fingerprints of ids show nothing."""
        # SEMANTICS 2.32: nor do fingerprints show whether values beside ids are right.
        return not self.oracle.values

    def of_events(
        self, groups: Groups, events: pa.Table, ids: EventIds, contributing: Ints
    ) -> dict[str, pa.Array | Ints]:
        """Return hashes of the ids, and the fields of each event on which values beside ids depend, or its own end."""
        import numpy as np

        from validator.codecs.fingerprints import hash_a, hash_b, text_numbers
        from validator.model.arrays import one_array
        from validator.reconcile.values import columns_of_lists

        hashed = ids.integers
        if ids.are_texts.any():
            hashed = np.where(ids.are_integers, ids.integers, 0)
            hashed[ids.are_texts] = text_numbers(ids.texts.drop_null() if ids.texts.null_count else ids.texts)
        found = {
            "hash_a": groups.sum(hash_a(hashed) * contributing),
            "hash_b": groups.sum(hash_b(hashed) * contributing),
        }
        width = 1 if self.oracle.own_end else len(self.stated.paths)
        # Late and rejected records have no own end.
        if not width or not len(one_array(events["values"]).flatten()):
            return found
        columns = columns_of_lists(events["values"], width)
        return {**found, "aggregates": groups.fields_of_ids(columns, ids.are_integers, ids.are_texts)}

    def of_results(self, groups: Groups, results: pa.Table, are_decoded: Bools) -> StatedSums:
        """Return the numbers of ids and the sums of their hashes."""
        import pyarrow.compute as pc

        from validator.codecs.fingerprints import hash_a, hash_b, text_numbers
        from validator.codecs.plain_fields import plain
        from validator.model.arrays import one_array

        del groups, are_decoded
        ids, texts = one_array(results["ids"]), one_array(results["text_ids"])
        integers, of_texts = plain(ids.flatten()), text_numbers(texts.flatten())
        in_ids, in_texts = plain(pc.list_value_length(ids)), plain(pc.list_value_length(texts))
        # SEMANTICS 2.32: the ids count, not the number that a result states beside them.
        a, b = (_sums(term(integers), in_ids) + _sums(term(of_texts), in_texts) for term in (hash_a, hash_b))
        return StatedSums(in_ids + in_texts, a, b)

    def items(self, gathered: Gathered) -> tuple[Items, list[str], list[TopicPartition]]:
        """Return an entry for each id of an event and of a result."""
        import numpy as np

        from validator.model.arrays import coded, field, ints, listed
        from validator.reconcile.contributions import Items, partition_numbers, partitions_of, sides_of

        partitions = partitions_of(gathered)
        parts: list[tuple[Ints, Ints, Ints, Ints, Ints, Ints]] = []
        texts: list[pa.Array] = []
        waiting: list[tuple[Ints, Ints, Ints, Ints]] = []
        for facts, cell in gathered:
            side, partition = sides_of(facts), partition_numbers(facts, partitions)
            parents, results = listed(facts["results"])
            offsets = ints(field(results, "offset"))
            for name in ("ids", "text_ids"):
                rows, events = listed(facts[name])
                of_result, carried = listed(field(results, name))
                of_events = (rows, ints(field(events, "offset")), field(events, "id"))
                for at, offset, ids in (of_events, (parents[of_result], offsets[of_result], carried)):
                    place = (cell[at], side[at], partition[at], offset)
                    if name == "ids":
                        parts.append((*place, np.zeros_like(offset), ints(ids)))
                    else:
                        texts.append(ids)
                        waiting.append(place)
        codes, named = coded(texts)
        parts += [
            (cell, side, partition, offset, np.ones(len(code), dtype=np.int64), code)
            for (cell, side, partition, offset), code in zip(waiting, codes, strict=True)
        ]
        whole = [np.concatenate([part[i] for part in parts]) if parts else np.empty(0, np.int64) for i in range(6)]
        # Values beside ids, and own ends, are found by the place of the id.
        source = np.arange(len(whole[0])) if self.oracle.values or self.oracle.own_end else None
        items = Items(*(np.asarray(column, dtype=np.int64) for column in whole))
        return replace(items, source=source), named, partitions

    def wrong_values(self, it: Comparison, flags: Flags, sums: Mapping[str, Ints], *, drops_late: bool) -> WrongValues:
        """Return which results state a value that does not follow from their ids."""
        import numpy as np

        from validator.model.arrays import run_starts
        from validator.reconcile import beside_ids
        from validator.reconcile.contributions import INPUT, partition_numbers

        del flags, sums, drops_late
        none = np.zeros(len(it.rows), dtype=np.bool_)
        if not self.oracle.values:
            return WrongValues(np.zeros(len(it.results.cell), dtype=np.bool_), none, none)
        assert it.items.source is not None, "values need it"
        order = np.argsort(it.results.number, kind="stable")
        carried = it.results.items[order]
        firsts = carried[run_starts(it.results.number[order])]
        events = np.flatnonzero(it.items.side == INPUT)
        given = beside_ids.Named(
            cell=it.items.cell[firsts],
            partition=it.items.partition[firsts],
            offset=it.items.offset[firsts],
            result=it.results.number[order],
            group=it.group[carried],
            event_group=it.group[events],
            event_source=it.items.source[events],
        )
        partitions = [partition_numbers(facts, it.named) for facts, _ in it.gathered]
        if it.of_rows is not None:
            wrong, clauses = beside_ids.wrong_rows(given, it.gathered, partitions, self.stated, it.of_rows)
            return WrongValues(wrong, none, none, clauses)
        tolerances = dict(self.oracle.reads.tolerances)
        wrong, clauses = beside_ids.wrong_results(given, it.gathered, partitions, self.stated, tolerances)
        return WrongValues(wrong, none, none, clauses)

    def examples(
        self, it: Comparison, ids: IdVerdicts, is_known: Bools, sums: Mapping[str, Ints], wrong: WrongValues
    ) -> Examples:
        """Return the smallest `IDS_KEPT` ids of each violation, for the first `VIOLATIONS_KEPT` of each class, and what
        is wrong with values beside ids."""
        import numpy as np

        from validator.model.arrays import run_starts

        del sums
        of_class = {
            # Ids with an excuse are left out. The cell's state decides whether the others are missing.
            "missing": ids.outstanding > ids.dropped_late + ids.unconsumed + ids.doubtful + ids.elsewhere,
            "duplicate": ids.duplicate > 0,
            "misplaced": (ids.foreign > 0) & is_known,
            "unknown_id": (ids.foreign > 0) & ~is_known,
        }
        found: Examples = {}
        for name, concerned in of_class.items():
            chosen = np.flatnonzero(concerned)
            cell = ids.cell[chosen]
            firsts = np.flatnonzero(run_starts(cell))
            starts, ends = firsts[:VIOLATIONS_KEPT], np.append(firsts, len(cell))[1:]
            for start, end in zip(starts.tolist(), ends.tolist(), strict=False):
                some = chosen[start : min(end, start + IDS_KEPT)]
                shown = tuple(
                    it.texts[code] if text else str(code)
                    for text, code in zip(ids.is_text[some].tolist(), ids.id[some].tolist(), strict=True)
                )
                found[int(it.rows[cell[start]]), name] = shown
        return found | {(int(it.rows[cell]), "wrong_value"): (clause,) for cell, clause in wrong.clauses.items()}


def _sums(values: Ints, lengths: Ints) -> Ints:
    """Return the sums of consecutive stretches of these lengths, modulo 2**64."""
    import numpy as np

    totals = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(values)])
    ends = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])
    sums: Ints = np.diff(totals[ends])
    return sums
