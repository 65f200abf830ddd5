"""StreamBench's Identity: each text is copied."""

from __future__ import annotations

from typing import ClassVar

from generator.streambench import OnRecords
from generator.workloads.operations import PerEvent


class Identity(PerEvent, OnRecords):
    """Each text has a result with all its fields."""

    kind: ClassVar[str] = "identity"
