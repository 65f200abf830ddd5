"""The report as one HTML file: its text, the data of its plots, and the limits of its claims."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.pages.story import FAULT, LOST, REPEATED, story
from tests.unit.publish_snapshots import broken, clean, config, newest
from validator.cli.main import main
from validator.model.classes import Guarantee, Verdict
from validator.model.snapshot import Histogram, Snapshot
from validator.model.terminal import OBEYED
from validator.publish import html, html_sections, series
from validator.publish.history import HISTORY_FILE, History
from validator.publish.html_sections import PhaseLatency
from validator.publish.live_page import resource
from validator.publish.publisher import Publisher
from validator.publish.report import build
from validator.publish.sentences import UNSEEN_TITLE

pytestmark = pytest.mark.unit


@pytest.fixture(scope="module")
def story_of_run() -> tuple[Snapshot, History]:
    """The last snapshot of the story, and its history."""
    history, last = History(), clean()
    for last in story():
        history = history.add(last)
    return last, history


def rendered(snapshot: Snapshot, history: History) -> str:
    return html.render(build(snapshot), newest(snapshot), history=history)


def sent(page: str) -> dict[str, Any]:
    """The data of the page's plots."""
    [data] = re.findall(r'<script type="application/json" id="sent">(.*?)</script>', page)
    return dict(json.loads(data))


def test_the_report_has_the_data_of_the_timeline_with_its_faults(story_of_run: tuple[Snapshot, History]) -> None:
    last, history = story_of_run
    drawn = sent(rendered(last, history))
    assert drawn["rows"] == series.rows(history)
    assert drawn["rows"][-1][drawn["columns"].index("missing")] == LOST
    assert len(drawn["restarts"]) == 1
    assert [fault["name"] for fault in drawn["faults"]] == [fault.name for fault in last.faults]


def test_the_name_of_a_fault_cannot_end_the_data_of_the_plots(story_of_run: tuple[Snapshot, History]) -> None:
    last, history = story_of_run
    evil = "</script><script>alert(1)</script>"
    page = rendered(replace(last, faults=(replace(last.faults[0], name=evil),)), history)
    assert evil not in page
    assert sent(page)["faults"][0]["name"] == evil


def spread(*counts: int) -> Histogram:
    return Histogram((0.1, 1.0, 10.0), counts, 1.0, None)


def test_latency_is_separate_by_phase_and_definition() -> None:
    page = html_sections.latency_by_phase(
        [
            PhaseLatency("control", {"last_input": spread(90, 10, 0, 0), "window_close": spread(0, 4, 0, 0)}),
            PhaseLatency(f"failure, {FAULT}", {}),
            PhaseLatency(f"recovery, {FAULT}", {"last_input": spread(0, 0, 7, 0), "first_input": spread(0, 0, 0, 0)}),
        ]
    )
    rows = [re.findall(r"<td[^>]*>([^<]*)</td>", row) for row in re.findall(r"<tr>.*?</tr>", page)[1:]]
    assert rows == [
        ["control", "last input", "100", "0.1", "0.1", "1", "-"],
        ["control", "window close", "4", "1", "1", "1", "-"],
        [f"recovery, {FAULT}", "last input", "7", "10", "10", "10", "-"],
    ]


def test_the_report_shows_the_violation_and_the_next_step(story_of_run: tuple[Snapshot, History]) -> None:
    page = rendered(*story_of_run)
    assert f"<strong>{LOST}</strong> events were lost" in page
    assert f"<strong>{REPEATED}</strong> duplicates: " in page
    assert "Compare the engine&#x27;s restarts" in page
    assert "<dt>since</dt><dd>first confirmed 2026-01-31 11:55:00 UTC</dd>" in page
    assert "3 windows that start from 2026-01-31 11:53:00 to 11:55:00 UTC, 14 keys, 14 cells" in page
    assert "covers only the newest" not in page
    assert "<h2>Why</h2>" not in page
    assert page.index("exactly once (declared)") < page.index("at most once")


def test_a_name_with_direction_marks_is_escaped() -> None:
    turned = "click\u202estream"
    found = replace(broken(), pipeline=turned, reasons=(turned, turned))
    page = html.render(build(found), newest(found))
    assert OBEYED.findall(re.sub(r"[\n\t]", "", page)) == []
    assert r"<h1>Pipeline click\u202estream breaks its exactly-once guarantee.</h1>" in page


def test_an_unknown_verdict_shows_its_reason() -> None:
    unsure = {**clean().verdicts, Guarantee.EXACTLY_ONCE: Verdict.UNKNOWN}
    page = html.render(build(replace(clean(), verdicts=unsure, reasons=("2 partitions were not read",))))
    assert "<h2>Why</h2><ul><li>2 partitions were not read</li>" in page


def test_the_report_and_the_page_say_what_the_evidence_cannot_show() -> None:
    unseen = "a <lost> and a repeated event of one cell cancel out"
    assert UNSEEN_TITLE not in html.render(build(clean()))
    page = html.render(build(replace(clean(), cannot_see=(unseen,))))
    assert page.count(f"<h2>{UNSEEN_TITLE}</h2><ul><li>a &lt;lost&gt; and a repeated event of one cell") == 1
    live = resource("page.html")
    assert f'<h2 id="limits-head">{UNSEEN_TITLE}</h2><ul id="cannot-see"' in live
    assert set(re.findall(r'\bat\("([a-z-]+)"\)', resource("page.js"))) <= set(re.findall(r'id="([a-z-]+)"', live))
    assert 'fill("cannot-see", report.cannot_see.map(' in resource("page.js")


def test_without_a_history_the_report_says_so() -> None:
    page = html.render(build(broken()), newest(broken()))
    assert "There is no timeline" in page
    assert "Latency per phase" not in page
    assert "<script" not in page


def test_a_coverage_sum_that_fails_is_told() -> None:
    page = html_sections.coverage(build(replace(clean(), coverage_differences=("a sum < 3 does not hold",))))
    assert "A sum &lt; 3 does not hold." in page


def test_coverage_is_truncated_and_not_rounded() -> None:
    page = html_sections.coverage(build(clean()))
    # 1005 of 1010 offsets are 99.504 %
    assert "99.5 %" in page
    assert "1,050 records read, 0 expired, 5 offsets without a visible record, 1,055 offsets spanned" in page
    nearly = replace(clean().coverage[0], next_offset=999_999, high_watermark=1_000_000, first_offset=0)
    assert "99.9 %" in html_sections.coverage(build(replace(clean(), coverage=(nearly,))))


def test_the_command_renders_the_history_of_the_state(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], story_of_run: tuple[Snapshot, History]
) -> None:
    publisher = Publisher(config(tmp_path), tmp_path)
    first: dict[str, Any] = {"taken_us": story_of_run[0].taken_us - 2_000_000}
    publisher.start()
    publisher.publish(replace(story_of_run[0], **first))
    publisher.publish(story_of_run[0])
    publisher.stop()
    assert main(["report", str(tmp_path), "--format", "html"]) == 1
    assert len(sent(capsys.readouterr().out)["rows"]) >= 2
    (tmp_path / HISTORY_FILE).write_text("{")
    assert main(["report", str(tmp_path), "--format", "html"]) == 1
    assert "There is no timeline" in capsys.readouterr().out
