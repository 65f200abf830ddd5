"""The page's messages for a canary that is not found, raises a false alarm, or is silent."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from dashboards import alerts
from tests.unit.publish_snapshots import NOON_US, SECOND, SEEN, clean
from validator.model.snapshot import CanaryMeasures
from validator.publish.canary import RECALL_MIN, canary_status
from validator.publish.report import build, build_violations

pytestmark = pytest.mark.unit


def doubt(measures: CanaryMeasures) -> str:
    told = canary_status(measures, NOON_US)
    assert told is not None
    return told.doubt


def test_a_canary_that_is_found_raises_no_doubt() -> None:
    told = canary_status(SEEN, NOON_US)
    assert told is not None
    assert (told.found, told.doubt) == ("1", "")
    assert canary_status(None, NOON_US) is None


def test_before_its_first_round_is_due_nothing_is_claimed() -> None:
    young = replace(SEEN, recall_ratio=None, class_recall_ratio={}, delay_us_max=None, false_alarms=None)
    told = canary_status(young, NOON_US)
    assert told is not None
    assert (told.found, told.doubt) == ("none judged yet", "")


def test_missed_canary_violations_are_reported_by_class() -> None:
    blind = replace(SEEN, recall_ratio=0.5, class_recall_ratio={"missing": 0.0, "duplicate": 1.0})
    said = doubt(blind)
    assert re.search(r" share of 0\.5 .* \(by class: missing 0\)", said)


def test_one_late_round_raises_no_doubt_and_the_limit_is_that_of_the_alert() -> None:
    assert RECALL_MIN == alerts.RECALL_MIN
    assert doubt(replace(SEEN, recall_ratio=RECALL_MIN)) == ""
    assert doubt(replace(SEEN, recall_ratio=RECALL_MIN - 0.001))


def test_false_alarms_and_silence_are_reported() -> None:
    wrong = canary_status(replace(SEEN, false_alarms=3), NOON_US)
    assert wrong is not None
    assert wrong.found == "1, 3 false alarms"
    assert "reported 3 violations that its canary had not planted" in wrong.doubt
    silent = canary_status(replace(SEEN, judged_us=NOON_US - 301 * SECOND), NOON_US)
    assert silent is not None
    assert silent.found == "silent"
    assert "since 2026-01-31 11:54:59 UTC" in silent.doubt


def test_the_report_does_not_contain_the_canary() -> None:
    watched = replace(clean(), canary=replace(SEEN, recall_ratio=0.0))
    assert build(watched) == build(clean())
    assert build_violations(watched) == build_violations(clean())
