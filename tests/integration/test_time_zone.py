"""Days of a time zone on a real broker, over a change of the clock: a correct engine, and one whose days are UTC's."""

from __future__ import annotations

import json
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

import pytest

from tests.integration.sidecar_fixtures import Pipeline, pipeline, spark

__all__ = ["pipeline", "spark"]
pytestmark = [pytest.mark.timeout(600)]

ORACLE: Final = "oracle={kind: tumbling_window, size: 1d, time_zone: Europe/Copenhagen, named: wall_time}"
FIRST: Final = datetime(2026, 10, 23, 22, 30, tzinfo=UTC)
EVENTS: Final = [FIRST + timedelta(hours=number) for number in range(24 + 25 + 24)]
"""An event per hour of three local days. The second one has 25 hours."""


def days(zone: ZoneInfo) -> list[str]:
    """Results of an engine whose windows are the dates of ``zone``."""
    found: dict[datetime, list[int]] = defaultdict(list)
    for number, at in enumerate(EVENTS):
        found[at.astimezone(zone).replace(tzinfo=None, hour=0, minute=0)].append(number)
    return [json.dumps({"page": "a", "windowStart": str(day), "clickIds": ids}) for day, ids in found.items()]


def test_days_of_a_zone_are_judged_over_a_change_of_its_clock(pipeline: Pipeline) -> None:
    pipeline.create()
    pipeline.clicks(
        *(json.dumps({"id": number, "page": "a", "timestamp": at.isoformat()}) for number, at in enumerate(EVENTS))
    )
    results = days(ZoneInfo("Europe/Copenhagen"))
    assert [len(json.loads(result)["clickIds"]) for result in results] == [24, 25, 24]
    pipeline.answers(*results)
    run = pipeline.once(ORACLE)
    assert (run.status, run.counts()) == (0, {"expected": 73, "processed": 73})

    pipeline.answers(*days(ZoneInfo("UTC")))
    wrong = pipeline.once(ORACLE, "outputs.0.emission=incremental", state="wrong")
    assert wrong.status == 1
    # Two hours of each day before the change and one after it are in the result of the date before.
    assert wrong.counts("misplaced", "duplicate") == {"misplaced": 2 + 2 + 1, "duplicate": 73 - 5}
