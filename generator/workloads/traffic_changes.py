"""The third stage of OSPBench's traffic: how flow and speed of a measurement point change from second to second.

Source: OSPBench compares the newest observation with those of one and two seconds before, in windows of three seconds
that start every second: ``(now - then) / then``. It leaves out windows whose last second has no observation; here they
have a result, too, without changes. The sidecar compares the observations that results used, not the changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from generator.workloads.operations import Sliding
from generator.workloads.seam import Stage, Stream, Workload
from generator.workloads.traffic_lanes import TrafficLanes

_PERIODS: Final = 3


class TrafficChanges(Stage, Sliding):
    """Flow and speed are compared with those of one and two windows before."""

    kind: ClassVar[str] = "traffic_changes"
    follows: ClassVar[type[Workload]] = TrafficLanes
    streams: ClassVar[tuple[Stream, ...]] = (
        Stream(
            "point",
            {"key": "measurementId", "event_time": "windowStart"},
            id_paths=("measurementId", "windowStart"),
            late="latePoints",
        ),
    )
    changes: ClassVar[tuple[str, ...]] = ("flow", "speed")

    def operator(self, window_ms: int) -> dict[str, Any]:
        """Windows of three periods."""
        return {"operator": "sliding", "window_ms": _PERIODS * window_ms, "slide_ms": window_ms}

    def oracle(self, inputs: Sequence[str], window_ms: int) -> dict[str, Any]:
        """See `operator`."""
        return {**super().oracle(inputs, window_ms), "size": f"{_PERIODS * window_ms}ms", "slide": f"{window_ms}ms"}
