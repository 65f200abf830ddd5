"""Totals over the cells of a state: those in memory, and those that retention has dropped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from validator.core.fit import Fit
from validator.reconcile.judge import CONTRIBUTIONS, RESULTS, VIOLATIONS


@dataclass(frozen=True)
class TopicCounts:
    """Counts of the events of an input topic, or of the contributions in the results of an output topic. They are kept
    only if there are several inputs or outputs: for a single one the totals are enough. The same counts are kept for
    the ids in late records, and for those in rejected records.

    - ``read``: events that were read, contributions in results, or ids in the late or rejected records.
    - ``matched``: events that are in results, contributions that are proven to match events, or ids that belong to an
      event of the record's cell.
    - ``outstanding``: events that would be missing once due; always 0 for results, late and rejected records.
    - ``undecided``: events, contributions or ids that may match, but are not proven to.
    - ``outside``: ids that are not among ``read``. For late and rejected records: those whose cell is out of scope and
      has no event; a wrong time may have put these records in that cell. For results: those whose cell is out of scope
      and has an event. Results that newer ones have replaced stay in ``read`` or ``outside``.
    - ``claimed``: contributions in results that do not match because other output topics carry their ids in the same
      cell. ``lasting``: those of ``matched`` that no result of another topic can claim any more.
    """

    read: int = 0
    matched: int = 0
    outstanding: int = 0
    undecided: int = 0
    outside: int = 0
    lasting: int = 0
    claimed: int = 0

    def plus(self, other: TopicCounts, times: int = 1) -> TopicCounts:
        """Return the sum of both, ``other`` multiplied by ``times``."""
        return TopicCounts(
            self.read + times * other.read,
            self.matched + times * other.matched,
            self.outstanding + times * other.outstanding,
            self.undecided + times * other.undecided,
            self.outside + times * other.outside,
            self.lasting + times * other.lasting,
            self.claimed + times * other.claimed,
        )

    @property
    def right(self) -> int:
        """Contributions in results that match. A topic that repeats ids of other topics may have a wrong field: then
        only those count that no other topic can claim any more."""
        return self.lasting if self.claimed else self.matched

    @property
    def unmatched_aside(self) -> int:
        """Ids in late or rejected records that are not proven to match. The first match ends the doubt about those out
        of scope."""
        return self.read - self.matched + (0 if self.matched else self.outside)


@dataclass(frozen=True)
class CellTotals:
    """Totals over all cells after a batch.

    - ``on_record``: violation class -> contributions on record.
    - ``unproven``: violation class -> contributions that were suspected when their cell was retired, and stay
      suspected even after the doubt has ended. They are not on record, and are never confirmed.
    - ``carried``, ``outside``: contributions in results, as in `Judged`. ``matched``: those of ``carried`` that are
      proven to match events.
    - ``cells_sampled``: cells whose fingerprints agree and whose ids were compared nevertheless. A cell that left
      memory and returned counts once more. ``cells_refuted``: those of them whose ids differ.
    - ``cells_estimated``: cells whose counts are estimates, because their ids are not compared yet.
    - ``cells_in_excess``, ``cells_missing``: cells with a violation of `EXCESS`, and with a missing contribution.
    - ``incorrect_ids``: ids that are misplaced or unknown, once per cell; at least 1 for a cell that has any.
    - ``doubtful``: contributions that stay overdue, since they may rightly have been dropped as late. ``elsewhere``:
      the same because of records of other partitions. ``apart``, ``ends_right``, ``ends_wrong``, ``unproven_splits``:
      as in `Judged`. ``split_us``: the shortest pause at which a session was split wrongly. ``kept_us``: the longest
      pause within a result, known once a session was split or left memory (`validator.core.split_sessions`).
    - ``joined``: misplaced contributions in results that answer several sessions at once. ``joined_us``: the longest
      pause between such sessions. ``parted_us``: the shortest pause before a session with a result of its own.
    - ``unconsumed_overdue``: unconsumed contributions that have been due for `missing_after`, or were outstanding at
      the end of an earlier run with `--once`. ``blocked_overdue``: blocked ones that have been due for `missing_after`.
      ``unconsumed_due_us``, ``blocked_due_us``: since when the first of them is due. ``unconsumed``, ``blocked``: the
      same contributions, due or not.
    - ``held_long``: contributions in answers of the cells in memory that an open transaction of an input has kept
      unresolved for `missing_after`.
    - ``unconsumed_retired``, ``blocked_retired``: the contributions of ``*_overdue`` whose cells retention has dropped.
      ``unconsumed``, ``blocked`` and the ``*_overdue`` numbers do not include them.
    - ``changed``: verdicts that the batch changed.
    - ``keys_scattered``: keys with results on several partitions, so that the newest result of the key is unknown.
    - ``cells_undecided``: cells retired before the class of each contribution was decided
      (`validator.stream.retention`).
    - ``events``: settled, open, out_of_scope -> input records that cells count. ``answers``: output, late and rejected
      records that they count (`validator.model.coverage`).
    - ``fit``: what the sample of events shows while there are violations; None for the totals of some cells.
    - ``inputs``: counts by input topic; empty for a single input. ``outputs``: counts by output topic; empty for a
      single output. ``set_aside``: counts by side (late, rejected).
    """

    counts: dict[str, int]
    results: dict[str, int]
    on_record: dict[str, int] = field(default_factory=dict)
    unproven: dict[str, int] = field(default_factory=dict)
    matched: int = 0
    carried: int = 0
    outside: int = 0
    cells_seen: int = 0
    cells_closed: int = 0
    cells_verified: int = 0
    cells_violated: int = 0
    cells_in_excess: int = 0
    cells_missing: int = 0
    incorrect_ids: int = 0
    cells_settled: int = 0
    cells_estimated: int = 0
    cells_sampled: int = 0
    cells_refuted: int = 0
    cells_undecided: int = 0
    doubtful: int = 0
    elsewhere: int = 0
    apart: int = 0
    ends_right: int = 0
    ends_wrong: int = 0
    unproven_splits: int = 0
    split_us: int | None = None
    kept_us: int | None = None
    joined: int = 0
    joined_us: int | None = None
    parted_us: int | None = None
    unconsumed_overdue: int = 0
    unconsumed_due_us: int | None = None
    blocked_overdue: int = 0
    blocked_due_us: int | None = None
    held_long: int = 0
    unconsumed: int = 0
    blocked: int = 0
    unconsumed_retired: int = 0
    blocked_retired: int = 0
    keys_scattered: int = 0
    changed: int = 0
    settled_expected: int = 0
    settled_handled: int = 0
    settled_exact: int = 0
    events: dict[str, int] = field(default_factory=dict)
    answers: int = 0
    inputs: dict[str, TopicCounts] = field(default_factory=dict)
    outputs: dict[str, TopicCounts] = field(default_factory=dict)
    set_aside: dict[str, TopicCounts] = field(default_factory=dict)
    fit: Fit | None = None

    def violations(self, name: str) -> int:
        """Return how many contributions, or results, are violations of the class ``name`` now."""
        return self.counts[name] if name in self.counts else self.results.get(name, 0)

    def plus(self, other: CellTotals) -> CellTotals:
        """Return the sum of both. Some numbers stay as in ``self``: ``changed``, ``cells_estimated``, ``held_long``,
        ``unconsumed``, ``blocked``, ``unconsumed_retired`` and ``blocked_retired``."""
        return self._with(other, 1)

    def minus(self, other: CellTotals) -> CellTotals:
        """Return the totals without those of ``other``, which are a part of them."""
        return self._with(other, -1)

    def _with(self, other: CellTotals, times: int) -> CellTotals:
        cells = (
            "seen",
            "closed",
            "verified",
            "violated",
            "in_excess",
            "missing",
            "settled",
            "undecided",
            "sampled",
            "refuted",
        )
        whole = [f"cells_{name}" for name in cells]
        others = (
            "matched",
            "carried",
            "outside",
            "incorrect_ids",
            "settled_expected",
            "settled_handled",
            "settled_exact",
            "doubtful",
            "elsewhere",
            "apart",
            "joined",
            "ends_right",
            "ends_wrong",
            "unproven_splits",
            "unconsumed_overdue",
            "blocked_overdue",
            "keys_scattered",
            "answers",
        )
        return replace(
            self,
            unconsumed_due_us=_earlier(self.unconsumed_due_us, other.unconsumed_due_us),
            blocked_due_us=_earlier(self.blocked_due_us, other.blocked_due_us),
            split_us=_earlier(self.split_us, other.split_us),
            kept_us=_later(self.kept_us, other.kept_us),
            joined_us=_later(self.joined_us, other.joined_us),
            parted_us=_earlier(self.parted_us, other.parted_us),
            counts={name: count + times * other.counts.get(name, 0) for name, count in self.counts.items()},
            results={name: count + times * other.results.get(name, 0) for name, count in self.results.items()},
            on_record={name: self.on_record.get(name, 0) + times * other.on_record.get(name, 0) for name in VIOLATIONS},
            unproven={name: self.unproven.get(name, 0) + times * other.unproven.get(name, 0) for name in VIOLATIONS},
            events={
                name: self.events.get(name, 0) + times * other.events.get(name, 0)
                for name in sorted({*self.events, *other.events})
            },
            inputs=_both(self.inputs, other.inputs, times),
            outputs=_both(self.outputs, other.outputs, times),
            set_aside=_both(self.set_aside, other.set_aside, times),
            **{name: getattr(self, name) + times * getattr(other, name) for name in (*whole, *others)},
        )

    def with_due_since(self, unconsumed_us: int | None, blocked_us: int | None) -> CellTotals:
        """Return the totals with earlier due instants, if the given ones are earlier than the known ones.

        ``unconsumed_us``: due instant of contributions that the engine has not consumed. ``blocked_us``: of those that
        an open transaction holds back.
        """
        return replace(
            self,
            unconsumed_due_us=_earlier(self.unconsumed_due_us, unconsumed_us),
            blocked_due_us=_earlier(self.blocked_due_us, blocked_us),
        )

    def with_retired(self, retired: CellTotals) -> CellTotals:
        """Return the totals over the cells in memory (``self``) and ``retired`` ones, which can no longer change.

        The numbers of unconsumed and blocked contributions are those of the cells in memory.
        """
        return replace(
            self.plus(retired),
            unconsumed_overdue=self.unconsumed_overdue,
            unconsumed_due_us=self.unconsumed_due_us,
            blocked_overdue=self.blocked_overdue,
            blocked_due_us=self.blocked_due_us,
            unconsumed=self.counts["unconsumed"],
            blocked=self.counts["blocked"],
            unconsumed_retired=retired.unconsumed_overdue,
            blocked_retired=retired.blocked_overdue,
        )

    def to_json(self) -> dict[str, object]:
        """Return plain values for a mark in the facts table."""
        return asdict(replace(self, fit=None))

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> CellTotals:
        """Return the value that `to_json` saved."""
        topics = {
            name: {part: TopicCounts(**counts) for part, counts in kept[name].items()}
            for name in ("inputs", "outputs", "set_aside")
        }
        return cls(**{**kept, **topics})

    @classmethod
    def empty(cls) -> CellTotals:
        """Return the totals over no cells."""
        return cls(dict.fromkeys(CONTRIBUTIONS, 0), dict.fromkeys(RESULTS, 0))


def _both(these: Mapping[str, TopicCounts], those: Mapping[str, TopicCounts], times: int) -> dict[str, TopicCounts]:
    nothing = TopicCounts()
    return {part: these.get(part, nothing).plus(those.get(part, nothing), times) for part in sorted({*these, *those})}


def _earlier(one: int | None, other: int | None) -> int | None:
    return min((at for at in (one, other) if at is not None), default=None)


def _later(one: int | None, other: int | None) -> int | None:
    return max((at for at in (one, other) if at is not None), default=None)
