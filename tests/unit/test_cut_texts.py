"""Published ids and keys are short and distinct, and identify the whole ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.publish_snapshots import broken, config, newest
from validator.model.cut import LONGEST, full_text_of, shorten
from validator.publish.feed import event
from validator.publish.html import render as render_html
from validator.publish.junit import render as render_junit
from validator.publish.publisher import Publisher
from validator.publish.report import VIOLATIONS_FILE, build
from validator.publish.text import render as render_text
from validator.state.recorded_violations import violation_of
from validator.stream.run_record import RunRecord

pytestmark = pytest.mark.unit

MUCH = "k" * 2**15
PUBLISHED_MOST = 1_500_000
"""Size of the list of violations in bytes: one hundred violations with twenty ids each."""


def test_a_short_text_is_unchanged_and_shortened_ones_stay_distinct() -> None:
    assert shorten("x" * LONGEST) == "x" * LONGEST
    assert full_text_of("x" * LONGEST) is None
    one, other = shorten(MUCH + "1"), shorten(MUCH + "2")
    assert one != other
    assert len(one) <= LONGEST
    assert one.startswith("kkk")
    assert "(32,769 characters, sha256 " in one
    found = full_text_of(one)
    assert found is not None
    assert found.length == 32_769


def test_published_forms_of_long_keys_and_ids_are_bounded(tmp_path: Path) -> None:
    record = RunRecord()
    for number in range(110):
        record.remember(violation_of(_row(number), first_us=1))
    snapshot = replace(broken(), violations_latest=tuple(record.latest.values()))
    publisher = Publisher(config(tmp_path), tmp_path)
    report = publisher.publish(snapshot)
    violations = newest(snapshot)
    assert len({entry.key for entry in violations}) == 100
    published: dict[str, int] = {
        "violations.json": (tmp_path / VIOLATIONS_FILE).stat().st_size,
        "an update of the page": len(event("update", publisher._update())),
        "text": len(render_text(report, violations).encode()),
        "html": len(render_html(report, violations).encode()),
        "junit": len(render_junit(report, violations).encode()),
        "report.json": len(str(build(snapshot)).encode()),
    }
    assert {name: size for name, size in published.items() if size > PUBLISHED_MOST} == {}


def _row(number: int) -> dict[str, Any]:
    return {
        "violation": f"{number:016x}",
        "class": "missing",
        "state": "confirmed",
        "window_start_us": 0,
        "key": f"{MUCH}{number}",
        "count": 20,
        "ids": [f"{MUCH}{number}-{i}" for i in range(20)],
        "lookup_us": 2,
        "phase": "control",
        "fault": None,
        "explanation": "20 of 20 expected contributions are in no result and no late record",
    }
