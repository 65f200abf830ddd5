"""The operations of workloads: settings of the reference engine, and the sidecar's sections that fit them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from generator.workloads.seam import Workload


class Tumbling(Workload):
    """Adjacent windows: a result per key and window."""

    def oracle(self, inputs: Sequence[str], window_ms: int) -> dict[str, Any]:
        """See `Workload`."""
        del inputs
        return {"kind": "tumbling_window", "size": f"{window_ms}ms", **_values(self)}


class Sliding(Workload):
    """Windows of which several overlap."""

    overlapping: ClassVar[int] = 2
    """The number of windows that an event is in."""

    def operator(self, window_ms: int) -> dict[str, Any]:
        """See `Workload`."""
        return {"operator": "sliding", "slide_ms": window_ms // self.overlapping}

    def oracle(self, inputs: Sequence[str], window_ms: int) -> dict[str, Any]:
        """See `Workload`."""
        del inputs
        slide = f"{window_ms // self.overlapping}ms"
        return {"kind": "sliding_window", "size": f"{window_ms}ms", "slide": slide, **_values(self)}


class Joined(Workload):
    """Two streams, joined per key and adjacent window."""

    def operator(self, window_ms: int) -> dict[str, Any]:
        """See `Workload`."""
        del window_ms
        return {"join": "inner"}

    def oracle(self, inputs: Sequence[str], window_ms: int) -> dict[str, Any]:
        """See `Workload`."""
        left, right = inputs
        return {"kind": "windowed_join", "join": "inner", "left": left, "right": right, "size": f"{window_ms}ms"}


class Paired(Workload):
    """Two streams, joined per key if a right event is at most `after_ms` later than a left one."""

    sets_aside: ClassVar[bool] = False
    until: ClassVar[str | None] = None
    """One of `carried`: the field of a left event with the latest time of its right ones, in milliseconds."""

    def after_ms(self, window_ms: int) -> int:
        """Default: the length of a window."""
        return window_ms

    def operator(self, window_ms: int) -> dict[str, Any]:
        """See `Workload`."""
        until = {} if self.until is None else {"until": self.until}
        return {"operator": "interval", "join": "inner", "after_ms": self.after_ms(window_ms), **until}

    def oracle(self, inputs: Sequence[str], window_ms: int) -> dict[str, Any]:
        """Pairs are judged in buckets of one window."""
        left, right = inputs
        until = {} if self.until is None else {"until": {"path": self.until, "unit": "ms"}}
        return {
            "kind": "interval_join", "join": "inner", "left": left, "right": right,
            "after": f"{self.after_ms(window_ms)}ms", **until, "bucket": f"{window_ms}ms",
        }  # fmt: skip

    def output(self, inputs: Sequence[str]) -> dict[str, Any]:
        """The ids of a pair, and the time of its left event."""
        fields = super().output(inputs)["fields"]
        return {"fields": {"key": fields["key"], "event_time": fields["window_start"], "ids": fields["ids"]}}


class PerEvent(Workload):
    """A result for each event, or for some, without state."""

    judged_as: ClassVar[str] = "passthrough"
    """The kind of oracle."""

    def operator(self, window_ms: int) -> dict[str, Any]:
        """See `Workload`."""
        del window_ms
        return {"operator": "passthrough"}

    def oracle(self, inputs: Sequence[str], window_ms: int) -> dict[str, Any]:
        """Events are judged in buckets of one window."""
        del inputs
        return {"kind": self.judged_as, "bucket": f"{window_ms}ms"}

    def output(self, inputs: Sequence[str]) -> dict[str, Any]:
        """The id, key and time of the event."""
        del inputs
        return {"evidence": "id", "fields": dict(self.streams[0].fields)}


class Running(Workload):
    """Results per key without windows, which list the new ids, or have the aggregates of all events so far."""

    @property
    def emission(self) -> str:
        """How several results of a key are read."""
        return "cumulative" if self.aggregates else "incremental"

    def operator(self, window_ms: int) -> dict[str, Any]:
        """See `Workload`."""
        del window_ms
        return {"operator": "running_aggregate", "emission": self.emission}

    def oracle(self, inputs: Sequence[str], window_ms: int) -> dict[str, Any]:
        """See `Workload`."""
        del inputs, window_ms
        return {"kind": "running_aggregate", **_values(self)}

    def output(self, inputs: Sequence[str]) -> dict[str, Any]:
        """See `Workload`."""
        of_values = super().output(inputs)
        if self.aggregates:
            of_values["fields"].pop("window_start")
            return {"emission": self.emission, **of_values}
        return {"emission": self.emission, "fields": {"key": self.key, "ids": self.id_lists[0]}}


def _values(of: Workload) -> dict[str, Any]:
    return {"values": dict(of.aggregates)} if of.aggregates else {}
