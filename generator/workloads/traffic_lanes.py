"""The second stage of OSPBench's traffic: the lanes of a measurement point are combined.

Source: OSPBench adds up the flows of the lanes and takes the mean of their speeds, weighted with the lanes, per
measurement id and window of a second: 38 observations become 12 results.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from generator.workloads.operations import Tumbling
from generator.workloads.seam import Stage, Stream, Workload
from generator.workloads.traffic_join import TrafficJoin


class TrafficLanes(Stage, Tumbling):
    """The lanes of a measurement point are combined per window."""

    kind: ClassVar[str] = "traffic_lanes"
    follows: ClassVar[type[Workload]] = TrafficJoin
    streams: ClassVar[tuple[Stream, ...]] = (
        Stream(
            "lane",
            {"key": "measurementId", "event_time": "windowStart"},
            id_paths=("flowIds.0", "speedIds.0"),
            late="lateLanes",
        ),
    )
    aggregates: ClassVar[Mapping[str, str]] = {"lanes": "count", "flow": "sum(flow)", "speed": "avg(speed)"}
    states_beside_ids: ClassVar[bool] = True
