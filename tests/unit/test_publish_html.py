"""The report as one HTML file: its text, its plots, and the limits of its claims."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from tests.pages.story import FAULT, LOST, REPEATED, story
from tests.unit.publish_snapshots import broken, clean, config, newest
from validator.cli.main import main
from validator.model.classes import Guarantee, Verdict, ViolationClass
from validator.model.snapshot import Histogram, Snapshot
from validator.model.terminal import OBEYED
from validator.publish import html, report_plots, svg
from validator.publish.history import HISTORY_FILE, History
from validator.publish.publisher import Publisher
from validator.publish.report import build
from validator.publish.report_plots import PhaseLatency

pytestmark = pytest.mark.unit


@pytest.fixture(scope="module")
def story_of_run() -> tuple[Snapshot, History]:
    """The last snapshot of the story, and its history."""
    history, last = History(), clean()
    for last in story():
        history = history.add(last)
    return last, history


def rendered(snapshot: Snapshot, history: History) -> str:
    return html.render(build(snapshot), newest(snapshot), history)


def pictures(page: str) -> list[ET.Element]:
    """Every plot of the page, parsed as XML: errors that a browser would tolerate fail the test."""
    return [ET.fromstring(found) for found in re.findall(r'<svg class="plot".*?</svg>', page, re.DOTALL)]


def test_the_report_draws_the_timeline_with_its_faults(story_of_run: tuple[Snapshot, History]) -> None:
    page = rendered(*story_of_run)
    drawn = pictures(page)
    labels = [picture.get("aria-label", "") for picture in drawn]
    starts = [re.split("[,:]", label)[0] for label in labels[:4]]
    assert starts == ["Throughput", "Latency", "Contributions that are outstanding or not explained", "Violations"]
    assert f"missing at the end {LOST}, highest {LOST}" in labels[3]
    for picture in drawn[:4]:
        assert len(picture.findall("rect[@class='band']")) == 2
        assert len(picture.findall("path[@class='mark']")) == 1
        assert FAULT in [text.text for text in picture.findall("text")]
    assert "Always 0: misplaced, unknown id, undecodable." in page


def test_nothing_is_drawn_outside_of_its_plot(story_of_run: tuple[Snapshot, History]) -> None:
    for picture in pictures(rendered(*story_of_run)):
        for path in picture.findall("path"):
            numbers = [float(n) for n in re.findall(r"[\d.]+", path.get("d", ""))]
            assert max(numbers) <= svg.WIDTH
        for rect in picture.findall("rect"):
            assert 0 <= float(rect.get("y", "0")) <= svg.HEIGHT
            assert float(rect.get("x", "0")) + float(rect.get("width", "0")) <= svg.WIDTH


def spread(*counts: int) -> Histogram:
    return Histogram((0.1, 1.0, 10.0), counts, 1.0, None)


def test_latency_is_separate_by_phase_and_definition() -> None:
    story_of_run = [
        PhaseLatency("control", {"last_input": spread(90, 10, 0, 0), "window_close": spread(0, 4, 0, 0)}),
        PhaseLatency(f"failure, {FAULT}", {}),
        PhaseLatency(f"recovery, {FAULT}", {"last_input": spread(0, 0, 7, 0), "first_input": spread(0, 0, 0, 0)}),
    ]
    page = report_plots.latency_by_phase(story_of_run)
    assert [picture.get("aria-label") for picture in pictures(page)] == [
        "control: 100 results, half within 0.1 s, 99 % within 1 s",
        f"recovery, {FAULT}: 7 results, half within 10 s, 99 % within 10 s",
        "control: 4 results, half within 1 s, 99 % within 1 s",
    ]
    assert re.findall(r"<h3>(.*?)</h3>", page) == ["From last input", "From window close"]
    # All plots of a definition have the same buckets, so that they can be compared.
    labels = [[text.text for text in p.findall("text") if text.get("text-anchor") == "middle"] for p in pictures(page)]
    assert labels == [["0.1", "1", "10"], ["0.1", "1", "10"], ["1"]]


def test_of_many_phases_the_newest_are_drawn() -> None:
    most = report_plots.PHASES_SHOWN
    story_of_run = [PhaseLatency(f"phase {i}", {"last_input": spread(i, 0, 0, 0)}) for i in range(1, most + 4)]
    page = report_plots.latency_by_phase(story_of_run)
    assert [label.get("aria-label", "").split(":")[0] for label in pictures(page)] == [p.name for p in story_of_run[3:]]
    assert "3 earlier phases" in page


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


def test_without_a_history_the_report_says_so() -> None:
    page = html.render(build(broken()), newest(broken()))
    assert "There is no timeline" in page
    assert "Latency per phase" not in page
    assert pictures(page) == []


def test_a_coverage_sum_that_fails_is_told() -> None:
    page = report_plots.coverage(build(replace(clean(), coverage_differences=("a sum < 3 does not hold",))))
    assert "A sum &lt; 3 does not hold." in page


def test_coverage_is_truncated_and_not_rounded() -> None:
    page = report_plots.coverage(build(clean()))
    # 1005 of 1010 offsets are 99.504 %
    assert "99.5 %" in page
    assert "1,050 records read, 0 expired, 5 offsets without a visible record, 1,055 offsets spanned" in page
    nearly = replace(clean().coverage[0], next_offset=999_999, high_watermark=1_000_000, first_offset=0)
    assert "99.9 %" in report_plots.coverage(build(replace(clean(), coverage=(nearly,))))


def test_every_class_of_violation_has_a_colour() -> None:
    assert set(report_plots.TONES) == {name.value for name in ViolationClass}


@pytest.mark.parametrize("span", [1, 59, 600, 86_400, 10_000_000])
def test_a_time_axis_has_few_ticks_and_none_outside(span: int) -> None:
    first = 1_769_860_800.0
    plot = svg.over_time("x", [first, first + span], [svg.Line("a", [0.0, 1.0], "t1")], [], [])
    ticks = [t for t in ET.fromstring(plot.split("<ul")[0]).findall("text") if t.get("text-anchor") == "middle"]
    assert len(ticks) <= svg.TIME_TICKS_MAX + 1


def test_a_value_between_gaps_is_drawn() -> None:
    plot = svg.over_time("x", [0.0, 1.0, 2.0], [svg.Line("a", [None, 5.0, None], "t1")], [], [])
    assert "<circle" in plot


def test_a_count_is_drawn_as_a_step_at_the_instant_of_its_growth() -> None:
    plot = svg.over_time("x", [0.0, 1.0, 2.0], [svg.Line("a", [0.0, 0.0, 9.0], "t1", "held")], [], [])
    [drawn] = [
        path for path in re.findall(r'class="t1 line" d="([^"]*)"', plot) if path.count("M") == 1 and "V" in path
    ]
    assert re.fullmatch(r"M\S+ \S+(H\S+V\S+){2}", drawn)
    assert "L" not in drawn


def test_a_mean_is_drawn_as_a_constant_over_its_interval() -> None:
    # The mean is 5 from 0 to 1, 9 from 1 to 3, unknown from 3 to 4, and 2 from 4 to 6.
    line = svg.Line("a", [None, 5.0, 9.0, None, 2.0], "t1", "stretches")
    plot = svg.over_time("x", [0.0, 1.0, 3.0, 4.0, 6.0], [line], [], [])
    [drawn] = [d for d in re.findall(r'class="t1 line" d="([^"]*)"', plot) if "V" in d]
    assert re.fullmatch(r"M\S+ \S+H\S+V\S+H\S+M\S+ \S+H\S+", drawn)
    assert [round(float(x)) for x in re.findall(r"[MH]([\d.]+)", drawn)] == [48, 115, 248, 315, 448]


def test_a_foreign_label_is_escaped() -> None:
    evil = '"><script>x</script>'
    plot = svg.over_time(evil, [0.0, 1.0], [svg.Line(evil, [0, 1], "t1")], [svg.Band(evil, 0, 1)], [])
    assert "<script>" not in plot
    ET.fromstring(plot.split("<ul")[0])


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
    assert len(pictures(capsys.readouterr().out)) >= 3
    (tmp_path / HISTORY_FILE).write_text("{")
    assert main(["report", str(tmp_path), "--format", "html"]) == 1
    assert "There is no timeline" in capsys.readouterr().out
