"""StreamBench's Projection: one field of each text, beside its id, time and key."""

from __future__ import annotations

from typing import ClassVar

from generator.streambench import OnRecords
from generator.workloads.operations import PerEvent


class Projection(PerEvent, OnRecords):
    """Each text has a result with one of its fields."""

    kind: ClassVar[str] = "projection"
    judged_as: ClassVar[str] = "map"

    @property
    def kept(self) -> tuple[str, ...]:
        """The word."""
        return ("word",)
