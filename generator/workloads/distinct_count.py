"""StreamBench's DistinctCount: the number of different users whose texts have a word.

StreamBench's set grows for ever. Here it begins again in each window: the sidecar has no `distinct(PATH)` without
windows. The number of occurrences shows lost events whose user has another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from generator.streambench import OnWords
from generator.workloads.operations import Tumbling


class DistinctCount(Tumbling, OnWords):
    """Occurrences and different users of a word are counted per window."""

    kind: ClassVar[str] = "distinct_count"
    aggregates: ClassVar[Mapping[str, str]] = {"count": "count", "users": "distinct(user)"}
