"""Sends: the columns that workloads produce, the sender sends and the journal keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PLAIN: Final = 0
DELAYED: Final = 1
"""Sent after events with newer event time, within the disorder bound."""
LATE: Final = 2
"""Sent after events that are newer by more than the disorder bound."""
SECOND_COPY: Final = 3
FLUSH: Final = 4
KIND_NAMES: Final = ("plain", "delayed", "late", "second_copy", "flush")


@dataclass
class SendBatch:
    """Consecutive sends as columns: id number, index of the key, event time (ms since the epoch), kind."""

    numbers: list[int]
    keys: list[int]
    times_ms: list[int]
    kinds: list[int]

    def __len__(self) -> int:
        return len(self.numbers)

    def add(self, number: int, key: int, time_ms: int, kind: int) -> None:
        """Append one send."""
        self.numbers.append(number)
        self.keys.append(key)
        self.times_ms.append(time_ms)
        self.kinds.append(kind)

    def extend(self, more: SendBatch) -> None:
        """Append all sends of ``more``."""
        self.numbers += more.numbers
        self.keys += more.keys
        self.times_ms += more.times_ms
        self.kinds += more.kinds
