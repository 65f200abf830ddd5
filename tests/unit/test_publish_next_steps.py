"""The suggested next steps: commands that run unchanged, and the extent of a violation."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from html import escape
from pathlib import Path

import pytest

from tests.pages.story import story
from tests.unit.publish_snapshots import NOON_US, SECOND, broken, clean, config, newest, violation
from validator.cli.main import main
from validator.model.snapshot import FaultWindow
from validator.model.violation import Violation
from validator.publish import html, junit, text
from validator.publish.findings import findings
from validator.publish.next_steps import acknowledge_all_command, acknowledge_command, explain_command, extent
from validator.publish.publisher import Publisher
from validator.publish.report import build
from validator.publish.sentences import fault_sentences

pytestmark = pytest.mark.unit


def test_a_command_names_the_state_for_any_folder_name() -> None:
    line = explain_command([replace(violation("v", "missing", NOON_US), ids=("STATE",))], "/var/lib/stream proof")
    assert line is not None
    assert shlex.split(line) == ["streamproof", "explain", "/var/lib/stream proof", "--id", "STATE"]


def test_only_an_open_violation_can_be_accepted() -> None:
    first = replace(violation("v-1", "missing", NOON_US), acknowledged="ticket 7")
    other = replace(violation("v-2", "missing", NOON_US - SECOND), state="retracted")
    third = violation("v'3", "missing", NOON_US - 2 * SECOND)
    line = acknowledge_command(newest(replace(clean(), violations_latest=(first, other, third))), "state")
    assert line is not None
    assert shlex.split(line) == ["streamproof", "ack", "state", "v'3", "--reason", "WHY"]
    assert acknowledge_command(newest(replace(clean(), violations_latest=(first, other))), "state") is None


def test_all_violations_of_a_class_can_be_accepted_if_there_are_several() -> None:
    def line(*listed: Violation) -> list[str]:
        given = acknowledge_all_command(newest(replace(clean(), violations_latest=listed)), "state")
        return [] if given is None else shlex.split(given)

    first, second = (violation(f"v-{n}", "missing", NOON_US - n * SECOND) for n in (1, 2))
    assert line(first) == line(first, replace(second, acknowledged="ticket 7")) == []
    of_class = ["streamproof", "ack", "state", "--class", "missing"]
    assert line(first, second) == [*of_class, "--fault", "kill-one-worker", "--reason", "WHY"]
    # The newest violation is the only one of its fault, or has no fault: the command then covers the class.
    assert line(replace(first, fault="other"), second) == [*of_class, "--reason", "WHY"]
    assert line(replace(first, fault=None), second, replace(second, id="v-3")) == [*of_class, "--reason", "WHY"]
    evil = [replace(one, fault="-x' y") for one in (first, second)]
    assert line(*evil) == [*of_class, "--fault=-x' y", "--reason", "WHY"]


def test_the_reports_offer_to_accept_all_violations_of_a_class() -> None:
    last = story()[-1]
    report, violations = build(last), newest(last)
    whole = 'streamproof ack STATE --class duplicate --fault kill-one-worker --reason "WHY"'
    assert f"    Acknowledge all of this class and fault:\n      {whole}\n" in text.render(report, violations)
    assert f"<dt>acknowledge all</dt><dd><code>{escape(whole)}</code>" in html.render(report, violations)


def test_an_incomplete_extent_says_so() -> None:
    two = (violation("v-1", "missing", NOON_US, key="/a"), violation("v-2", "missing", NOON_US, key="/b"))
    listed = newest(replace(clean(), violations_latest=two))
    assert extent(listed, 4) == "the window that starts at 2026-01-31 11:58:00 UTC, 2 keys"
    assert extent(listed, 500) == f"{extent(listed, 4)}; this covers only the newest 4 contributions"
    later = replace(two[1], window_start_us=NOON_US)
    spread = newest(replace(clean(), violations_latest=(two[0], later)))
    assert extent(spread, 4) == ("2 windows that start from 2026-01-31 11:58:00 to 12:00:00 UTC, 2 keys, 2 cells")
    assert extent([], 4) is None


def test_a_report_has_the_words_of_its_oracle_and_what_the_losses_have_in_common() -> None:
    counts = {**broken().violations["confirmed"], "misplaced": 2}
    shown = replace(broken(), cell_noun="bucket of time", violations={**broken().violations, "confirmed": counts})
    said = " ".join(text.render(build(shown), newest(shown)).split())
    assert "2 events were counted in a bucket of time or for a key" in said
    assert "window that starts" not in said
    shown = replace(shown, cell_noun="window")
    assert "2 events were counted in a window or for a key" in text.render(build(shown))
    hint = "The lost events are all the events of click-0 up to offset 9."
    missing = next(it for it in findings(build(replace(shown, loss_hint=hint))) if it.violation == "missing")
    assert missing.advice.startswith(f"{hint} Otherwise: Compare the engine's restarts")


def test_input_before_the_first_record_is_in_the_summary() -> None:
    of_input, of_output = clean().coverage
    early = replace(clean(), coverage=(replace(of_input, first_offset=1_005), replace(of_output, first_offset=7)))
    out_of_scope = {**early.contributions, "out_of_scope": 3}
    early = replace(early, contributions=out_of_scope, results={"read": 50, "correct": 40})
    said = " ".join(text.summary(build(early), []).split())
    assert "Offsets that were expired or skipped at the start: 1,005 of click-0." in said
    assert "3 contributions and 10 results are not judged" in said
    assert "Not judged" not in text.summary(build(clean()), [])


def test_the_report_of_a_state_has_the_start_and_commands_to_copy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publisher = Publisher(config(tmp_path), tmp_path)
    publisher.start()
    for snapshot in story()[-90:]:
        publisher.publish(snapshot)
    publisher.stop()
    capsys.readouterr()
    assert main(["report", str(tmp_path)]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "First confirmed at 2026-01-31 11:55:00 UTC. Affected: 3 windows" in said
    # violations.json shows that the page's commands have ids that exist in this state.
    listed = json.loads((tmp_path / "violations.json").read_text())["violations"]
    known = {record["ids"][0] for record in listed}
    assert any(f"streamproof explain {tmp_path} --id {name}" in said for name in known)


def test_violations_have_ids_and_their_fault_in_every_form() -> None:
    report, violations = build(broken()), newest(broken())
    page, cases = html.render(report, violations), junit.render(report, violations)
    assert "2 ids of the window are missing.</span><small>after fault kill-one-worker</small><small>ids 17, 18" in page
    assert "key /help (fault kill-one-worker): 2 ids of the window are missing. ids 17, 18" in cases
    assert "last 1h: pass, last 24h: pass" in page


def test_known_effects_of_a_fault_on_throughput_and_latency_are_shown() -> None:
    measures = {"throughput_penalty_ratio": 0.4, "latency_penalty_ratio": 6.25}
    known = build(replace(broken(), fault_measures={"f-1": measures}))
    said = fault_sentences(known["faults"])[0]
    assert re.search(r" 0\.4 times .*\(TPF\); .* 6\.25 times .*\(LPF\)", said)
    assert "TPF" in text.render(known)
    assert "TPF" in html.render(known)
    assert "TPF" not in fault_sentences(build(broken())["faults"])[0]


def test_the_control_phase_of_a_fault_is_shown() -> None:
    control = {"control_start_us": NOON_US - 60 * SECOND, "control_end_us": NOON_US - 30 * SECOND}
    known = build(replace(broken(), fault_measures={"f-1": {"failure_cost_seconds": 4.0, **control}}))
    assert known["faults"][0]["control_start"] == "2026-01-31T11:59:00.000000Z"
    assert known["faults"][0]["control_end"] == "2026-01-31T11:59:30.000000Z"
    assert "the control phase from 2026-01-31 11:59:00 to 2026-01-31 11:59:30." in fault_sentences(known["faults"])[0]
    without = build(broken())
    assert without["faults"][0]["control_start"] is None
    assert "Compared with" not in fault_sentences(without["faults"])[0]


@pytest.mark.parametrize(("ratio", "is_explained"), [(1.05, False), (1.6, True)])
def test_a_higher_rate_during_a_fault_is_explained(ratio: float, *, is_explained: bool) -> None:
    said = fault_sentences(
        build(replace(broken(), fault_measures={"f-1": {"throughput_penalty_ratio": ratio}}))["faults"]
    )[0]
    assert f"throughput {ratio} times" in said
    assert ("drained" in said) is is_explained
    assert ("too short" in said) is is_explained, "bursts alone give 1.26 in seven seconds"


def test_the_reason_of_an_early_end_is_shown() -> None:
    known = broken()
    over = tuple(replace(fault, over_because="no proxy answers any more.") for fault in known.faults)
    assert fault_sentences(build(replace(known, faults=over))["faults"])[0].count("ended early: no proxy answers") == 1
    assert "ended early" not in fault_sentences(build(known)["faults"])[0]


def test_concurrent_faults_are_shown_with_shared_figures() -> None:
    def fault(name: str, from_s: int, to_s: int | None) -> FaultWindow:
        healed = None if to_s is None else NOON_US + to_s * SECOND
        return FaultWindow(name, name, "process_kill", "w", NOON_US + from_s * SECOND, None, None, healed)

    faults = (fault("a", 0, 10), fault("b", 2, 4), fault("c", 4, 6), fault("d", 10, None), fault("e", 20, 30))
    said = fault_sentences(build(replace(broken(), faults=faults))["faults"])
    shared = [line.partition(" the effects of ")[2].partition(", which w")[0] for line in said]
    assert shared == ["b, c", "a", "a", "e", "d"]
    five = tuple(fault(name, 0, 1) for name in "abcde")
    assert " b, c, d and 1 more, " in fault_sentences(build(replace(broken(), faults=five))["faults"])[0]


def test_when_healing_began_is_in_the_report() -> None:
    fault = replace(broken().faults[0], heal_started_us=NOON_US - 9 * SECOND, healed_us=NOON_US - 8 * SECOND)
    shown = build(replace(broken(), faults=(fault,)))["faults"][0]
    assert (shown["heal_started"], shown["healed"]) == (
        "2026-01-31T11:59:51.000000Z",
        "2026-01-31T11:59:52.000000Z",
    )
    assert build(broken())["faults"][0]["heal_started"] is None
