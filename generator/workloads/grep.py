"""StreamBench's Grep: the texts that contain a string."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic import Field

from generator.streambench import WORDS, OnRecords
from generator.workloads.operations import PerEvent


class Grep(PerEvent, OnRecords):
    """Texts whose word contains a string have a result. The sidecar gets the list of these words."""

    kind: ClassVar[str] = "grep"
    judged_as: ClassVar[str] = "filter"
    contains: str = Field(default="ck", min_length=1)
    """The string."""

    def operator(self, window_ms: int) -> dict[str, Any]:
        """A filter."""
        return {**super().operator(window_ms), "where": {"field": "word", "contains": self.contains}}

    def oracle(self, inputs: Sequence[str], window_ms: int) -> dict[str, Any]:
        """The same filter."""
        found = [word for word in WORDS if self.contains in word]
        return {**super().oracle(inputs, window_ms), "where": {"path": "word", "one_of": found}}
