"""Results state aggregates of the events that they used, and not which they are (SEMANTICS 2.23 and 2.29)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from validator.model.classes import Guarantee
from validator.model.stated_values import ADDED, PRIMES, RISING
from validator.oracles import kinds as oracles
from validator.oracles.seam import Declared
from validator.reconcile.evidence.seam import (
    VIOLATIONS_KEPT,
    EventIds,
    Evidence,
    Examples,
    Shown,
    StatedSums,
    WrongValues,
)
from validator.settings.built import COLLAPSED_VALUES, HAVING
from validator.settings.errors import broken_rule_at

if TYPE_CHECKING:
    import pyarrow as pa

    from validator.model.arrays import Bools, Ints
    from validator.oracles.ids import Flags, IdVerdicts
    from validator.reconcile.contributions import Comparison, Gathered, Items, TopicPartition
    from validator.reconcile.record_groups import Groups


class Values(Evidence):
    """Numbers of events, and aggregates of their fields."""

    names: ClassVar = {"values": Shown("values", "aggregates such as their number, without ids")}
    names_ids: ClassVar = False
    # SEMANTICS 2.29: fingerprints of values are sums modulo a prime.
    moduli: ClassVar = (0, *PRIMES)
    # SEMANTICS 2.29: until the cell would be missing, another result may give the value that is owed.
    values_may_change: ClassVar = True

    def check(self, declared: Declared) -> None:
        """Also refuse events with ids that nothing uses, and values that do not show what they are to show."""
        super().check(declared)
        oracle = self.oracle
        if not oracle.judges_values:
            oracle.check_values(declared)
            kinds = ", ".join(kind for kind, one in oracles.built().items() if one.judges_values)
            problem = f"values is not supported yet for oracle {oracle.kind}"
            raise broken_rule_at("outputs[0].evidence", problem, f"use one of {kinds}")
        if self.needs_field and not oracle.values:
            fix = "write a name and its aggregate: {clicks: count}"
            raise broken_rule_at("oracle.values", "evidence values needs it", fix)
        oracle.check_values(declared)
        self.check_names(declared)
        # SEMANTICS 2.34: with sums over ids, the ids of the events are looked up.
        looks_up = oracle.has_windows and (self.stated.sums_of_ids is not None or oracle.reads.collapses)
        for place, entry in declared.events:
            if entry.fields.id is not None and not (looks_up and place.startswith("inputs")):
                fix = "leave it out, or add count to oracle.values" if self.stated.digests else "leave it out"
                raise broken_rule_at(f"{place}.fields.id", "evidence values does not use it", fix)
        if oracle.reads.collapses:
            self._check_repeats(declared)
        self._check_bounds(declared)
        if not self.stated.show_number:
            self._check_without_count(declared)

    def _check_repeats(self, declared: Declared) -> None:
        """Raise PydanticCustomError for repeats that the pipeline drops and that cannot be recognised or judged."""
        if not self.oracle.reads.has_ids:
            i = next(i for i, one in enumerate(declared.inputs) if one.fields.id is None)
            problem = "repeated events cannot be recognised without ids"
            raise broken_rule_at(f"inputs[{i}].duplicates", problem, f"use count, or set inputs[{i}].fields.id")
        if not self.counts_ids or declared.set_aside or self.oracle.having or self.oracle.reads.explodes:
            raise broken_rule_at("inputs[0].duplicates", COLLAPSED_VALUES.problem, "use count, or evidence with ids")

    def _check_bounds(self, declared: Declared) -> None:
        """Raise PydanticCustomError for bounds that further events may undo, or that this oracle cannot judge."""
        oracle = self.oracle
        is_summed = any(output.emission == "incremental" for output in declared.outputs)
        is_judged = oracle.has_windows and oracle.merging_gap_us is None and oracle.pair_rule is None
        if oracle.having and (is_summed or not is_judged):
            raise broken_rule_at("oracle.having", HAVING.problem, "leave it out")
        for name in oracle.having or ():
            place, text = f"oracle.having.{name}", oracle.values.get(name)
            if text is None:
                raise broken_rule_at(place, "oracle.values has no such value", f"use one of {', '.join(oracle.values)}")
            if text.partition("(")[0] not in RISING:
                raise broken_rule_at(place, "a further event may take this value below the bound", "leave it out")

    def _check_without_count(self, declared: Declared) -> None:
        """Raise PydanticCustomError for what needs the number of events."""
        if declared.guarantee is not Guarantee.EXACTLY_ONCE:
            # SEMANTICS 4.1: without the number of events, a loss looks like a repeat.
            problem = f"values without count do not show whether a pipeline is {declared.guarantee}"
            raise broken_rule_at("guarantee", problem, "use exactly_once, or add count to oracle.values")
        for i, output in enumerate(declared.outputs):
            if output.envelope is not None:
                problem = "values without count do not show which results were withdrawn"
                raise broken_rule_at(f"outputs[{i}].envelope", problem, "add count to oracle.values")

    @property
    def counts_ids(self) -> bool:
        """Whether the pipeline drops repeats, so that results state how many different ids there are."""
        oracle = self.oracle
        has_cells = oracle.has_windows and oracle.merging_gap_us is None and oracle.pair_rule is None
        return oracle.reads.collapses and has_cells

    @property
    def needs_field(self) -> bool:
        """A result of one event counts one, also without a value."""
        return bool(self.oracle.values) or not self.oracle.answers_events

    @property
    def cannot_see(self) -> tuple[str, ...]:
        """Errors that cancel out, and parts of sessions."""
        if self.oracle.by_key:
            unseen = "a lost event of a key is seen once the key has no new events for a while, or at the end of a run"
            return (f"Results say how many events of a key they used, not which: {unseen}.",)
        if not self.stated.show_number:
            return (
                "Results do not say how many events they used: a loss or a repeat is a wrong value, if it changes one.",
            )
        unless = " if no stated value differs" if self.stated.stated else ""
        if self.oracle.pair_rule is not None:
            errors = "errors of one window cancel out"
            return (f"Results say how many pairs of events they used, not which: {errors}{unless}.",)
        errors = "a lost and a repeated event of one cell cancel out"
        found = (f"Results say how many events they used, not which: {errors}{unless}.",)
        parts = "Results without ids do not show whether the engine split a session, or named another end."
        return found if self.oracle.merging_gap_us is None else (*found, parts)

    @property
    def fingerprints_decide(self) -> bool:
        """Whether only counts and sums of events are stated."""
        # SEMANTICS 2.29: fingerprints do not show whether minima, maxima and averages are right, nor which events were
        # removed.
        return self.stated.add_up and not self.oracle.reads.signed and not self.counts_ids

    def of_events(
        self, groups: Groups, events: pa.Table, ids: EventIds, contributing: Ints
    ) -> dict[str, pa.Array | Ints]:
        """Return the aggregates of the fields of events, and fingerprints of the sums that results may state."""
        import numpy as np

        from validator.reconcile.values import columns_of_lists, fingerprints

        del contributing
        columns = columns_of_lists(events["values"], len(self.stated.paths))
        if not columns:
            nothing = groups.sum(np.zeros(events.num_rows, dtype=np.int64))
            return {"hash_a": nothing, "hash_b": nothing}
        if self.counts_ids:
            # SEMANTICS 2.29: which fields count is known once repeats are. No fingerprint decides.
            nothing = groups.sum(np.zeros(events.num_rows, dtype=np.int64))
            fields = groups.fields_of_ids(columns, ids.are_integers, ids.are_texts)
            return {"aggregates": fields, "hash_a": nothing, "hash_b": nothing}
        aggregates, sums = groups.aggregates(columns, self.stated.hashed)
        of_sums = [sums[one.place] if one.function in ADDED else None for one in self.stated.stated]
        hashes = fingerprints(of_sums, len(aggregates))
        return {"aggregates": aggregates, "hash_a": hashes[0], "hash_b": hashes[1]}

    def of_results(self, groups: Groups, results: pa.Table, are_decoded: Bools) -> StatedSums:
        """Return the stated numbers of events, and fingerprints of the stated sums."""
        import numpy as np

        from validator.codecs.plain_fields import numbers
        from validator.model.arrays import one_array
        from validator.reconcile.values import columns_of_lists, fingerprints

        stated, is_stated = numbers(one_array(results["count"]))
        # SEMANTICS 2.29: a result without the number of its events stands for all of them.
        are_answers = are_decoded & groups.are_last() if self.oracle.reads.replaces else are_decoded
        if not self.stated.show_number:
            stated = np.where(is_stated, stated, are_answers)
        columns = columns_of_lists(results["values"], len(self.stated.stated))
        of_sums = [
            column if one.function in ADDED else None for one, column in zip(self.stated.stated, columns, strict=True)
        ]
        a, b = (np.where(are_answers, each, 0) for each in fingerprints(of_sums, results.num_rows))
        return StatedSums(stated, a, b)

    def items(self, gathered: Gathered) -> tuple[Items, list[str], list[TopicPartition]]:
        """Return an entry for each fact row of events and for each result, all with the same id. If results state
        pairs, the id says which side an event is of (`validator.oracles.counted_pairs`)."""
        import numpy as np

        from validator.model.arrays import field, ints, listed
        from validator.reconcile.contributions import (
            OUTPUT,
            OWES_NOTHING,
            Items,
            partition_numbers,
            partitions_of,
            sides_of,
        )
        from validator.reconcile.copies import Copies

        # SEMANTICS 2.23: the events of a cell count as copies of one event, of which a result states a number. An
        # excuse of one event of a row excuses all of them.
        partitions = partitions_of(gathered)
        parts: list[tuple[Ints, ...]] = []
        for facts, cell in gathered:
            side, partition = sides_of(facts), partition_numbers(facts, partitions)
            if self.counts_ids:
                of, offset = Copies.of_facts(facts)[:2]
                parts.append((cell[of], side[of], partition[of], offset, np.ones_like(of), offset))
                rows, results = listed(facts["results"])
                offset, times = ints(field(results, "offset")), ints(field(results, "count"), 0)
                parts.append((cell[rows], side[rows], partition[rows], offset, times, offset))
                continue
            rows = np.flatnonzero(side != OUTPUT)
            first, last, times = (ints(facts[name])[rows] for name in ("first_offset", "last_offset", "contributions"))
            # SEMANTICS 2.6: the engine may have set aside each of the events that owe nothing: no more than their
            # offsets.
            times = np.where(side[rows] == OWES_NOTHING, last - first + 1, times)
            parts.append((cell[rows], side[rows], partition[rows], last, times, first))
            rows, results = listed(facts["results"])
            offset, times = ints(field(results, "offset")), ints(field(results, "count"), 0)
            parts.append((cell[rows], side[rows], partition[rows], offset, times, offset))
        cell, side, partition, offset, times, first = (
            np.concatenate([part[i] for part in parts]) if parts else np.empty(0, np.int64) for i in range(6)
        )
        same = np.zeros_like(cell)
        id_ = same
        if (rule := self.oracle.pair_rule) is not None and len(cell):
            id_ = np.array([rule.number_of(topic) for topic, _ in partitions], dtype=np.int64)[partition]
        return Items(cell, side, partition, offset, same, id_, times, first, np.arange(len(cell))), [], partitions

    def owed(
        self, gathered: Gathered, items: Items, flags: Flags, size: int, *, drops_late: bool
    ) -> tuple[Items, Flags]:
        """Return the entries and flags, as far as they depend on `having` and on the number that results state."""
        from validator.reconcile.known_values import standing_for_all, under_bounds

        if self.counts_ids:
            from validator.reconcile.copies import Copies

            items, flags = Copies.of(gathered).counted_once(items, flags)
        if self.oracle.having:
            items, flags = under_bounds(self.stated, gathered, items, flags, size, drops_late=drops_late)
        return (standing_for_all(items, flags) if not self.stated.show_number else items), flags

    def wrong_values(self, it: Comparison, flags: Flags, sums: Mapping[str, Ints], *, drops_late: bool) -> WrongValues:
        """Return the cells whose results state a wrong value, and those that wait for the engine to consume their
        events."""
        import numpy as np

        from validator.reconcile.contributions import INPUT, LATE, OUTPUT, OWES_NOTHING, REJECTED
        from validator.reconcile.known_values import Known
        from validator.reconcile.values import Answered, wrong_cells

        values, items, size = self.stated, it.items, len(it.rows)
        none, nothing = np.zeros(size, dtype=np.bool_), np.zeros(len(it.results.cell), dtype=np.bool_)
        if not values.stated:
            return WrongValues(nothing, none, none)
        # SEMANTICS 2.29: a value is judged if every event of the cell is answered, but those that the engine may drop.
        may_drop = (flags.late | flags.doubtful | flags.elsewhere) & drops_late
        dropped = sums["dropped_late"] + sums["doubtful"] + sums["elsewhere"]
        left = sums["outstanding"] - (dropped if drops_late else 0)
        has_results = np.bincount(items.cell[items.side == OUTPUT], minlength=size) > 0
        judged = has_results & (left == 0) & (sums["duplicate"] + sums["foreign"] == 0) & (sums["expected"] > 0)

        def has(chosen: Bools) -> Bools:
            found: Bools = np.bincount(items.cell, chosen, minlength=size) > 0
            return found

        of_input = items.side == INPUT
        all_used = sums["outstanding"] == 0
        if not values.show_number:
            # SEMANTICS 2.29: whether such a result used an event is not known.
            all_used &= ~has(of_input & may_drop)
        # SEMANTICS 2.29: an event that is not consumed, or an answer that may have expired, may be what the value
        # lacks, even if the number is right: another event may be repeated in its place.
        waits = judged & has(of_input & flags.unread)
        judged &= ~waits & ~has(of_input & flags.unsure)
        # SEMANTICS 2.6: an event that owes nothing may be what was set aside. 2.12: whose pairs lack it is not known.
        if self.counts_ids:
            from validator.reconcile.copies import Copies

            judged &= ~Copies.of(it.gathered).differ(it.gathered, items, values, size)
        has_aside = has((items.side == LATE) | (items.side == REJECTED))
        judged &= ~has_aside | (~has(items.side == OWES_NOTHING) & (self.oracle.pair_rule is None))
        if not judged.any():
            return WrongValues(nothing, none, waits)
        known = Known.of(it.gathered, items, values, size, of_copies=self.counts_ids)
        pair_rule = self.oracle.pair_rule

        def answered(cell: int, place: int) -> Answered:
            used = bool(all_used[cell])
            if pair_rule is None:
                return known.answered(cell, place, may_drop, all_used=used)
            return known.answered_pairs(cell, values, place, may_drop, all_used=used, rule=pair_rule)

        tolerances = dict(self.oracle.reads.tolerances)
        clauses = wrong_cells(values, tolerances, np.flatnonzero(judged).tolist(), answered, known.stated)
        are_wrong = none.copy()
        are_wrong[list(clauses)] = True
        return WrongValues(nothing, are_wrong, waits, clauses)

    def updates(self, it: Comparison, flags: Flags, sums: Mapping[str, Ints], *, drops_late: bool) -> Ints:
        """Return the updates of the cells whose numbers are too large together, rise, and end with what is owed."""
        import numpy as np

        from validator.model.arrays import NEVER, counts
        from validator.reconcile.contributions import INPUT, LATE, OUTPUT, REJECTED

        items, size, times = it.items, len(it.rows), it.items.times
        assert times is not None, "entries without ids have it"
        if not self.stated.show_number or not self.oracle.has_windows or self.oracle.answers_events:
            return np.zeros(size, dtype=np.int64)
        # SEMANTICS 4.29: a repeat states the same number again. Partitions have no order, so each rises by itself.
        at = np.flatnonzero((items.side == OUTPUT) & (times > 0))
        cell, number, partition = items.cell[at], times[at], items.partition[at]
        follows = (cell[1:] == cell[:-1]) & (partition[1:] == partition[:-1])
        falls = np.bincount(cell[1:][follows & (number[1:] < number[:-1])], minlength=size) > 0
        first, last = np.full(size, NEVER), np.zeros(size, dtype=np.int64)
        np.minimum.at(first, cell, number)
        np.maximum.at(last, cell, number)
        aside = counts(items.cell, (items.side == LATE) | (items.side == REJECTED), size, times)
        may_lack = flags.unread | flags.unsure | ((flags.late | flags.doubtful | flags.elsewhere) & drops_late)
        may_lack = np.bincount(items.cell, (items.side == INPUT) & may_lack, minlength=size) > 0
        if self.oracle.pair_rule is not None:
            # SEMANTICS 2.12: which pairs were set aside is not known.
            may_lack |= aside > 0
            aside = np.zeros_like(aside)
        owed = sums["expected"] - aside
        are_updates = (sums["duplicate"] > 0) & ~falls & (first < last) & (last <= owed)
        many = np.where(are_updates, np.bincount(cell, minlength=size) - 1, 0)
        return np.where((last < owed) & ~may_lack, -many, many)

    def examples(
        self, it: Comparison, ids: IdVerdicts, is_known: Bools, sums: Mapping[str, Ints], wrong: WrongValues
    ) -> Examples:
        """Return what is wrong with values, and the ids of events that explain sums modulo 2^64, for the first
        `VIOLATIONS_KEPT` cells."""
        import numpy as np

        from validator.reconcile.known_values import Known, ids_of_events
        from validator.reconcile.named_by_sums import NAMED_MOST, IdsOfCell, Surplus
        from validator.reconcile.quantities import EXCUSES

        del ids, is_known
        found: Examples = {(int(it.rows[cell]), "wrong_value"): (clause,) for cell, clause in wrong.clauses.items()}
        values = self.stated
        if values.sums_of_ids is None or not self.names_events:
            return found
        more = sums["duplicate"] + sums["foreign"] - sums["outstanding"]
        # SEMANTICS 2.34: which events have an excuse is not known.
        excused = sum((sums[name] for name in EXCUSES), np.zeros_like(more))
        chosen = np.flatnonzero(np.where(more == 0, wrong.of_cells, (np.abs(more) <= NAMED_MOST) & (excused == 0)))
        chosen = chosen[:VIOLATIONS_KEPT]
        if not len(chosen):
            return found
        known = Known.of(it.gathered, it.items, values, len(it.rows), of_copies=self.counts_ids)
        of_sum, of_squares = values.sums_of_ids
        kind = dict(values.digests)[values.stated[of_sum].place].hash
        for cell, (integers, texts) in zip(chosen.tolist(), ids_of_events(it.gathered, chosen), strict=True):
            events = IdsOfCell.of(integers, texts, kind)
            sums_of_ids = known.surplus(cell, of_sum, values)
            squares = None if of_squares is None else known.surplus(cell, of_squares, values)
            if events is None or sums_of_ids is None or not events.fit(sums_of_ids[0]):
                continue
            surplus = Surplus(int(more[cell]), sums_of_ids[1], None if squares is None else squares[1])
            names = events.explaining(surplus)
            if names and more[cell] == 0:
                clause = f"{wrong.clauses[cell]}; one lost and one repeated event explain it"
                found[int(it.rows[cell]), "wrong_value"] = (clause, *names)
            elif names:
                name = "missing" if more[cell] < 0 else "duplicate" if sums["expected"][cell] else "unknown_id"
                found[int(it.rows[cell]), name] = names
        return found
