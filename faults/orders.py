"""The orders of the runner to its watchdog process."""

from __future__ import annotations

from pathlib import Path

from faults.config import KafkaSection, LimitsSection
from faults.section import Section


class Orders(Section):
    """What the watchdog needs besides the journal. Written to its pipe, since options may be secret."""

    state: Path
    kafka: KafkaSection | None
    limits: LimitsSection
