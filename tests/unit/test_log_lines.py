"""Lines for a log collector: one JSON object each, including errors and the JVM's layout."""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pyspark
import pytest

from validator.cli.log_lines import JsonLines
from validator.cli.main import main
from validator.stream import jars, session


def test_every_log_line_is_a_json_object_with_pipeline_and_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAMPROOF_LOG_PATTERN", "")
    lines = JsonLines(run="r", now=lambda: datetime(2026, 1, 31, tzinfo=UTC))
    lines.say("before the file is read")
    lines.set_pipeline('clicks "100%"')
    lines.say('a key with "quotes" and \x1b[31m')
    found = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    common = {"time": "2026-01-31T00:00:00.000Z", "level": "info", "run": "r"}
    assert found[0] == {**common, "pipeline": None, "message": "before the file is read"}
    assert found[1] == {**common, "pipeline": 'clicks "100%"', "message": 'a key with "quotes" and \\x1b[31m'}


def test_a_log_line_of_the_jvm_is_a_json_object_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMPROOF_LOG_PATTERN", "")
    name = 'clicks "100%" ${java:version} \\'
    JsonLines(run="r").set_pipeline(name)
    program = tmp_path / "Logs.java"
    program.write_text(_LOGS)
    spark_jars = Path(pyspark.__file__).parent / "jars"
    layout = f"-Dlog4j2.configurationFile={Path(session.__file__).with_name('log4j2.properties')}"
    java = [str(jars.find_java().executable), "-XX:TieredStopAtLevel=1", "-cp", f"{spark_jars}/*", layout, str(program)]
    done = subprocess.run(java, check=True, capture_output=True, text=True, timeout=120)
    lines = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    assert len(lines) == 1
    assert lines[0].pop("time").endswith("Z")
    assert lines == [{"level": "error", "pipeline": name, "run": "r", "message": 'Part: a "quoted"\n100%'}]


_LOGS = """
public class Logs {
    public static void main(String[] arguments) {
        org.apache.logging.log4j.LogManager.getLogger("a.Part").error("a \\"quoted\\"\\n100%", new Exception("x"));
    }
}
"""


def test_text_of_the_jvm_becomes_the_message_of_an_object(capfd: pytest.CaptureFixture[str]) -> None:
    lines = JsonLines(pipeline="clicks", run="r", now=lambda: datetime(2026, 1, 31, tzinfo=UTC))
    own = json.dumps({"level": "error", "run": "r", "message": "of log4j"})
    lines.pass_on(own)
    lines.pass_on("# A fatal error has been detected")
    lines.pass_on('{"some": "object"}')
    first, *others = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert first == json.loads(own)
    assert [line.pop("message") for line in others] == [
        "JVM: # A fatal error has been detected", 'JVM: {"some": "object"}'
    ]  # fmt: skip
    assert {line["level"] for line in others} == {"info"}
    assert {(line["pipeline"], line["run"], line["time"]) for line in others} == {
        ("clicks", "r", "2026-01-31T00:00:00.000Z")
    }


def test_a_closed_stderr_gets_no_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", None)
    monkeypatch.setattr("sys.__stderr__", None)
    lines = JsonLines()
    lines.say("a line")
    lines.pass_on("a line")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "given",
    [
        ["validate", "--log-format", "json"],
        ["validate", "f.yaml", "--log-format=json", "--onse"],
        ["validate", "f.yaml", "--log-format", "text", "--at-reest", "--log-format", "json"],
    ],
)
def test_an_error_of_the_arguments_is_a_json_object_too(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(given) == 2
    line = json.loads(capsys.readouterr().err)
    assert (line["level"], line["pipeline"]) == ("error", None)
    assert line["message"].startswith("streamproof")
    assert main(["validate", "--log-format"]) == 2
    assert capsys.readouterr().err.startswith("streamproof validate: argument --log-format: expected one argument")


def test_the_error_that_ends_the_command_is_a_json_object_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", str(tmp_path / "absent.yaml"), "--log-format", "json"]) == 2
    line = json.loads(capsys.readouterr().err)
    assert (line["level"], line["pipeline"]) == ("error", None)
    assert "absent.yaml" in line["message"]
