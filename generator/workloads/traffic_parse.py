"""The stages of OSPBench's traffic before the first join: ingest and parse. Here of flows alone."""

from __future__ import annotations

from typing import ClassVar

from generator.traffic import OnFlows
from generator.workloads.operations import PerEvent


class TrafficParse(PerEvent, OnFlows):
    """Flows are read and written."""

    kind: ClassVar[str] = "traffic_parse"
    carried: ClassVar[tuple[str, ...]] = ("internalId", "lat", "long", "flow", "period", "accuracy", "num_lanes")
