"""The interval join: two inputs joined per key if their times are close; a result carries the two ids of a pair, or of
a semi join the id of a left event.

A cell is the key and the bucket of time of the left events of its pairs. A right event is in each bucket in which a
left event may be its partner. The rule is in docs/oracles/interval_join.md, "The rule".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Self

from pydantic import Field, PrivateAttr

from validator.oracles.passthrough import BUCKET_US, check_unit
from validator.oracles.seam import Assigned, Declared
from validator.oracles.two_sides import TwoSides
from validator.settings.built import Combination
from validator.settings.durations import PositiveDuration, SignedDuration, format_duration
from validator.settings.errors import broken_rule_at
from validator.settings.fields import FieldPath, check_single

if TYPE_CHECKING:
    from validator.model.arrays import Bools, Ints
    from validator.model.conditions import Condition
    from validator.oracles.ids import Flags, IdCounts, IdVerdicts
    from validator.oracles.pairs import Interval
    from validator.settings.topics import Input

ROWS_IN_INTERVALS: Final = Combination(
    ("oracle.kind",),
    "`interval_join` with envelope `canal`",
    "several events of one record are not supported yet for an interval join",
)

VALUES_IN_INTERVALS: Final = Combination(
    ("outputs.evidence",),
    "`values` with `interval_join`",
    "the pairs of an interval join depend on the time of each event, and no number or sum over a cell shows them",
)


class IntervalJoin(TwoSides):
    """Two inputs joined by the distance of their times."""

    kind: Literal["interval_join"]
    """Two inputs, by the distance of their times."""
    before: SignedDuration = 0
    """How much earlier than its left event a right event may be; with `-5s` it is at least 5 s later."""
    after: SignedDuration = 0
    """How much later it may be; with `-5s` it is at least 5 s earlier."""
    until: FieldPath | None = Field(default=None, examples=[{"path": "expires", "unit": "ms"}])
    """Field of a left event with the latest time of its right events, which are also at most `after` later: set `after`
    to the longest such time."""
    bucket: PositiveDuration = BUCKET_US
    """Length of a bucket of left times, in which pairs are judged; not far below `before` and `after` together."""

    refuses: ClassVar[tuple[Combination, ...]] = (*TwoSides.refuses, ROWS_IN_INTERVALS, VALUES_IN_INTERVALS)
    cell_noun: ClassVar[str] = "bucket of time"
    noun: ClassVar[str] = "bucket from"
    result_time: ClassVar[Literal["window_start", "event_time"] | None] = "event_time"
    states_pairs: ClassVar[bool] = True
    in_every_cell: ClassVar[bool] = False
    _of_right: bool = PrivateAttr(default=False)

    @classmethod
    def of(cls, bucket_us: int, before_us: int, after_us: int, *, join: str, left: str, right: str) -> Self:
        """Return an oracle that is not read from a file."""
        durations: dict[str, Any] = {"bucket": bucket_us, "before": before_us, "after": after_us}
        return cls.model_construct(kind="interval_join", join=join, left=left, right=right, **durations)

    def seen_from(self, topic: str | None) -> Self:
        """The events of the right input are in other cells than those of the left one."""
        return self.model_copy().on_side(is_right=topic == self.right)

    @property
    def condition(self) -> Condition | None:
        """SEMANTICS 2.6: an event that owes nothing is not an event."""
        return None if self.where is None else self.where.condition("ignored")

    @property
    def grid_us(self) -> int:
        """Distance between the starts of adjacent buckets."""
        return self.bucket

    @property
    def span_us(self) -> int:
        """A right event is at most `before` and a bucket from the start of a bucket, which ends `after` later."""
        return self.scope_margin_us + self.bucket + self._tail_us

    @property
    def cells_most(self) -> int:
        """Number of buckets that an interval may touch."""
        return -(-(self.before + self.after) // self.bucket) + 1

    @property
    def scope_margin_us(self) -> int:
        """A right event may be earlier than the bucket."""
        return max(0, self.before)

    @property
    def own_end(self) -> FieldPath | None:
        """Right events have none."""
        return None if self._of_right else self.until

    @property
    def _tail_us(self) -> int:
        """A right event may be later than the bucket. If all are earlier, the left events end it."""
        return max(0, self.after)

    def assigned(self, event_times_us: Ints) -> Assigned:
        """A left event is in the bucket of its time; a right one in each that has times of its partners."""
        if not self._of_right:
            return Assigned(None, self._floor(event_times_us))
        import numpy as np

        first = self._floor(event_times_us - self.after)
        number = (self._floor(event_times_us + self.before) - first) // self.bucket + 1
        events = np.repeat(np.arange(len(first)), number)
        nth = np.arange(len(events)) - (np.cumsum(number) - number)[events]
        return Assigned(events, first[events] + nth * self.bucket)

    def starts_of_results(self, named_us: Ints) -> Ints:
        """A result names the time of its left event."""
        return self._floor(named_us)

    def ends_us(self, starts_us: Ints) -> Ints:
        """The last partner of a left event is `after` later. Starts are at most 2^62 (docs/ARCHITECTURE.md)."""
        return starts_us + self.bucket + self._tail_us

    def reaches_us(self, event_times_us: Ints, slack_us: int) -> Ints:
        """The ends are `after` later than the starts of buckets."""
        return self._floor(event_times_us - slack_us - self._tail_us) + self._tail_us

    def latest_reaches_us(self, starts_us: Ints, slack_us: int) -> Ints:
        """Starts near the int64 maximum are clamped, so that no sum wraps."""
        import numpy as np

        most = np.iinfo(np.int64).max - self.bucket - self._tail_us
        return self.reaches_us(np.minimum(starts_us, most) + self.bucket + self._tail_us - 1, slack_us)

    def unsound(self, id_counts: IdCounts, texts: Sequence[str]) -> tuple[Bools, Bools]:
        """Results that state no pair, or one too often."""
        from validator.oracles.pairs import unsound

        return unsound(id_counts, self.are_right(id_counts, texts), self._interval)

    def classes(
        self, id_counts: IdCounts, flags: Flags, texts: Sequence[str], *, collapse: bool, drops_late: bool
    ) -> IdVerdicts:
        """The classes of the ids of pairs."""
        from validator.oracles.pairs import pair_classes

        del collapse
        is_right = self.are_right(id_counts, texts)
        return pair_classes(id_counts, flags, is_right, self._interval, drops_late=drops_late)

    def check_values(self, declared: Declared) -> None:
        """Refuse values with their reason."""
        del declared
        raise broken_rule_at("outputs[0].evidence", VALUES_IN_INTERVALS.problem, "use ids")

    def check(self, declared: Declared) -> None:
        """Also refuse records with several events, and an interval without an instant."""
        super().check(declared)
        check_unit(self.bucket, declared.outputs)
        if self.before + self.after < 0:
            least, most = format_duration(-self.before), format_duration(self.after)
            raise broken_rule_at(
                "oracle.before",
                f"no right event is both at least {least} and at most {most} later than a left one",
                "let before and after add up to 0 or more",
            )
        for i, entry in enumerate(declared.inputs):
            if self.until is not None and entry.topic == self.left:
                self._check_until(entry, self.until)
            if entry.envelope == "canal":
                raise broken_rule_at(f"inputs[{i}].envelope", ROWS_IN_INTERVALS.problem, "use another oracle")

    def _check_until(self, entry: Input, until: FieldPath) -> None:
        """Refuse a field that no left event has, or that cannot be a time."""
        if until.path in ("$value", "$offset", "$partition"):
            fix = "use $timestamp, or a field that holds a time"
            raise broken_rule_at("oracle.until", f"{until.path} is not a time", fix)
        entry.check_paths([("oracle.until", until.path)])
        at, condition = entry.fields, self.where
        others = {"id": at.id or (), "key": at.key, "event_time": (at.event_time,)}
        single = [(f"the {name}", one.path) for name, paths in others.items() for one in paths]
        single += (
            [("oracle.where", path) for _, path, is_scalar in condition.paths("") if is_scalar] if condition else []
        )
        mine = [("oracle.until", until.path)]
        check_single(mine, single)
        check_single(single, mine, "oracle.until")

    @property
    def _interval(self) -> Interval:
        from validator.oracles.pairs import Interval

        return Interval(self.before, self.after, self.join)

    def on_side(self, *, is_right: bool) -> Self:
        """Set the side of the events, and return this oracle."""
        self._of_right = is_right
        return self

    def _floor(self, instants_us: Ints) -> Ints:
        return instants_us - instants_us % self.bucket
