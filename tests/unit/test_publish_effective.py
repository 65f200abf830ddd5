"""The detected guarantee of the running engine, in every form of the report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testbed.engines.effective import Effective
from tests.unit.publish_snapshots import broken, clean
from validator.config.examples import EXAMPLES
from validator.config.load import loads
from validator.model.classes import Guarantee
from validator.publish import html, text
from validator.publish.effective import (
    BYTES_MAX,
    EFFECTIVE_TITLE,
    SETTINGS_TITLE,
    effective_guarantee,
    effective_lines,
    effective_settings,
)
from validator.publish.publisher import Publisher
from validator.publish.report import build

pytestmark = pytest.mark.unit

RUNS_WITH = {
    "commit_interval_seconds": 1.0,
    "transaction_timeout_seconds": None,
    "checkpoint_mode": "exactly_once",
    "session_timeout_seconds": 6.0,
    "heartbeat_interval_seconds": 1.5,
}
WEAK = Effective("flink", "at_least_once", ("transactional.id not set", "acks all"), **RUNS_WITH)  # type: ignore[arg-type]
FINDING = "flink is declared exactly-once but runs at-least-once: transactional.id not set; acks all."


def test_the_file_of_the_testbed_is_a_finding_in_every_form_and_changes_no_verdict(tmp_path: Path) -> None:
    WEAK.write(tmp_path / "engine.json")
    block = effective_guarantee(tmp_path / "engine.json", Guarantee.EXACTLY_ONCE)
    assert block == {
        "declared": "exactly_once",
        "effective": "at_least_once",
        "engine": "flink",
        "evidence": ["transactional.id not set", "acks all"],
        **RUNS_WITH,
        "finding": FINDING,
        "problem": None,
    }
    assert WEAK.mismatch("exactly_once") == FINDING
    report = build(clean(), block)
    assert report["outcome"] == "pass"
    assert report["effective_guarantee"] == block
    assert f"FINDING: {FINDING}" in " ".join(text.render(report).split())
    assert FINDING in html.render(report)


def test_effective_settings_are_a_table_in_every_form(tmp_path: Path) -> None:
    WEAK.write(tmp_path / "engine.json")
    report = build(clean(), effective_guarantee(tmp_path / "engine.json", Guarantee.EXACTLY_ONCE))
    assert effective_settings(report) == [
        ("commit interval", "1 s"),
        ("transaction timeout", "not stated"),
        ("checkpoint mode", "exactly_once"),
        ("session timeout", "6 s"),
        ("heartbeat interval", "1.5 s"),
    ]
    lines = text.render(report).partition(f"\n{SETTINGS_TITLE}\n")[2].splitlines()[:5]
    assert [" ".join(line.split()) for line in lines] == [" ".join(row) for row in effective_settings(report)]
    for name, value in effective_settings(report):
        assert f"<td>{name}</td><td>{value}</td>" in html.render(report)


def test_there_is_no_table_without_effective_settings(tmp_path: Path) -> None:
    (tmp_path / "engine.json").write_text('{"guarantee": "exactly_once"}', encoding="utf-8")
    report = build(clean(), effective_guarantee(tmp_path / "engine.json", Guarantee.EXACTLY_ONCE))
    assert SETTINGS_TITLE not in text.render(report) + html.render(report)


@pytest.mark.parametrize(
    ("declared", "runs", "differs"),
    [
        ("exactly_once", "exactly_once", False),
        ("exactly_once", "at_most_once", True),
        ("at_least_once", "exactly_once", False),
        ("at_least_once", "at_most_once", True),
        ("at_most_once", "exactly_once", False),
        ("at_most_once", "at_least_once", True),
    ],
)
def test_only_an_engine_that_may_break_the_declared_guarantee_is_a_finding(
    tmp_path: Path, declared: str, runs: str, differs: bool
) -> None:
    file = tmp_path / "engine.json"
    file.write_text(json.dumps({"guarantee": runs}), encoding="utf-8")
    block = effective_guarantee(file, Guarantee(declared))
    assert block is not None
    assert (block["finding"] is not None) == differs
    assert block["effective"] == runs


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "does not exist"),
        (b"", "is damaged (Invalid JSON"),
        (b"\xff{", "is damaged (Invalid JSON"),
        (b'{"guarantee": "mostly_once"}', "is damaged (guarantee: Input should be"),
        (b'{"evidence": []}', "is damaged (guarantee: Field required)"),
        (b'{"guarantee": "exactly_once", "evidence": [1]}', "is damaged (evidence.0: "),
        (b'{"guarantee": "exactly_once", "session_timeout_seconds": -1}', "is damaged (session_timeout_seconds: Input"),
        (
            b'{"guarantee": "exactly_once", "commit_interval_seconds": NaN}',
            "is damaged (commit_interval_seconds: Input",
        ),
        (b"[" * 40_000, "is damaged (Invalid JSON"),
        (b" " * (BYTES_MAX + 1), "has more than 65536 bytes"),
    ],
)
def test_an_absent_or_damaged_file_gives_a_reason_and_no_guarantee(
    tmp_path: Path, content: bytes | None, said: str
) -> None:
    file = tmp_path / "engine.json"
    if content is not None:
        file.write_bytes(content)
    report = build(broken(), effective_guarantee(file, Guarantee.EXACTLY_ONCE))
    block = report["effective_guarantee"]
    assert (block["effective"], block["finding"], block["evidence"]) == (None, None, [])
    assert str(file) in block["problem"]
    assert said in block["problem"]
    (line,) = effective_lines(report)
    assert line.endswith(f": {block['problem']}.")
    assert "once" not in line.replace("mostly_once", "").replace("at_most_once", "").partition("(")[0]


def test_nothing_is_shown_without_a_file() -> None:
    report = build(clean())
    assert report["effective_guarantee"] is None
    assert EFFECTIVE_TITLE not in text.render(report) + html.render(report)


def test_the_publisher_reads_the_file_beside_the_configuration_for_each_report(tmp_path: Path) -> None:
    given = ["metrics.port=0", "state.path=state", "engine.effective=engine.json"]
    publisher = Publisher(loads(EXAMPLES["clickstream"], tmp_path, given, {}), tmp_path)
    assert publisher.publish(clean())["effective_guarantee"]["effective"] is None
    WEAK.write(tmp_path / "engine.json")
    assert publisher.publish(clean())["effective_guarantee"]["finding"] == FINDING
    written = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert written["effective_guarantee"]["finding"] == FINDING
