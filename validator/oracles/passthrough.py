"""Passthrough, map and filter: without a window, each event owes one result, with its id, its key and its time.

The cell of an event is its key and the bucket of event time that contains its time. Buckets are adjacent and start at
the epoch. A result names its event's time, not the bucket. Source: SEMANTICS section 1 (cell without a window: a bucket
of event time and a key), docs/oracles/passthrough.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal

from pydantic import Field

from validator.oracles.seam import Assigned, Declared, Oracle
from validator.settings.conditions import Where
from validator.settings.durations import PositiveDuration, format_duration
from validator.settings.errors import broken_rule_at
from validator.settings.time_patterns import step_of

if TYPE_CHECKING:
    from validator.model.arrays import Ints
    from validator.settings.topics import Output

BUCKET_US: Final = 10_000_000
_UNITS_US: Final = {"s": 1_000_000, "ms": 1_000}


class Passthrough(Oracle):
    """Each event needs exactly one result. `map` is the same for a pipeline that changes the payload."""

    kind: Literal["passthrough", "map"]
    """A result for each event."""

    judges_values: ClassVar[bool] = True
    answers_events: ClassVar[bool] = True
    cell_noun: ClassVar[str] = "bucket of time"
    noun: ClassVar[str] = "bucket from"
    bucket: PositiveDuration = BUCKET_US
    """Length of a bucket. Events are judged per key and per bucket of event time. The length must be a whole multiple
    of the unit of each output's `event_time`."""

    result_time: ClassVar[Literal["window_start", "event_time"]] = "event_time"

    @property
    def grid_us(self) -> int:
        """Distance between the starts of adjacent buckets."""
        return self.bucket

    @property
    def span_us(self) -> int:
        """The length of a bucket."""
        return self.bucket

    def assigned(self, event_times_us: Ints) -> Assigned:
        """Each event belongs to the bucket that contains its time."""
        return Assigned(None, self._floor(event_times_us))

    def starts_of_results(self, named_us: Ints) -> Ints:
        """A result names the time of its event."""
        return self._floor(named_us)

    def ends_us(self, starts_us: Ints) -> Ints:
        """Starts are at most 2^62 (docs/ARCHITECTURE.md), so no end wraps."""
        return starts_us + self.bucket

    def reaches_us(self, event_times_us: Ints, slack_us: int) -> Ints:
        """The ends of buckets are starts of buckets."""
        return self._floor(event_times_us - slack_us)

    def latest_reaches_us(self, starts_us: Ints, slack_us: int) -> Ints:
        """Starts near the int64 maximum are clamped, so that no sum wraps."""
        import numpy as np

        latest = np.minimum(starts_us, np.iinfo(np.int64).max - self.bucket) + (self.bucket - 1)
        return self._floor(latest - slack_us)

    def check(self, declared: Declared) -> None:
        """Also refuse a length that is not a multiple of an output's time unit: a rounded time may leave its bucket."""
        if self.where is not None and self.skips_others:
            raise broken_rule_at("oracle.where", f"oracle {self.kind} does not use it", "leave it out, or use filter")
        super().check(declared)
        check_unit(self.bucket, declared.outputs)

    def check_values(self, declared: Declared) -> None:
        """Refuse values that are not fields of the result's event."""
        del declared
        if other := next((text for text in self.values.values() if not text.startswith("same(")), None):
            problem = f"a result of one event states no {other.partition('(')[0]}"
            raise broken_rule_at("oracle.values", problem, "write same(PATH) for each field that a result repeats")
        if len(self.stated.paths) < len(self.values):
            raise broken_rule_at("oracle.values", "two values are the same field", "name each field once")

    def _floor(self, instants_us: Ints) -> Ints:
        return instants_us - instants_us % self.bucket


def check_unit(bucket_us: int, outputs: Sequence[Output]) -> None:
    """Refuse buckets that a rounded time of a result may leave."""
    for i, output in enumerate(outputs):
        at = output.fields.event_time
        unit = "ms" if at is not None and at.path == "$timestamp" else at.unit if at is not None else None
        step_us = _UNITS_US.get(unit or "", 1) if at is None or at.pattern is None else step_of(at.pattern)
        if bucket_us % step_us:
            problem = f"{format_duration(bucket_us)} is not a multiple of the unit of outputs[{i}].fields.event_time"
            raise broken_rule_at("oracle.bucket", problem, f"write a multiple of {format_duration(step_us)}")


class Filter(Passthrough):
    """Each event for which the condition holds needs exactly one result. Other events must have none."""

    kind: Literal["filter"]  # type: ignore[assignment]
    """A result for some events."""
    where: Annotated[Where, Field()]
    """Which events pass."""

    skips_others: ClassVar[bool] = False
