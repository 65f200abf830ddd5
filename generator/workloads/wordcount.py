"""StreamBench's Wordcount, of one word of each text: the sidecar needs one key of each event."""

from __future__ import annotations

from typing import ClassVar

from generator.streambench import OnRecords, text_by
from generator.workloads.operations import Running
from generator.workloads.seam import Stream


class Wordcount(Running, OnRecords):
    """Texts are collected per word, without windows. Words have Zipf's frequencies."""

    kind: ClassVar[str] = "wordcount"
    streams: ClassVar[tuple[Stream, ...]] = (text_by("word"),)
