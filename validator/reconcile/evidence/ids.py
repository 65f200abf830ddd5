"""Results name the ids of the events that they used, and may state values beside them (SEMANTICS 2.32)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from validator.codecs.fingerprints import hash_a, hash_b, text_numbers
from validator.codecs.plain_fields import plain
from validator.model import arrays
from validator.model.arrays import Bools, Ints, coded, ints, listed, one_array, run_starts
from validator.oracles.ids import Flags, IdVerdicts
from validator.reconcile import beside_ids
from validator.reconcile.contributions import (
    INPUT,
    Comparison,
    Gathered,
    Items,
    TopicPartition,
    partition_numbers,
    partitions_of,
    sides_of,
)
from validator.reconcile.evidence.seam import (
    IDS_KEPT,
    VIOLATIONS_KEPT,
    EventIds,
    Evidence,
    Examples,
    StatedSums,
    WrongValues,
    columns_of_lists,
)
from validator.reconcile.record_groups import Groups


class Ids(Evidence):
    """Lists of ids, or one id."""

    names: ClassVar = ("ids", "id")
    names_ids: ClassVar = True
    moduli: ClassVar = (0, 0, 0)
    values_may_change: ClassVar = False

    @property
    def fingerprints_decide(self) -> bool:
        """False if results state values, of which fingerprints of ids show nothing."""
        # SEMANTICS 2.32: nor do fingerprints show whether values beside ids are right.
        return not self.oracle.checks_values

    def of_events(
        self, groups: Groups, events: pa.Table, ids: EventIds, contributing: Ints
    ) -> dict[str, pa.Array | Ints]:
        """Return hashes of the ids, and the fields of each event on which values beside ids depend."""
        hashed = ids.integers
        if ids.are_texts.any():
            hashed = np.where(ids.are_integers, ids.integers, 0)
            hashed[ids.are_texts] = text_numbers(ids.texts.drop_null() if ids.texts.null_count else ids.texts)
        found = {
            "hash_a": groups.sum(hash_a(hashed) * contributing),
            "hash_b": groups.sum(hash_b(hashed) * contributing),
        }
        if not self.oracle.checks_values or not self.stated.paths:
            return found
        columns = columns_of_lists(events["values"], len(self.stated.paths))
        return {**found, "aggregates": groups.fields_of_ids(columns, ids.are_integers, ids.are_texts)}

    def of_results(self, groups: Groups, results: pa.Table, are_decoded: Bools) -> StatedSums:
        """Return the numbers of ids and the sums of their hashes."""
        del groups, are_decoded
        ids, texts = one_array(results["ids"]), one_array(results["text_ids"])
        integers, of_texts = plain(ids.flatten()), text_numbers(texts.flatten())
        in_ids, in_texts = plain(pc.list_value_length(ids)), plain(pc.list_value_length(texts))
        # SEMANTICS 2.32: the ids count, not the number that a result states beside them.
        a, b = (_sums(term(integers), in_ids) + _sums(term(of_texts), in_texts) for term in (hash_a, hash_b))
        return StatedSums(in_ids + in_texts, a, b)

    def items(self, gathered: Gathered) -> tuple[Items, list[str], list[TopicPartition]]:
        """Return an entry for each id of an event and of a result."""
        partitions = partitions_of(gathered)
        parts: list[tuple[Ints, Ints, Ints, Ints, Ints, Ints]] = []
        texts: list[pa.Array] = []
        waiting: list[tuple[Ints, Ints, Ints, Ints]] = []
        for facts, cell in gathered:
            side, partition = sides_of(facts), partition_numbers(facts, partitions)
            parents, events = listed(facts["ids"])
            of_numbers = [(parents, ints(arrays.field(events, "offset")), ints(arrays.field(events, "id")))]
            parents, events = listed(facts["text_ids"])
            of_texts = [(parents, ints(arrays.field(events, "offset")), arrays.field(events, "id"))]
            parents, results = listed(facts["results"])
            offsets = ints(arrays.field(results, "offset"))
            of_result, ids = listed(arrays.field(results, "ids"))
            of_numbers.append((parents[of_result], offsets[of_result], ints(ids)))
            of_result, ids = listed(arrays.field(results, "text_ids"))
            of_texts.append((parents[of_result], offsets[of_result], ids))
            for rows, offset, numbers in of_numbers:
                parts.append((cell[rows], side[rows], partition[rows], offset, np.zeros_like(numbers), numbers))
            for rows, offset, names in of_texts:
                texts.append(names)
                waiting.append((cell[rows], side[rows], partition[rows], offset))
        codes, named = coded(texts)
        parts += [
            (cell, side, partition, offset, np.ones(len(code), dtype=np.int64), code)
            for (cell, side, partition, offset), code in zip(waiting, codes, strict=True)
        ]
        whole = [np.concatenate([part[i] for part in parts]) if parts else np.empty(0, np.int64) for i in range(6)]
        # Values beside ids are found by the place of the id.
        source = np.arange(len(whole[0])) if self.oracle.checks_values else None
        items = Items(*(np.asarray(column, dtype=np.int64) for column in whole))
        return replace(items, source=source), named, partitions

    def wrong_values(self, it: Comparison, flags: Flags, sums: Mapping[str, Ints], *, drops_late: bool) -> WrongValues:
        """Return which results state a value that does not follow from their ids."""
        del flags, sums, drops_late
        none = np.zeros(len(it.rows), dtype=np.bool_)
        if not self.oracle.checks_values:
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
        tolerances = dict(self.oracle.reads.tolerances)
        wrong, clauses = beside_ids.wrong_results(given, it.gathered, partitions, self.stated, tolerances)
        return WrongValues(wrong, none, none, clauses)

    def examples(
        self, it: Comparison, ids: IdVerdicts, is_known: Bools, sums: Mapping[str, Ints], wrong: WrongValues
    ) -> Examples:
        """Return the smallest `IDS_KEPT` ids of each violation, for the first `VIOLATIONS_KEPT` of each class, and what
        is wrong with values beside ids."""
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
    totals = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(values)])
    ends = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])
    sums: Ints = np.diff(totals[ends])
    return sums
