"""A damaged file that an earlier process published is reported in one sentence, and stops nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.event_stream import listening, next_event
from tests.unit.publish_snapshots import broken, config
from tests.worlds import some
from validator.cli.main import main
from validator.publish.history import HISTORY_FILE
from validator.publish.publisher import Publisher
from validator.publish.report import REPORT_FILE, VIOLATIONS_FILE, build_violations
from validator.publish.times import rfc3339

FILES = (REPORT_FILE, VIOLATIONS_FILE, HISTORY_FILE)


def without(name: str) -> Callable[[bytes], bytes]:
    def damaged(content: bytes) -> bytes:
        plain: dict[str, Any] = json.loads(content)
        del plain[name]
        return json.dumps(plain).encode()

    return damaged


def with_records_without(name: str) -> Callable[[bytes], bytes]:
    def damaged(content: bytes) -> bytes:
        plain: dict[str, Any] = json.loads(content)
        for record in plain["violations"]:
            del record[name]
        return json.dumps(plain).encode()

    return damaged


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "no UTF-8": lambda _: b"\xff\xfe{}",
    "empty": lambda _: b"",
    "zeros": lambda content: bytes(len(content)),
    "cut": lambda content: content[: len(content) // 2],
    "a list": lambda _: b"[]",
    "deep": lambda _: b"[" * 100_000,
    "only a schema": lambda _: b'{"schema": 1}',
}
NEEDED = ("guarantee", "outcome", "violations", "contributions", "coverage")
OF_REPORT = {f"without {name}": without(name) for name in NEEDED}
OF_REPORT["not a number"] = lambda content: content.replace(b'"batches": 7', b'"batches": NaN')
OF_REPORT["partitions without an offset"] = lambda content: content.replace(b'"next_offset"', b'"next"')
CASES = [
    *[pytest.param(file, damage, id=f"{file}: {name}") for file in FILES for name, damage in DAMAGES.items()],
    *[pytest.param(REPORT_FILE, damage, id=f"report.json: {name}") for name, damage in OF_REPORT.items()],
    *[pytest.param(VIOLATIONS_FILE, without(name), id=f"violations.json: without {name}") for name in ("counts",)],
    *[
        pytest.param(VIOLATIONS_FILE, with_records_without(name), id=f"violations.json: records without {name}")
        for name in build_violations(broken())["violations"][0]
    ],
]


def left(state: Path) -> None:
    """Publish the files that a sidecar leaves behind."""
    with Publisher(config(state), state) as publisher:
        publisher.publish(broken())


@pytest.mark.parametrize(("file", "damage"), some(CASES))
def test_a_damaged_file_is_reported_and_written_again(
    tmp_path: Path, file: str, damage: Callable[[bytes], bytes]
) -> None:
    left(tmp_path)
    whole = (tmp_path / file).read_bytes()
    damaged = damage(whole)
    assert damaged != whole
    (tmp_path / file).write_bytes(damaged)
    said: list[str] = []
    publisher = Publisher(config(tmp_path), tmp_path, say=said.append)
    [sentence] = said
    assert sentence.startswith(f"{tmp_path / file} is damaged ")
    later = replace(broken(), taken_us=broken().taken_us + 60_000_000)
    with listening(publisher) as response:
        assert next_event(response)[0] == "history"
        if file != REPORT_FILE:
            assert next_event(response)[1]["report"]["outcome"] == "fail"
        publisher.publish(later)
        name, sent = next_event(response)
        assert (name, sent["report"]["time"]) == ("update", rfc3339(later.taken_us))
    publisher.stop()
    said.clear()
    Publisher(config(tmp_path), tmp_path, say=said.append)
    assert said == []


def test_counters_are_not_shown_as_0_beside_a_damaged_report(tmp_path: Path) -> None:
    left(tmp_path)
    (tmp_path / REPORT_FILE).write_bytes(b"\xff")
    assert Publisher(config(tmp_path), tmp_path)._restoring


def test_intact_files_are_not_reported(tmp_path: Path) -> None:
    said: list[str] = []
    Publisher(config(tmp_path), tmp_path, say=said.append)
    left(tmp_path)
    Publisher(config(tmp_path), tmp_path, say=said.append)
    assert said == []


def test_the_command_reports_a_damaged_history_and_omits_the_plots(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    left(tmp_path)
    (tmp_path / HISTORY_FILE).write_bytes(b"\xff")
    assert main(["report", str(tmp_path), "--format", "html"]) == 1
    assert "There is no timeline" in capsys.readouterr().out
