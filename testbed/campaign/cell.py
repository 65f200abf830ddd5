"""A cell of the matrix: what all of its repetitions have in common."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from typing import Final

from testbed.campaign.plan import Axes, FaultName
from testbed.engines.settings import Guarantee

_NAME_MAX: Final = 120


@dataclass(frozen=True)
class Cell:
    """A row of the table."""

    engine: str
    workload: str
    guarantee: Guarantee
    fault: FaultName
    axes: Axes = ()

    @property
    def name(self) -> str:
        """Name in files and, with the repetition, in topics."""
        parts = (self.engine, self.workload, self.guarantee, self.fault, *(f"{key}{value}" for key, value in self.axes))
        return _fitting("-".join(parts))

    @property
    def setting(self) -> str:
        """Its values on the axes of the plan, as text."""
        return ", ".join(f"{key} {value}" for key, value in self.axes)


def _fitting(name: str) -> str:
    """``name`` as a part of the names of files and topics, which Kafka limits to 249 characters, and of topologies of
    Storm, which have no dots."""
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    if plain == name and len(name) <= _NAME_MAX:
        return name
    # What was replaced or cut off must still distinguish two cells.
    return f"{plain[:_NAME_MAX]}-{zlib.crc32(name.encode()):08x}"
