"""The canary on a real broker: the sidecar finds the planted violations, the canary exposes a blind sidecar, and the
pipeline's report is unaffected."""

from __future__ import annotations

import json
import math
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.sidecar_fixtures import Live, Pipeline, Report, answer, click, counts

pytestmark = pytest.mark.timeout(900)

PLANTED = ("missing", "duplicate", "misplaced", "unknown_id")
Shown = dict[str, float]


TIMING = ("timing.overdue_after=1s", "timing.missing_after=2s")


def canary(pipeline: Pipeline, found_within_seconds: int) -> str:
    topics = {"input": f"{pipeline.name}-ci", "output": f"{pipeline.name}-co"}
    return f"canary={json.dumps({**topics, 'every': '1s', 'found_within': f'{found_within_seconds}s'})}"


def create_canary(pipeline: Pipeline) -> None:
    pipeline.broker.create_topics({f"{pipeline.name}-ci": 1, f"{pipeline.name}-co": 2})


def shown(state: Path) -> Shown:
    """Return the canary's metrics from `/metrics`, without prefix; a class is part of the name."""
    url = json.loads((state / "endpoint.json").read_text())["url"]
    with urllib.request.urlopen(f"{url}metrics", timeout=10) as answered:
        text = answered.read().decode()
    found: Shown = {}
    for family in text_string_to_metric_families(text):
        if family.name.startswith("streamproof_canary_"):
            for sample in family.samples:
                of_class = f"/{sample.labels['class']}" if "class" in sample.labels else ""
                found[family.name.removeprefix("streamproof_canary_") + of_class] = sample.value
    return found


def until_shown(live: Live, condition: Callable[[Shown], bool]) -> Shown:
    """Return the canary's metrics once they satisfy ``condition``."""
    last: Shown = {}

    def satisfied(_: Report) -> bool:
        last.clear()
        try:
            last.update(shown(live.state))
        except (FileNotFoundError, URLError):
            return False  # the sidecar is starting: the report is from the previous run
        return condition(last)

    try:
        live.until(satisfied)
    except AssertionError as error:
        raise AssertionError(f"{error}; the canary: {last}") from error
    return last


def found_all(canary: Shown) -> bool:
    return canary.get("recall_ratio") == 1


def of_the_pipeline(report: Report) -> dict[str, Any]:
    """Return the report without the parts that differ between two sidecars: instants and speeds."""
    kept = {name: value for name, value in report.items() if name not in ("time", "validator", "violations")}
    kept["violations"] = {name: report["violations"][name] for name in ("confirmed", "retracted", "suspected")}
    kept["coverage"] = [
        {name: value for name, value in part.items() if not name.startswith("read_through")}
        for part in report["coverage"]["partitions"]
    ]
    return kept


def test_the_canary_finds_its_violations_until_it_is_blind_and_leaves_the_report_unchanged(pipeline: Pipeline) -> None:
    pipeline.create()
    create_canary(pipeline)
    pipeline.clicks(click(1, 1), click(2, 2), click(3, 11), click(4, 21))
    pipeline.answers(answer([1, 1]), answer([3], 1))  # 2 is lost, 1 is counted twice, 4 is pending

    def settled(report: Report) -> bool:
        return counts(report, "missing", "duplicate") == {"missing": 1, "duplicate": 1}

    with pipeline.live(*TIMING, state="without") as other:
        without = other.until(settled)
        assert not shown(other.state)
    with pipeline.live(*TIMING, canary(pipeline, 1)) as live:
        # A sidecar on a busy machine must not look blind: it needs batches to read a round, and more to confirm it.
        in_time = math.ceil(max(6.0, 6 * live.pace()))

    # The next start on that state judges its own rounds, regardless of what the previous run left half read.
    with pipeline.live(*TIMING, canary(pipeline, in_time)) as live:
        seeing = until_shown(live, found_all)
        assert seeing["false_alarms"] == 0
        assert {name: seeing[f"class_recall_ratio/{name}"] for name in PLANTED} == dict.fromkeys(PLANTED, 1)
        assert 0 < seeing["detection_delay_seconds"] <= in_time + 2
        assert of_the_pipeline(live.until(settled)) == of_the_pipeline(without)

        # An open transaction holds back the records after it: no consumer can read the canary's results.
        holding = pipeline.transactional()
        holding.begin_transaction()
        holding.produce(f"{pipeline.name}-co", b"held", partition=0)
        assert holding.flush(30) == 0
        blind = until_shown(live, lambda canary: canary["recall_ratio"] <= 0.5)
        assert blind["false_alarms"] == 0
        assert live.until_said("violations were not found in time: ")
        assert of_the_pipeline(live.batches(1)) == of_the_pipeline(without)
        holding.abort_transaction(30)


@pytest.mark.full
def test_a_topic_of_the_canary_that_is_deleted_stops_the_canary_and_nothing_else(pipeline: Pipeline) -> None:
    pipeline.create()
    create_canary(pipeline)
    pipeline.clicks(click(1, 1), click(2, 11))
    pipeline.answers(answer([1]))
    with pipeline.live(*TIMING, canary(pipeline, 1)) as live:
        until_shown(live, lambda canary: "recall_ratio" in canary)
        admin = pipeline.admin()
        for done in admin.delete_topics([f"{pipeline.name}-co"]).values():
            done.result(30)
        live.until_said(f"the canary's topic {pipeline.name}-co does not exist: nothing is planted until it does")
        pipeline.clicks(click(3, 21))
        pipeline.answers(answer([2], 1))
        report = live.until(lambda report: report["contributions"]["processed"] == 2)
        judged = shown(live.state)["judged_timestamp_seconds"]
        pipeline.broker.create_topics({f"{pipeline.name}-co": 1})
        until_shown(live, lambda canary: canary["judged_timestamp_seconds"] > judged)
    assert report["outcome"] == "pass"
