"""StreamBench's Wordcount: how often each word of the texts has occurred so far."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from generator.streambench import OnWords
from generator.workloads.operations import Running


class Wordcount(Running, OnWords):
    """The words of texts are counted, without windows. Words have Zipf's frequencies."""

    kind: ClassVar[str] = "wordcount"
    aggregates: ClassVar[Mapping[str, str]] = {"count": "count"}
