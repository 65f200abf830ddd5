"""OSPBench's windows over flows alone: stages 100 and 101, which differ in how an engine keeps a window's state.

Source: windows of 300 s, of which one starts every 60 s: ``window: 300s``. A result has the number of lanes and the sum
of their flows, per measurement id.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from generator.traffic import OnFlows
from generator.workloads.operations import Sliding


class TrafficFlows(Sliding, OnFlows):
    """Flows of lanes are added up in overlapping windows."""

    kind: ClassVar[str] = "traffic_flows"
    overlapping: ClassVar[int] = 5
    aggregates: ClassVar[Mapping[str, str]] = {"lanes": "count", "flow": "sum(flow)"}
    states_beside_ids: ClassVar[bool] = True
