"""PGVal's single-source topology workload: clicks of each page in turn, on a regular grid of event time.

Source: PGVal's ``ClickDataset``. A round of the grid has one click of every page. Rounds are ``floor(window /
int(events x (1 - updates / 100)))`` ms apart. Because of the integer division, a window has at least the configured
number of clicks per key, and may have more if the division leaves a remainder.
"""

from __future__ import annotations

from typing import ClassVar, Final

from generator.wire import ClickWire, keys
from generator.workloads.operations import Tumbling
from generator.workloads.seam import Load, Stream

CLICKS: Final = Stream(
    "click",
    {"id": "id", "key": "page", "event_time": "timestamp"},
    late_fields={"id": "clickId", "key": "page", "event_time": "clickTimestamp"},
)


class Sst(Tumbling):
    """Clicks are collected per page and window."""

    kind: ClassVar[str] = "sst"
    streams: ClassVar[tuple[Stream, ...]] = (CLICKS,)
    has_text_ids: ClassVar[bool] = True

    @property
    def id_lists(self) -> tuple[str, ...]:
        """PGVal's ``PageStatistics`` always has a list of updates."""
        return ("clickIds", "updateIds")

    def wire(self, stream: Stream, load: Load) -> ClickWire:
        """PGVal's click event."""
        prefix = None if load.id_prefixes is None else load.id_prefixes[stream.name]
        return ClickWire(keys(load.pages, load.regions), prefix)
