"""The schemas of a registry that sampled records name."""

from __future__ import annotations

from collections import Counter
from typing import Final

from validator.cli.proposal.columns import TopicSample
from validator.model.json_text import Unreadable
from validator.settings.formats.guesses import schema_header
from validator.settings.formats.registered import framed
from validator.settings.formats.seam import Part

_MOST: Final = 50
"""Schemas of a topic's values or keys that are asked for. Numbers in eight bytes begin like a prefix, each with another
id, and a registry that others use must not get a request for each."""


def schemas_named(sample: TopicSample, part: Part) -> tuple[int | str, ...]:
    """Return the ids and GUIDs that the values or keys name, or seem to: the most frequent ones, these first."""
    found: Counter[int | str] = Counter()
    for record in sample.records:
        raw = record.value if part == "value" else record.key
        header = next((value for name, value in reversed(record.headers) if name == schema_header(part)), None)
        if isinstance(raw, bytes):
            try:
                schema = framed(raw, header if isinstance(header, bytes) else None).schema
            except Unreadable:
                continue
            # Small numbers in eight bytes name it. No registry has it.
            found[schema] += bool(schema)
    return tuple(schema for schema, times in found.most_common(_MOST) if times)
