"""Of the lines of Spark's JVM, the noise reaches no terminal, and the reason why a JVM fails is never lost."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.checkout import ROOT, python_path, streamproof
from tests.integration.sidecar_fixtures import _CONFIG, Pipeline, answer, click, pipeline, spark

__all__ = ["pipeline", "spark"]
pytestmark = pytest.mark.timeout(600)

NOISY = {"JAVA_TOOL_OPTIONS": "-Duser.own=1", "JDK_JAVA_OPTIONS": "-XX:+UseSerialGC -Xss4m"}
"""Java repeats these variables on stderr, and warns about a module that Spark adds."""
ENDED = """
import os, signal, sys
from pathlib import Path
from validator.stream import failures, session
folder, options = sys.argv[1:]
try:
    spark = session.start("test", "local[1]", [], {"spark.driver.extraJavaOptions": options}, crash_folder=Path(folder))
    assert spark.range(3).count() == 3
    os.kill(session.SparkContext._gateway.proc.pid, signal.SIGSEGV)
    print(failures.why_jvm_ended(30), file=sys.stderr, flush=True)
    os._exit(0)
except Exception as error:
    print(failures.known_sentence(error, Path(folder)), file=sys.stderr)
"""


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **python_path(), **NOISY}
    return subprocess.run(
        [str(part) for part in command], check=False, capture_output=True, text=True, env=environment, cwd=ROOT,
        timeout=300,
    )  # fmt: skip


def ended_session(folder: Path, options: str = "") -> subprocess.CompletedProcess[str]:
    """A session whose JVM crashes, or does not start with ``options``."""
    (folder / "lock").touch()
    return run(sys.executable, "-c", ENDED, folder, options)


def test_a_jvm_that_does_not_start_says_why_before_the_sentence(tmp_path: Path) -> None:
    *reason, sentence = ended_session(tmp_path, "-agentlib:absent").stderr.splitlines()
    assert any("Could not find agent library absent" in line for line in reason), reason
    assert sentence == "the Spark JVM did not start: the lines above say why"


def test_the_sentence_for_a_crash_of_the_jvm_quotes_its_last_lines(tmp_path: Path) -> None:
    done = ended_session(tmp_path)
    *report, sentence = done.stderr.splitlines()
    assert done.stdout == ""
    assert any("SIGSEGV" in line for line in report), report
    assert re.match(r"the Spark JVM ended \(.*; its last lines: A fatal error has been detected .*SIGSEGV", sentence)


@pytest.mark.full
def test_commands_write_only_lines_of_their_own(pipeline: Pipeline, tmp_path: Path) -> None:
    pipeline.create()
    pipeline.clicks(*(click(number, number) for number in range(3)), click(9, 25))
    pipeline.answers(answer(range(3), 0), answer([9], 2))
    config = tmp_path / "pipeline.yaml"
    config.write_text(_CONFIG.format(name=pipeline.name, servers=pipeline.servers, state=tmp_path / "state"))

    once = run(*streamproof("validate", config, "--once"))
    assert once.returncode == 0, once.stderr
    own = [
        rf"streamproof \S+: {pipeline.name}, status page and metrics at \S+",
        "a new state: .*",
        "reading the first batch, .*|.* offsets read, .*",
    ]
    assert [line for line in once.stderr.splitlines() if not any(re.fullmatch(rule, line) for rule in own)] == []
    assert "keeps its exactly-once guarantee" in once.stdout
    for command in (("explain", tmp_path / "state", "--id", "1"), ("doctor", config)):
        done = run(*streamproof(*command))
        assert (done.returncode, done.stderr) == (0, ""), (command, done.stderr)
