"""PGVal's clicks, for the oracle of the same name."""

from __future__ import annotations

from typing import ClassVar

from generator.workloads.operations import Sliding
from generator.workloads.sst import Sst


class SlidingWindow(Sliding, Sst):
    """Clicks are collected per page in windows that overlap."""

    kind: ClassVar[str] = "sliding_window"
