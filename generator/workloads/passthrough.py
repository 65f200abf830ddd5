"""PGVal's clicks, for the oracle of the same name."""

from __future__ import annotations

from typing import ClassVar

from generator.workloads.operations import PerEvent
from generator.workloads.sst import Sst


class Passthrough(PerEvent, Sst):
    """Each click has a result of its own."""

    kind: ClassVar[str] = "passthrough"
