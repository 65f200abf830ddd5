"""The rules of SEMANTICS sections 2 to 4 by brute force: an independent second opinion on every verdict.

Plain Python that shares no code with the core. Every judgement is computed from the whole prefix of the history, in the
most literal way; `clock.py` holds the half that concerns time. The reference covers evidence `ids`, emission `final`, a
tumbling window, and lateness by partition.

Where SEMANTICS leaves a choice open, or where its words as written accuse a correct engine, this reference makes a
choice that cannot raise a false alarm:

 1. A cell is closed when watermark >= window end (not >): an event at exactly the watermark belongs to a later window.
    The end is the window's own end. The watermark is behind by `max_disorder` and `allowed_lateness`: a correct engine
    may keep the window open for both.
 2. The watermark stays while a partition that counts (one that is not idle) has no event that may move it, and while no
    partition counts. Any visible record, decodable or not, keeps its partition from being idle, and so does an expired
    range [6]. A partition is known from the first step that lists it. The watermark never falls when one is added.
 3. AMENDS SEMANTICS twice, for idle partitions. The watermark must stop where a correct engine's watermark stops:
    a. A partition with unread records at the newest lookup (next offset < high watermark) is not idle, however long ago
       its last record was read. Otherwise a reader that lags on one partition would close cells by the other partitions
       alone.
    b. Idle partitions leave the minimum only while some input partition is *surely active*: its last record was
       appended after T - idle_after, where T is the newest lookup. This is certain if the partition's read-through
       time, before the batch that read this record, was >= T - idle_after. Otherwise all partitions count. Without this
       rule, if all partitions fall silent within a batch or two of each other, the one that was read last would be
       alone in the minimum for a moment. An engine may have seen them fall silent in another order, or at once, and its
       watermark then stays for good.
    c. The batches may be so far apart that no partition is surely active at T. When the newest record of a partition
       was appended (at the read-through time before the batch that read it, or later), the partitions whose data had
       been read idle_after before that were idle. The minimum over the others has therefore been reached.
 4. AMENDS SEMANTICS: a cell is out of scope when its start <= (not <) first event time + max_disorder of a partition
    with a hidden start. A hidden event may have exactly this time, and its window may start there. The horizon is the
    latest of these times over all such partitions, and holds for the cells of all partitions. "First event" is the
    decodable event with the lowest offset. If it is too far ahead to move the watermark, the lookup that read it plus
    `max_ahead` takes the place of its time: a broken clock must not put all cells out of scope.
 5. While a partition with a hidden start has no event, every cell is out of scope: its hidden events can have any time.
    A start is hidden if start_offset > log_start or log_start > 0 at the first lookup.
 6. Input has expired if a step's log_start > its start_offset. Once an input record is undecodable or expired, no
    unknown_id is confirmed (the count stays). AMENDS SEMANTICS: each such record may also be the copy that explains a
    duplicate (under `count`) or a misplaced id, but it explains only one contribution. Duplicates are therefore held
    while they, the misplaced and the unknown ids together are no more than the hidden records (every expired offset
    counts as one). Beyond that number no exactly-once engine can have caused them, and all are confirmed. Misplaced ids
    are held while they and the unknown ids, each counted once per cell, are no more than the hidden records: an
    at-least-once engine may repeat each answer.
 7. If answers (output, late, rejected) may have expired, a copy is overdue instead of missing. A gap is a hidden start
    of an answer partition, or an expired range in it, found at step j. It can hide the answer to a copy at offset o of
    input partition q if o < high watermark of q as of step j, or if q was not listed then. It cannot if the answer
    partition's read-through time before step j had already reached due base + missing_after.
 8. An undecodable late or rejected record may be the answer to one copy. While there are at least as many of them as
    `missing` contributions, none of these is confirmed (the count stays). An undecodable result holds nothing, since it
    is a violation itself.
 9. A contribution is blocked if its cell is closed and not overdue, but would be overdue if only answer
    partitions without an open transaction counted (last stable = high watermark at the newest lookup). Overdue and
    missing contributions are never blocked.
10. Without a known input partition, no observation is ever resolved. Without a known answer partition, nothing is ever
    due.
11. dropped_late and unconsumed are split off if the cell's outstanding contributions are overdue or missing; a pending
    or blocked contribution stays so (but see [19]). Of the n outstanding copies of an id, unconsumed =
    min(n, copies at or past the committed offset). Then dropped_late = min(rest, late copies below that offset). Of the
    other copies, the unprovable ones ([7], [20]) are overdue, and the rest have the cell's class. All copies
    on all partitions count, answered or not.
12. A partition for which the configured group has committed nothing counts as committed at 0: all of it is unconsumed.
    The newest step's commits count. If a step lists no commits, no group is configured.
13. collapse: e is 1 per (cell, id), whatever the number of copies. Copies in other cells are contributions there. If
    there are n further copies, up to n records that were set aside are not in excess: each may be one of these copies.
    One late (unconsumed, unprovable) copy is enough to make the contribution dropped_late (unconsumed, overdue). A copy
    is late, or may be late, if the id's first copy in its partition and cell is or may be: the engine has read this
    copy before the others.
14. Precedence within e: processed, then late, then rejected. p + l + r beyond e is the excess. In a cell in scope it is
    unresolved, or else duplicate (e > 0), misplaced (e = 0 and the id belongs to any input event, even one out of
    scope), or unknown_id. The excess of one (cell, id) has one class.
15. A result without ids is an observation of its cell: it moves the instant from which excess can be resolved. So do
    late and rejected records.
16. In a cell out of scope, all e contributions have this class. Observations are not judged there (no duplicate,
    misplaced or unknown_id), and the cell's results are `unjudged`.
17. The class of a result is the first that holds: undecodable; unjudged (the cell is out of scope, or some input's
    read-through time is before the lookup of the step that last read an observation of the cell, with or without
    excess); misplaced (it carries an id that has e = 0 here and belongs to some input event); excess (it raises p of an
    id above its e, in order of topic, partition, offset; an unknown id does so at once); incomplete (the *cell* has
    outstanding contributions of any class); correct. Two results with disjoint ids that together complete a cell are
    both correct.
18. There is one violation per (class, cell, id), and one per position for undecodable results. `confirmed` depends on
    the prefix alone: retracted = ever confirmed, less confirmed now. A late event of a cell extends the time of all its
    outstanding ids, so a missing one may be retracted and confirmed once more. A confirmed violation stays confirmed
    while it is counted, whatever is hidden from then on: every record that could have caused it had been read.
19. --once closes every cell and decides all excess, without timers. An outstanding contribution is blocked if an answer
    partition with an open transaction has not been read through to due base + missing_after (a cell that the watermark
    has not passed has no due base, and is blocked). Otherwise it is missing; dropped_late, unconsumed and [7] are split
    off `missing`. Excess stays unresolved while an input partition has an open transaction. --leave-open does the same,
    but a cell that the watermark has not passed stays pending. With either option, unconsumed is also split off blocked
    and pending contributions. Neither option moves the watermark or checks whether the last step reached the ends.
20. AMENDS SEMANTICS: an undecodable or expired input record may have advanced the engine's time in its partition, to
    any instant up to `max_ahead` after the lookup that found it. Under policy `drop`, a later copy in this partition is
    unprovable if its window could then legally have closed: overdue instead of missing. In a join, no partner is owed
    for it. An event further ahead than `max_ahead` may also have advanced the engine's time, up to the end of the
    event's window, since an engine may have no such limit.
21. In a compacted topic an offset without a visible record may have had one. It is hidden like an expired offset ([6],
    [7], [20]); in an input it may lie anywhere in the step's range. If any topic is compacted, gaps of answers may
    occur in every step. [7] then takes them as one gap: from the earliest read-through time before a gap up to the
    highest high watermark of any gap.
22. A run can end after any step with an `ending`, and the next run continues. If nothing of a cell was read since, its
    excess stays decided, and its outstanding contributions stay missing (blocked while a transaction holds back an
    answer partition) if the end closed the cell or found it closed. Otherwise only the watermark closes the cell. The
    ending of a step that decided nothing must be "none".
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from tests.property.clock import Clock
from tests.property.history import (
    ANSWERS,
    SIDE_CHANNELS,
    Cell,
    Ending,
    History,
    InputEvent,
    LateRecord,
    Record,
    ResultRecord,
    Step,
    Undecodable,
)

VIOLATIONS: Final = ("missing", "duplicate", "misplaced", "unknown_id")
"""The classes of a contribution that are violations."""


@dataclass(frozen=True, slots=True, order=True)
class Violation:
    """One finding. An undecodable result has no cell: its key is "topic/partition", its id the offset."""

    kind: str
    window_start_us: int
    key: str
    id: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """The complete judgement after one step."""

    step: int
    input_watermark_us: int | None
    contributions: dict[Cell, dict[str, Counter[str]]]
    """(window_start_us, key) -> id -> class -> how many; classes at 0 are left out."""
    closed: dict[Cell, bool]
    totals: Counter[str]
    """Class -> how many, over all cells; `expected`: the sum of e over all cells in scope."""
    results: Counter[str]
    confirmed: frozenset[Violation]
    suspected: frozenset[Violation]
    """Violations that would be confirmed if no record had been undecodable, expired or compacted away."""
    held: frozenset[str]
    """The kinds of which no violation is confirmed."""
    ever_confirmed: frozenset[Violation] = frozenset()
    retracted: frozenset[Violation] = frozenset()


class Reference:
    """One prefix of a history, judged. `ending` is "none" except for the conclusion after the last step."""

    clock_type: ClassVar[type[Clock]] = Clock

    def __init__(self, history: History, upto_step: int, ending: Ending) -> None:
        self.timing = history.timing
        self.steps = history.steps[: upto_step + 1]
        self.ending = ending
        self.sets_aside = any(state.role in SIDE_CHANNELS for step in history.steps for state in step.partitions)
        self.clock = self.clock_type(self.timing, self.steps)
        self.copies: dict[tuple[Cell, str], list[InputEvent]] = defaultdict(list)
        self.observed: dict[tuple[Cell, str], Counter[str]] = defaultdict(Counter)
        self.results: dict[Cell, list[ResultRecord]] = defaultdict(list)
        self.last_observed_us: dict[Cell, int] = {}
        self.undecodable: list[Undecodable] = []
        self.all_ids: set[str] = set()
        for step in self.steps:
            for record in step.records:
                self._take(step, record)

    def _take(self, step: Step, record: Record) -> None:
        match record:
            case InputEvent():
                self.all_ids.add(record.id)
                for cell in self.clock.cells_of(record):
                    self.clock.touched[cell].append(step.lookup_us)
                    self.copies[cell, record.id].append(record)
            case ResultRecord():
                cell = self.clock.cell_of(record)
                self.results[cell].append(record)
                self.clock.touched[cell].append(step.lookup_us)
                self.last_observed_us[cell] = step.lookup_us
                for id_ in record.ids:
                    self.observed[cell, id_]["output"] += 1
            case LateRecord():
                for cell in self.clock.cells_of(record):
                    self.clock.touched[cell].append(step.lookup_us)
                    self.last_observed_us[cell] = step.lookup_us
                    self.observed[cell, record.id][record.role] += 1
            case Undecodable():
                self.undecodable.append(record)

    # Section 2: the classes of a (cell, id)

    def cells(self) -> list[Cell]:
        """Every cell that an event, a result or a late record named."""
        return sorted({cell for cell, _ in self.copies} | set(self.last_observed_us))

    def ids(self, cell: Cell) -> list[str]:
        """Every id that an event, a result or a late record placed in a cell."""
        return sorted({id_ for at, id_ in (*self.copies, *self.observed) if at == cell})

    def expected(self, cell: Cell, id_: str) -> int:
        """e(c, id): the copies that producers sent, or one where the pipeline drops repeats [13]."""
        copies = len(self.copies.get((cell, id_), ()))
        return min(copies, 1) if self.timing.duplicates == "collapse" else copies

    def classes(self, cell: Cell, id_: str) -> Counter[str]:
        """The classes of one (cell, id), by the table of section 2."""
        e = self.expected(cell, id_)
        if not self.clock.in_scope(cell):
            return +Counter({"out_of_scope": e})
        seen = self.observed.get((cell, id_), Counter())
        processed = min(e, seen["output"])
        late = min(e - processed, seen["late"])
        rejected = min(e - processed - late, seen["rejected"])
        found = Counter({"processed": processed, "late": late, "rejected": rejected})
        found.update(self.outstanding(cell, id_, e - processed - late - rejected))
        found[self.excess_class(cell, id_)] += self.excess(cell, id_, e)
        return +found

    def excess(self, cell: Cell, id_: str, expected: int) -> int:
        """How many observations of a (cell, id) exceed the expectation. With collapsed repeats, an engine may set a
        repeat aside as late or rejected before it detects the repetition [13]."""
        seen = self.observed.get((cell, id_), Counter())
        repeats = len(self.copies.get((cell, id_), ())) - expected
        return max(0, seen.total() - min(seen["late"] + seen["rejected"], max(0, repeats)) - expected)

    def excess_class(self, cell: Cell, id_: str) -> str:
        """The class of an observation in excess."""
        if not self.is_resolved(cell):
            return "unresolved"
        if self.expected(cell, id_) > 0:
            return "duplicate"
        return "misplaced" if id_ in self.all_ids else "unknown_id"

    def is_resolved(self, cell: Cell) -> bool:
        """Whether "every input's read-through time has passed the lookup time of the batch that first read it". By
        ARCHITECTURE, the batch is the last one that read observations of the cell."""
        if self.ending in ("once", "leave_open") or self.clock.is_resting(cell):
            return not self.clock.held("input")
        inputs = self.clock.places("input")
        return bool(inputs) and self.clock.proven(self.last_observed_us.get(cell, 0), inputs)

    # Section 2 and 3: what is outstanding, and since when

    def outstanding(self, cell: Cell, id_: str, count: int) -> Counter[str]:
        """The outstanding copies of one (cell, id), split into their classes [11]."""
        found: Counter[str] = Counter()
        standing = self.standing(cell)
        is_late_enough = standing in {"overdue", "missing"}
        if count and (is_late_enough or self.ending != "none"):
            dropped, unconsumed, unprovable = self.excuses(cell, id_)
            found["unconsumed"] = min(count, unconsumed)
            count -= found["unconsumed"]
            if is_late_enough:
                found["dropped_late"] = min(count, dropped)
                count -= found["dropped_late"]
            if standing == "missing":
                found["overdue"] = min(count, unprovable)
                count -= found["overdue"]
        found[standing] += count
        return found

    def excuses(self, cell: Cell, id_: str) -> tuple[int, int, int]:
        """How many copies came too late under policy `drop`, are not consumed yet, or have an answer that may be
        unreadable."""
        base = self.clock.due_base(cell)
        dropped = unconsumed = unprovable = 0
        for copy in self.excusing(cell, id_):
            judged = self.first_copy(copy, cell) if self.drops_repeats else copy
            if self.is_unconsumed(copy):
                unconsumed += 1
            elif self.is_dropped(judged, cell):
                dropped += 1
            elif self.may_be_dropped(judged, cell) or not self.clock.is_provable(copy, base):
                unprovable += 1
        return dropped, unconsumed, unprovable

    def excusing(self, cell: Cell, id_: str) -> Sequence[InputEvent]:
        """The copies of a (cell, id) that can excuse an outstanding contribution."""
        return self.copies[cell, id_]

    def first_copy(self, event: InputEvent, cell: Cell) -> InputEvent:
        """The first copy of an event in its partition and cell. An engine that drops repeats has read it first [13]."""
        copies = self.copies[cell, event.id]
        place = (event.topic, event.partition)
        return min((copy for copy in copies if (copy.topic, copy.partition) == place), key=lambda copy: copy.offset)

    def is_dropped(self, event: InputEvent, cell: Cell) -> bool:
        """Whether an event came too late under policy `drop`."""
        return self.timing.late_policy == "drop" and self.clock.is_late(event, cell)

    def may_be_dropped(self, event: InputEvent, cell: Cell) -> bool:
        """Whether the engine may have dropped an event as late if it could decode more than the validator [20]."""
        return self.timing.late_policy == "drop" and self.clock.may_be_late(event, cell)

    def is_unconsumed(self, event: InputEvent) -> bool:
        """Whether an event is "at or past the engine's committed offset" [12]."""
        committed = self.clock.now.committed
        return committed is not None and event.offset >= committed.get((event.topic, event.partition), 0)

    def unconsumed_overdue(self, cell: Cell, classes: Counter[str]) -> int:
        """How many contributions of a cell would be missing if the engine had consumed them. ``classes``: the cell's
        contributions by class. If there are any, the guarantees that forbid a loss are unknown."""
        return classes["unconsumed"] if self.standing(cell) == "missing" else 0

    def standing(self, cell: Cell) -> str:
        """The class of a cell's outstanding contributions before copies are excused: pending, blocked, overdue or
        missing."""
        base = self.clock.due_base(cell)
        if self.ending == "once" or (self.ending == "leave_open" and base is not None):
            return self._standing_at_rest(base)
        answers = self.clock.places(*ANSWERS)
        if base is None or not answers:
            return "pending"
        if self.clock.proven(base + self.timing.missing_after_us, answers):
            return "missing"
        if self.clock.is_left_due(cell):
            return "blocked" if self.clock.held(*ANSWERS) else "missing"
        if self.clock.proven(base + self.timing.overdue_after_us, answers):
            return "overdue"
        free = [place for place in answers if place not in self.clock.held(*ANSWERS)]
        if self.clock.proven(base + self.timing.overdue_after_us, free):
            return "blocked"
        return "pending"

    def _standing_at_rest(self, base: int | None) -> str:
        """ "Outstanding becomes missing; what an open transaction holds stays `blocked`" [19]."""
        held = self.clock.held(*ANSWERS)
        if base is None:
            return "blocked" if held else "missing"
        return "missing" if self.clock.proven(base + self.timing.missing_after_us, held) else "blocked"

    # Section 2: the classes of results

    def result_classes(self, cell: Cell) -> Iterator[str]:
        """The class of each result of a cell, "by the first that holds" [17]."""
        found = {id_: self.classes(cell, id_) for id_ in self.ids(cell)}
        settled = ("processed", "late", "rejected")
        complete = all(sum(found[id_][name] for name in settled) == self.expected(cell, id_) for id_ in found)
        so_far: Counter[str] = Counter()
        for result in sorted(self.results[cell], key=lambda at: (at.topic, at.partition, at.offset)):
            before, so_far = so_far, so_far + Counter(result.ids)
            if not self.clock.in_scope(cell) or not self.is_resolved(cell):
                yield "unjudged"
            elif any(self.expected(cell, id_) == 0 and id_ in self.all_ids for id_ in result.ids):
                yield "misplaced"
            elif any(so_far[id_] > max(before[id_], self.expected(cell, id_)) for id_ in result.ids):
                yield "excess"
            else:
                yield "correct" if complete else "incomplete"

    # Section 2 and 4: violations

    def is_held(self, kind: str, found: Sequence[tuple[Cell, Counter[str]]]) -> bool:
        """Whether unreadable records might explain the violations of this kind [6, 8]. ``found``: the classes of each
        (cell, id)."""
        if kind == "missing":
            answers = self.hidden_answers()
            return answers > 0 and self.to_explain(found, {kind}) <= answers
        hidden = self.hidden_inputs()
        if kind == "unknown_id":
            return hidden > 0
        if kind not in self.explicable() or not hidden:
            return False
        if kind == "misplaced":
            return sum(bool(classes["misplaced"] or classes["unknown_id"]) for _, classes in found) <= hidden
        return self.to_explain(found, self.explicable()) <= hidden

    def hidden_answers(self) -> int:
        """How many undecodable late and rejected records there are: each may answer any event [8]."""
        return sum(record.role in SIDE_CHANNELS for record in self.undecodable)

    def hidden_inputs(self) -> int:
        """The largest number of input records whose content is unknown [6]."""
        undecodable = sum(record.role == "input" for record in self.undecodable)
        places = self.clock.places("input")
        compacted = sum(self.clock.vanished(step, place) for step in self.steps for place in places)
        return undecodable + compacted + sum(self.clock.expired_offsets(place) for place in places)

    def explicable(self) -> set[str]:
        """The kinds that one more input record would explain. Where repeats are dropped, a copy does not raise e, but
        may explain a record that was set aside [13]."""
        copies_explain = not self.drops_repeats or self.sets_aside
        return {"misplaced", "unknown_id"} | ({"duplicate"} if copies_explain else set())

    @property
    def drops_repeats(self) -> bool:
        """Whether a correct engine drops repeated ids."""
        return self.timing.duplicates == "collapse"

    def to_explain(self, found: Sequence[tuple[Cell, Counter[str]]], kinds: AbstractSet[str]) -> int:
        """The number of contributions of these kinds. Each hidden record explains one."""
        return sum(classes[kind] for _, classes in found for kind in kinds)

    def judge(self) -> Judgement:
        """The judgement of this prefix, without the history of its violations."""
        contributions = {cell: {id_: self.classes(cell, id_) for id_ in self.ids(cell)} for cell in self.cells()}
        totals = Counter(
            expected=sum(self.expected(cell, id_) for cell, id_ in self.copies if self.clock.in_scope(cell))
        )
        violations: set[Violation] = set()
        for cell, ids in contributions.items():
            for id_, found in ids.items():
                totals.update(found)
                violations |= {Violation(kind, *cell, id_) for kind in VIOLATIONS if found[kind]}
        results = Counter(name for cell in self.results for name in self.result_classes(cell))
        lost = [record for record in self.undecodable if record.role == "output"]
        results["undecodable"] += len(lost)
        violations |= {Violation("undecodable", 0, f"{at.topic}/{at.partition}", str(at.offset)) for at in lost}
        found_of = [(cell, found) for cell, ids in contributions.items() for found in ids.values()]
        held = frozenset(kind for kind in VIOLATIONS if self.is_held(kind, found_of))
        suspected = frozenset(violation for violation in violations if violation.kind in held)
        return Judgement(
            step=len(self.steps) - 1,
            input_watermark_us=self.clock.watermark(),
            contributions=contributions,
            closed={cell: self.ending == "once" or self.clock.closing(cell) is not None for cell in self.cells()},
            totals=+totals,
            results=+results,
            confirmed=frozenset(violations) - suspected,
            suspected=suspected,
            held=held,
        )


def classify_all(history: History, reference: type[Reference] = Reference) -> list[Judgement]:
    """The judgement after every step, and one more if the history has an ending."""
    judgements: list[Judgement] = []
    ever: frozenset[Violation] = frozenset()
    confirmed: frozenset[Violation] = frozenset()
    endings: list[tuple[int, Ending]] = [(number, "none") for number in range(len(history.steps))]
    if history.final != "none":
        endings.append((len(history.steps) - 1, history.final))
    for number, ending in endings:
        judged = reference(history, number, ending).judge()
        again = judged.suspected & confirmed
        judged = replace(judged, confirmed=judged.confirmed | again, suspected=judged.suspected - again)
        confirmed, ever = judged.confirmed, ever | judged.confirmed
        judgements.append(replace(judged, ever_confirmed=ever, retracted=ever - confirmed))
    return judgements


def classify(history: History, upto_step: int, reference: type[Reference] = Reference) -> Judgement:
    """The judgement after one step (0 is the first). It ignores the history's ending: see `conclude`."""
    return classify_all(History(history.timing, history.steps[: upto_step + 1]), reference)[-1]


def conclude(history: History, reference: type[Reference] = Reference) -> Judgement:
    """The judgement after the last step and the history's ending."""
    return classify_all(history, reference)[-1]
