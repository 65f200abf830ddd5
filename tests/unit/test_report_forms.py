"""The report as text, JUnit XML, HTML and live table."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from tests.unit.publish_snapshots import NOON_US, broken, clean, newest, violation
from validator.model.classes import Guarantee, Verdict
from validator.publish import github, html, junit, live_table, text
from validator.publish.live_page import live_page
from validator.publish.report import build
from validator.publish.sentences import number, ratio, verified, what_broke

pytestmark = pytest.mark.unit

NASTY = "</script><b>&\x00\x1b[31m\"'"


def test_the_text_fits_and_describes_violations_in_sentences() -> None:
    shown = text.render(build(broken()), newest(broken()))
    assert max(len(line) for line in shown.splitlines()) <= text.WIDTH
    assert shown.startswith("Pipeline clickstream breaks its exactly-once guarantee.\n")
    said = " ".join(shown.split())
    attribution = "after fault kill-one-worker on taskmanager-1 at 2026-01-31 11:59:30."
    assert f"3 events were lost: no result, late or rejected record carries them. 1 {attribution}" in said
    assert f"2 duplicates: events were counted more than once. 1 {attribution}" in said
    assert "kill-one-worker (process_kill on taskmanager-1), from 2026-01-31 11:59:30, not healed;" in shown
    assert "v-2: duplicate, confirmed, 2026-01-31 11:58:00, key /help: 2 ids" in shown
    assert all(line == line.rstrip() for line in shown.splitlines())


def test_a_report_says_how_many_events_owe_no_result() -> None:
    """They are never settled, and a reader would look for them."""
    report = build(clean())
    for read, unowed, seen, said in (
        (60, 20, 40, "40 of 60 events are settled, 20 owe no result, and 40 of 40 cells are verified"),
        (1, 0, 1, "1 of 1 event is settled, and 1 of 1 cell is verified"),
    ):
        report["coverage"]["events"] = {"read": read, "settled": read - unowed, "in_no_cell": unowed}
        report["cells"] |= {"verified": seen, "seen": seen}
        assert verified(report) == [f"{said} (a cell is a window of one key)."]


def test_an_acknowledged_violation_has_its_reason_by_whom_and_when() -> None:
    seen = replace(violation("v-1", "missing", NOON_US), acknowledged="ticket 7 <b>", acknowledged_by="ann")
    seen = replace(seen, acknowledged_at_us=NOON_US)
    snapshot = replace(broken(), violations_latest=(seen,), violations_open={"duplicate": 2})
    report, records = build(snapshot), newest(snapshot)
    assert records == (seen,)
    said = "confirmed, acknowledged by ann at 2026-01-31 12:00:00 UTC: ticket 7 <b>"
    lines = " ".join(text.render(report, records).split())
    assert said in lines
    assert "3 events were lost: no result, late or rejected record carries them. 1 after fault" in lines
    assert "All are acknowledged. First confirmed" in lines
    page = html.render(report, records)
    assert said.replace("<b>", "&lt;b&gt;") in page
    assert '<div class="finding tolerated"><strong>3</strong>' in page
    assert '<div class="finding"><strong>2</strong>' in page
    assert "acknowledged by ann" in github.summary(report, records)


def test_the_read_rate_is_that_of_the_newest_batch() -> None:
    # At the end of a run the newest batch is small, so its rate is not the rate of the run.
    (line,) = [line for line in text.render(build(clean())).splitlines() if "inputs read" in line]
    assert " ".join(line.split()).startswith("newest batch: inputs read, 1/s 500 ")


def test_the_text_of_a_clean_run_states_that_nothing_broke() -> None:
    shown = text.render(build(clean()))
    assert shown.startswith("Pipeline clickstream keeps its exactly-once guarantee.\n")
    assert "  Nothing: no violation is confirmed.\n" in shown
    assert "  10 events are not due yet.\n" in shown
    assert "  No latency: topic output has CreateTime\n" in shown


@pytest.mark.parametrize(("value", "shown"), [(None, "-"), (1.0, "1"), (0.9999999, "0.999999"), (0.5, "0.5"), (0, "0")])
def test_a_ratio_below_one_is_never_shown_as_one(value: float | None, shown: str) -> None:
    assert ratio(value) == shown


def test_the_text_shows_every_count() -> None:
    report = build(broken())
    shown = text.render(report)
    for name in report["contributions"]:
        assert f"  {name.replace('_', ' ')} " in shown


def test_a_tolerated_class_is_named_last_and_called_tolerated() -> None:
    report = build(replace(broken(), guarantee=Guarantee.AT_MOST_ONCE))
    said = what_broke(report)
    assert said[0].startswith("2 duplicates: ")
    assert "tolerates" in said[1]


def cases(of: ET.Element) -> dict[str, set[str]]:
    return {f"{c.get('classname')}.{c.get('name')}": {child.tag for child in c} for c in of.iter("testcase")}


def test_junit_has_a_case_per_guarantee_and_class_and_fails_only_what_is_declared() -> None:
    lossless = replace(
        broken(),
        guarantee=Guarantee.AT_MOST_ONCE,
        verdicts={**broken().verdicts, Guarantee.AT_LEAST_ONCE: Verdict.UNKNOWN},
    )
    suite = ET.fromstring(junit.render(build(lossless), newest(lossless)))[0]
    found = cases(suite)
    assert len(found) == 3 + 7 == int(suite.get("tests", "0"))
    assert found["guarantee.at_most_once"] == {"failure"}
    assert found["guarantee.exactly_once"] == found["guarantee.at_least_once"] == {"skipped"}
    assert found["violation.duplicate"] == {"failure"}
    assert found["violation.missing"] == {"system-out"}
    assert found["violation.misplaced"] == set()
    assert (suite.get("failures"), suite.get("errors"), suite.get("skipped")) == ("2", "0", "2")


def test_junit_calls_unknown_an_error() -> None:
    unsure = replace(clean(), verdicts={**clean().verdicts, Guarantee.EXACTLY_ONCE: Verdict.UNKNOWN}, reasons=("Why.",))
    suite = ET.fromstring(junit.render(build(unsure)))[0]
    assert cases(suite)["guarantee.exactly_once"] == {"error"}


def test_foreign_data_is_escaped() -> None:
    nasty = replace(
        broken(), pipeline=NASTY, reasons=(NASTY,), violations_latest=(violation(NASTY, "missing", NOON_US, key=NASTY),)
    )
    report, violations = build(nasty), newest(nasty)
    page = html.render(report, violations)
    assert "</script><b>" not in page
    ET.fromstring(junit.render(report, violations))


def test_the_html_loads_nothing_from_elsewhere() -> None:
    for page in (html.render(build(broken()), newest(broken())), live_page()):
        # The plotting library has its address in its first line. The pages' tests check that nothing is loaded from it.
        addresses = set(re.findall(r"https?://[^\s\"')]+", page))
        assert addresses <= {"https://github.com/leeoniya/uPlot"}
        assert "/*STYLE*/" not in page
        assert "prefers-color-scheme: dark" in page


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_live_table_is_drawn_in_place_on_a_terminal() -> None:
    terminal = Terminal()
    table = live_table.LiveTable(terminal, {})
    table.show(build(clean()))
    table.show(build(broken()))
    height = live_table.render(build(clean())).count("\n") + 1
    assert f"\x1b[{height}A\r\x1b[J" in terminal.getvalue()
    assert "\x1b[1;31mFAIL\x1b[0m" in terminal.getvalue()


def test_a_note_stays_above_the_table() -> None:
    terminal = Terminal()
    table = live_table.LiveTable(terminal, {"NO_COLOR": "1"})
    table.note("first")
    table.show(build(clean()))
    drawn = live_table.render(build(clean())) + "\n"
    assert terminal.getvalue() == "first\n" + drawn
    table.note("second")
    height = drawn.count("\n")
    assert terminal.getvalue() == f"first\n{drawn}\x1b[{height}A\r\x1b[Jsecond\n{drawn}"


def test_the_live_table_fits_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    terminal = Terminal()
    live_table.LiveTable(terminal, {"NO_COLOR": "1"}).show(build(broken()))
    assert max(len(line) for line in terminal.getvalue().splitlines()) < 40


def test_the_live_table_honors_no_color() -> None:
    terminal = Terminal()
    live_table.LiveTable(terminal, {"NO_COLOR": "1"}).show(build(broken()))
    assert "\x1b" not in terminal.getvalue()


def test_without_a_terminal_the_live_table_writes_a_plain_line_per_change() -> None:
    stream = io.StringIO()
    table = live_table.LiveTable(stream, {})
    table.show(build(clean()))
    table.show(build(replace(clean(), taken_us=NOON_US + 1_000_000)))
    table.show(build(broken()))
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    assert lines[1].startswith("2026-01-31T12:00:00 exactly_once=fail expected=1,000 processed=987")


def test_the_live_table_before_the_first_batch_has_no_time_rather_than_1970() -> None:
    before = build(replace(clean(), taken_us=0, batches=0))
    assert live_table.render_line(before).startswith("no batch yet        exactly_once=")
    assert "no batch yet" in live_table.render(before)
    assert "1970" not in live_table.render(before)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(15_000.4, "15,000"), (999.96, "1,000"), (1_234.5, "1,234"), (12.345, "12.35"), (0.00012, "0.00012"), (None, "-")],
)
def test_a_rate_is_never_written_with_an_exponent(value: float | None, shown: str) -> None:
    assert number(value) == shown
