"""The rules of SEMANTICS sections 2 to 4 by brute force: an independent second opinion on every verdict.

How it is independent: it is plain Python that shares no code with the core, knows no facts, fingerprints or columns,
and keeps nothing from one step to the next. Every judgement is computed from the whole prefix of the history, in the
most literal way; `clock.py` holds the half that concerns time (SEMANTICS section 3). It covers evidence `ids`, emission
`final`, and a tumbling window. Subclasses cover the other oracles.

SEMANTICS has the rules, and numbers in the code are its paragraphs. Where its words leave room, this reference reads
them as follows:

- A partition is known from the first step that lists it. Any visible record keeps its partition from being idle (3.7).
- "First event" is the decodable event with the lowest offset (3.19). A start is hidden if start_offset > log_start or
  log_start > 0 at the first lookup. Input has expired if a step's log_start > its start_offset (1.10).
- Gaps of answers are judged one by one, and taken together only if any topic is compacted (3.24). That is the weaker
  protection of the two, so it accuses rather than excuses.
- It leaves out two rules, which `Referee` in `spark_histories.py` adds for the comparison with the core: T in place of
  the read-through time if every answer partition is held (3.14), and excess that was resolved before an ending (3.28).
- The newest step's commits count. If a step lists no commits, no group is configured (2.8).
- Results of a cell that is out of scope or not resolved are `unjudged` (2.15).
- There is one violation per (class, cell, id), so that retracted = ever confirmed, less confirmed now (2.20).
- A run can end after any step with an `ending`, and the next run continues (3.27 to 3.32). The reference does not check
  whether the pipeline is at rest: the ending of a step that decided nothing must be "none".
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
        """e(c, id): the copies that producers sent, or one where the pipeline drops repeats (2.4)."""
        copies = len(self.copies.get((cell, id_), ()))
        return min(copies, 1) if self.timing.duplicates == "collapse" else copies

    def classes(self, cell: Cell, id_: str) -> Counter[str]:
        """The classes of one (cell, id), by the table of section 2."""
        e = self.expected(cell, id_)
        if not self.clock.in_scope(cell):
            return +Counter({"out_of_scope": e})
        seen = self.seen(cell, id_)
        processed = min(e, seen["output"])
        late = min(e - processed, seen["late"])
        rejected = min(e - processed - late, seen["rejected"])
        found = Counter({"processed": processed, "late": late, "rejected": rejected})
        found.update(self.outstanding(cell, id_, e - processed - late - rejected))
        found[self.excess_class(cell, id_)] += self.excess(cell, id_, e)
        return +found

    def seen(self, cell: Cell, id_: str) -> Counter[str]:
        """The observations of a (cell, id), by role."""
        return self.observed.get((cell, id_), Counter())

    def excess(self, cell: Cell, id_: str, expected: int) -> int:
        """How many observations of a (cell, id) exceed the expectation. With collapsed repeats, an engine may set a
        repeat aside as late or rejected before it detects the repetition (2.5)."""
        seen = self.seen(cell, id_)
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
        """Whether "every input's read-through time has passed the lookup time of the batch that first read it". The
        batch is the last one that read observations of the cell (3.17)."""
        if self.ending in ("once", "leave_open") or self.clock.is_resting(cell):
            return not self.clock.held("input")
        inputs = self.clock.places("input")
        return bool(inputs) and self.clock.proven(self.last_observed_us.get(cell, 0), inputs)

    # Section 2 and 3: what is outstanding, and since when

    def outstanding(self, cell: Cell, id_: str, count: int) -> Counter[str]:
        """The outstanding copies of one (cell, id), split into their classes (2.3)."""
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
        """The first copy of an event in its partition and cell. An engine that drops repeats has read it before the
        others (2.10)."""
        copies = self.copies[cell, event.id]
        place = (event.topic, event.partition)
        return min((copy for copy in copies if (copy.topic, copy.partition) == place), key=lambda copy: copy.offset)

    def is_dropped(self, event: InputEvent, cell: Cell) -> bool:
        """Whether an event came too late under policy `drop`."""
        return self.timing.late_policy == "drop" and self.clock.is_late(event, cell)

    def may_be_dropped(self, event: InputEvent, cell: Cell) -> bool:
        """Whether the engine may have dropped an event as late if it could decode more than the validator (3.26)."""
        return self.timing.late_policy == "drop" and self.clock.may_be_late(event, cell)

    def is_unconsumed(self, event: InputEvent) -> bool:
        """Whether an event is "at or past the engine's committed offset" (2.8)."""
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
        """ "Outstanding becomes missing; what an open transaction holds stays `blocked`" (3.28)."""
        held = self.clock.held(*ANSWERS)
        if base is None:
            return "blocked" if held else "missing"
        return "missing" if self.clock.proven(base + self.timing.missing_after_us, held) else "blocked"

    # Section 2: the classes of results

    def result_classes(self, cell: Cell) -> Iterator[str]:
        """The class of each result of a cell, "by the first that holds" (2.15)."""
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
        """Whether unreadable records might explain the violations of this kind (4.14). ``found``: the classes of each
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
        """How many undecodable late and rejected records there are: each may answer any event (4.14)."""
        return sum(record.role in SIDE_CHANNELS for record in self.undecodable)

    def hidden_inputs(self) -> int:
        """The largest number of input records whose content is unknown (4.14)."""
        undecodable = sum(record.role == "input" for record in self.undecodable)
        places = self.clock.places("input")
        compacted = sum(self.clock.vanished(step, place) for step in self.steps for place in places)
        return undecodable + compacted + sum(self.clock.expired_offsets(place) for place in places)

    def explicable(self) -> set[str]:
        """The kinds that one more input record would explain. Where repeats are dropped, a copy does not raise e, but
        may explain a record that was set aside (4.15)."""
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
