"""The configurations of docs/sparse-records.md on a real broker: what a correct engine writes passes, and a lost and a
repeated record are counted."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.integration.sidecar_fixtures import Pipeline, iso, pipeline, spark

__all__ = ["pipeline", "spark"]
pytestmark = [pytest.mark.timeout(600)]

PAGE: Final = Path(__file__).parents[2] / "docs" / "sparse-records.md"
NOON_MS: Final = 1_790_000_000_000


@dataclass(frozen=True)
class Sent:
    """A record. ``timestamp_ms`` 0: that of the call."""

    value: bytes | str
    key: str | None = None
    timestamp_ms: int = 0
    partition: int = 0


def of_value(**fields: object) -> Sent:
    return Sent(json.dumps(fields))


LINES: Final = [of_value(order=n // 2, line=n % 2, customer="c", at=iso(n)) for n in (0, 1, 2, 2, 3)]
COPIED: Final = [Sent(f"order {n} of {'many ' * n}lines", "k" if n % 3 else None, NOON_MS + n) for n in range(40)]
ORDERS: Final = [of_value(id=number, customer="c", placed_at=iso(number)) for number in range(6)]
PAYMENTS: Final = [of_value(id=number, account="a", paid_at=iso(number)) for number in range(6)]
SHIPMENTS: Final = [Sent(b"\x00\xff\x01" + bytes([n]), f"parcel-{n // 2}", NOON_MS + n) for n in range(8)]
READINGS: Final = [replace(of_value(sensor="s", celsius=20, at=iso(n)), partition=n % 2) for n in range(6)]


@dataclass(frozen=True)
class Example:
    """Records of an input, and the results of a correct engine. The first of these is the one that tests leave out."""

    heading: str
    events: Sequence[Sent]
    results: Sequence[Sent]
    owed: int


EXAMPLES: Final = {
    "fields together": Example("No id: fields together", LINES, LINES[1:] + LINES[:1], 5),
    "a copy": Example("A copy of a topic", COPIED, COPIED, 40),
    "no time, at rest": Example(
        "No time in the results", ORDERS, [of_value(id=number, customer="c") for number in range(6)], 6
    ),
    "no time, live": Example(
        "**Live.**", PAYMENTS, [of_value(id=number, account="a", booked=True) for number in range(6)], 6
    ),
    "binary": Example("Binary values", SHIPMENTS, [replace(one, value=b"\xfe\x00") for one in SHIPMENTS[::2]], 4),
    "position": Example(
        "No field is unique: the position is the identity",
        READINGS,
        [of_value(sensor="s", source_partition=n % 2, source_offset=n // 2, at=iso(n), alarm="high") for n in range(6)],
        6,
    ),
}


def settings_below(heading: str, name: str) -> list[str]:
    """The settings of the page's first configuration below a heading, for the topics of a test."""
    text = PAGE.read_text(encoding="utf-8")
    [block] = re.findall(r"```yaml\n(.*?)```", text[text.index(heading) :], re.DOTALL)[:1]
    found = yaml.safe_load(block)
    found["inputs"][0]["topic"], found["outputs"][0]["topic"] = f"{name}-in", f"{name}-out"
    return [f"{key}={json.dumps(value)}" for key, value in {"late": [], **found}.items()]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.full] * (name not in ("binary", "a copy"))) for name in EXAMPLES]
)
def test_records_without_id_time_or_readable_values_are_judged(pipeline: Pipeline, name: str) -> None:
    example = EXAMPLES[name]
    settings = settings_below(example.heading, pipeline.name)
    pipeline.create(inputs=2)

    def send(topic: str, records: Sequence[Sent]) -> None:
        for one in records:
            pipeline.put(topic, one.value, key=one.key, timestamp_ms=one.timestamp_ms, partition=one.partition)

    send(pipeline.input, example.events)
    send(pipeline.output, example.results[1:])
    lost = pipeline.once(*settings)
    assert (lost.status, lost.counts()) == (1, {"expected": example.owed, "processed": example.owed - 1, "missing": 1})
    send(pipeline.output, example.results[:1])
    complete = pipeline.once(*settings, state="complete")
    assert (complete.status, complete.counts()) == (0, {"expected": example.owed, "processed": example.owed})
    send(pipeline.output, example.results[:1])
    twice = pipeline.once(*settings, state="twice")
    assert twice.counts("processed", "duplicate", "missing") == {
        "processed": example.owed,
        "duplicate": 1,
        "missing": 0,
    }
    assert twice.status == 1
