"""PGVal's clicks, for the oracle of the same name."""

from __future__ import annotations

from typing import ClassVar

from generator.workloads.operations import Running
from generator.workloads.sst import Sst


class RunningAggregate(Running, Sst):
    """Clicks are collected per page, without windows."""

    kind: ClassVar[str] = "running_aggregate"
