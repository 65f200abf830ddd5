"""Ids and keys from records have no effect on a terminal, and printed commands can be pasted."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from prometheus_client import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics

from faults import command
from faults.backends.impairment import Impairment, LinkStatus
from tests.unit.publish_snapshots import NOON_US, broken, clean, config, newest, violation
from validator.cli import doctor
from validator.cli.check_result import problem
from validator.cli.main import main
from validator.model.snapshot import FaultWindow, Snapshot
from validator.model.terminal import OBEYED, plain, plain_json, shell_word
from validator.publish import html, junit, live_table, notices, stderr, text
from validator.publish.feed import event
from validator.publish.metrics import SnapshotCollector, registry
from validator.publish.publisher import Publisher
from validator.publish.report import build, build_violations
from validator.publish.server import json_answer

ODD = "it's \x1b[2J\x1b]0;owned\x07 a\nb\r\x9b31m\x7f\u202ered\u2028'7"
"""Clears a screen, sets a window title, moves the cursor, reverses the text direction."""
LONG_STATE = "/var/lib/" + "a-folder-with-a-name/" * 6 + "state"


DIRECTIONS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
MARKS = {"ARABIC LETTER MARK", "LEFT-TO-RIGHT MARK", "RIGHT-TO-LEFT MARK"}


def is_obeyed(one: str) -> bool:
    """By Unicode's tables: controls, surrogates, line separators, directional characters; and what XML cannot
    contain."""
    return (
        unicodedata.category(one) in {"Cc", "Cs", "Zl", "Zp"}
        or unicodedata.bidirectional(one) in DIRECTIONS
        or unicodedata.name(one, "") in MARKS
        or one in "\ufffe\uffff"
    )


def odd_run(odd: str = ODD) -> Snapshot:
    record = replace(violation(odd, "missing", NOON_US, key=odd), ids=(odd,), fault=odd, explanation=odd)
    fault = FaultWindow(odd, odd, odd, odd, NOON_US, None, None, None)
    return replace(
        broken(),
        pipeline=odd,
        reasons=(odd,) * 3,
        waiting_for=(odd,),
        faults=(fault,),
        fault_violations={odd: {"missing": 3}},
        violations_latest=(record,),
    )


def obeyed(shown: str) -> list[str]:
    return OBEYED.findall(shown.replace("\n", ""))


def test_each_control_character_is_escaped() -> None:
    everything = [chr(code) for code in range(sys.maxunicode + 1)]
    wanted = {one for one in everything if is_obeyed(one)}
    assert {one for one in everything if plain(one) != one} == wanted
    assert {one for one in everything if OBEYED.match(one)} == wanted
    assert all(plain(one).isprintable() and plain(one).isascii() for one in wanted)


def test_every_form_escapes_control_and_direction_characters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every such character, in every name from outside, through every published form."""
    everything = "owned " + " ".join(sorted(chr(code) for code in range(sys.maxunicode + 1) if is_obeyed(chr(code))))
    # Only the first and the last surrogate, so that names stay short.
    odd = "".join(one for one in everything if not "\ud801" <= one <= "\udffe")
    snapshot = odd_run(odd)
    report, violations = build(snapshot), newest(snapshot)
    publisher = Publisher(config(tmp_path), tmp_path)
    publisher.publish(snapshot)
    collector = SnapshotCollector(odd)
    collector.update(snapshot)
    stream = io.StringIO()
    live_table.LiveTable(stream, {}).note(odd)
    notices.Notices(stderr.to_stderr).update(report)
    shown = {
        "text": text.render(report, violations, state=LONG_STATE),
        "summary": text.summary(report, violations, LONG_STATE),
        "live": live_table.render(report),
        "line": stream.getvalue() + capsys.readouterr().err,
        "html": html.render(report, violations),
        "junit": junit.render(report, violations),
        "report.json": (tmp_path / "report.json").read_text(),
        "violations.json": (tmp_path / "violations.json").read_text(),
        "event": event("update", {"report": report}).decode(),
        "answer": json_answer(build_violations(snapshot)).body.decode(),
        "metrics": generate_latest(registry(collector)).decode(),
        "openmetrics": openmetrics(registry(collector)).decode(),
    }
    for name, said in shown.items():
        assert "owned" in said, name
        assert obeyed(said) == [], name
    ElementTree.fromstring(shown["junit"])
    assert json.loads(shown["report.json"]) == report
    assert json.loads(shown["answer"]) == build_violations(snapshot)
    assert "\\x1b" in shown["junit"]


def test_printed_json_is_valid_and_has_no_control_characters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "report.json").write_text(json.dumps(build(odd_run())))
    main(["report", str(tmp_path), "--format", "json"])
    shown = capsys.readouterr().out
    assert obeyed(shown) == []
    assert json.loads(shown) == build(odd_run())
    assert plain_json({"é": "\u202e"}) == '{"é":"\\u202e"}'


def test_an_error_repeats_no_control_characters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ack", str(tmp_path), ODD, "--reason", "known"]) == 2
    assert main(["report", str(tmp_path / "\x1b[2J")]) == 2
    assert obeyed(capsys.readouterr().err) == []


@pytest.mark.parametrize("action", ["plan", "list", "run", "heal", "proxy"])
def test_names_of_a_fault_configuration_are_escaped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], action: str
) -> None:
    async def serve(*given: Any) -> dict[str, LinkStatus]:
        status = LinkStatus(listen="a:1", upstream="b:1", probe_port=0, probe_bytes=0, connections=0,
                            dropped_packets=7, impairment=Impairment())  # fmt: skip
        given[-1]({ODD: status})
        return {ODD: status}

    monkeypatch.setattr(command, "run_timeline", lambda config, timeline, say, stop: say(ODD))
    monkeypatch.setattr(command, "heal_all", lambda journal, topic, limits, say: say(ODD))
    monkeypatch.setattr(command, "serve", serve)
    file = tmp_path / "faults.yaml"
    targets = {ODD: {"type": "process", "pid_file": "w0.pid", "start": ["sleep", "9"]}}
    fault = {"kind": "process_kill", "target": ODD, "for": "1s"}
    file.write_text(json.dumps({"seed": 7, "targets": targets, "schedule": {"faults": [fault]}}))
    assert main(["faults", action, str(file)]) == 0
    shown = capsys.readouterr().out
    assert "owned" in shown
    assert obeyed(shown) == []


def test_findings_of_the_doctor_are_escaped() -> None:
    stream = io.StringIO()
    doctor.print_findings([problem(ODD, ODD, ODD)], stream)
    assert obeyed(stream.getvalue()) == []
    assert stream.getvalue().count("\n") == 1


@pytest.mark.parametrize("said", ["", "plain", "it's", "a b", ODD, "\\x1b", "\x1b7", "ü\x80ü", "$HOME `id` \x01"])
def test_a_quoted_word_reaches_the_command_unchanged(said: str) -> None:
    word = shell_word(said)
    assert obeyed(word) == []
    got = subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, check=True).stdout
    assert got.decode() == said


def test_commands_are_on_their_own_lines_and_run_when_pasted() -> None:
    shown = text.render(build(odd_run()), newest(odd_run()), state=LONG_STATE)
    commands = [line for line in shown.splitlines() if "streamproof " in line]
    assert len(commands) == 2
    paste = "streamproof() { printf '%s\\0' \"$@\"; }\n" + "\n".join(commands)
    printed = subprocess.run(["bash", "-c", paste], capture_output=True, check=True).stdout.decode().split("\0")
    assert printed == ["explain", LONG_STATE, "--id", ODD, "ack", LONG_STATE, ODD, "--reason", "WHY", ""]
    others = [line for line in shown.splitlines() if line not in commands]
    assert max(len(line) for line in others) <= text.WIDTH


def test_harmless_characters_stay_unchanged() -> None:
    said = "/päge?x=1 \\n 日本 👩"
    assert plain(said) == said
    assert "Where to look" not in text.render(build(clean()))
