"""OSPBench's windows over flows alone: stages 100 and 101, which differ in how an engine keeps a window's state.

Source: windows of 300 s, of which one starts every 60 s: ``window: 300s``.
"""

from __future__ import annotations

from typing import ClassVar

from generator.traffic import OnFlows
from generator.workloads.operations import Sliding


class TrafficFlows(Sliding, OnFlows):
    """Flows are collected in overlapping windows."""

    kind: ClassVar[str] = "traffic_flows"
    overlapping: ClassVar[int] = 5
