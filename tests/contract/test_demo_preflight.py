"""``streamproof demo`` on a host that lacks something: one sentence, a status, nothing started and nothing left
behind."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from faults.backends import block_throttle, namespaces, relay
from testbed import disk
from testbed.demo import command
from testbed.engines.registry import REGISTRY
from validator.cli.main import main

pytestmark = pytest.mark.contract

COMPILED = ("flink", "kafka_streams", "spark_dstreams", "storm")
"""Engines whose job is written in Java."""
JAVA = """#!/bin/sh
if [ "$1" = -version ]; then echo 'openjdk version "17.0.9" 2023-10-17' >&2; exit 0; fi
echo "UNRESOLVED DEPENDENCIES: no route to host"; exit 1
"""
"""A Java that starts but has no network."""
PIP = "#!/bin/sh\necho 'ERROR: no route to host' >&2; exit 1\n"


class Host:
    """This machine with less: its programs, caches and temporary files are in a separate folder."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.programs, self.cache, self.temporary = (folder / name for name in ("bin", "cache", "tmp"))
        for made in (self.programs, self.cache, self.temporary):
            made.mkdir()
        self.started: list[str] = []
        monkeypatch.setenv("PATH", str(self.programs))
        monkeypatch.delenv("JAVA_HOME", raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", str(self.cache))
        monkeypatch.setattr(tempfile, "tempdir", str(self.temporary))
        monkeypatch.setattr(command, "Demo", lambda plan, *_: self.started.append(plan.engine))

    def has(self, name: str, script: str) -> Path:
        """Add a program, and return its path."""
        program = self.programs / name
        program.write_text(script, encoding="utf-8")
        program.chmod(0o755)
        return program

    def assert_untouched(self) -> None:
        """Assert that nothing was started, and no file or folder is left."""
        assert self.started == []
        assert list(self.temporary.iterdir()) == []
        assert [path for path in self.cache.rglob("*") if path.is_file() or path.name.startswith(".")] == []


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(tmp_path, monkeypatch)


def refused(capsys: pytest.CaptureFixture[str], host: Host, *arguments: str) -> tuple[int, str]:
    """Return status and message of ``streamproof demo``."""
    status = main(["demo", *arguments])
    host.assert_untouched()
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines[:-1] if not line.startswith("downloading ")] == []
    line = lines[-1]
    assert line.startswith("streamproof: ")
    return status, line


@pytest.mark.parametrize("engine", ["reference", "mutant", *REGISTRY])
def test_each_engine_without_java_is_refused(capsys: pytest.CaptureFixture[str], host: Host, engine: str) -> None:
    status, line = refused(capsys, host, "--engine", engine)
    assert status == 3
    assert "No Java was found" in line
    assert "install it with" in line


@pytest.mark.parametrize("engine", COMPILED)
def test_java_engines_without_a_compiler_are_refused(
    capsys: pytest.CaptureFixture[str], host: Host, engine: str
) -> None:
    java = host.has("java", JAVA)
    status, line = refused(capsys, host, "--engine", engine)
    assert status == 3
    assert f"{java} has no compiler " in line
    assert "install it with" in line


@pytest.mark.parametrize("engine", ["reference", "spark"])
def test_missing_jars_of_broker_and_sidecar_are_named_without_network(
    capsys: pytest.CaptureFixture[str], host: Host, engine: str
) -> None:
    host.has("java", JAVA)
    status, line = refused(capsys, host, "--engine", engine)
    assert status == 3
    assert "Could not fetch " in line
    assert "copy the jar to " in line
    assert "no route to host" in line


@pytest.mark.parametrize("engine", REGISTRY)
def test_missing_jars_of_an_engine_are_named_without_network(
    capsys: pytest.CaptureFixture[str], host: Host, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.has("java", JAVA)
    host.has("javac", JAVA)
    monkeypatch.setattr(command, "resolve", lambda lock: [])  # the jars of broker and sidecar are available
    monkeypatch.setattr(sys, "executable", str(host.has("python", PIP)))
    status, line = refused(capsys, host, "--engine", engine)
    assert status == 3
    assert ("pip could not fetch" if engine == "flink" else "Could not fetch ") in line
    assert "no route to host" in line


@pytest.fixture
def unprivileged(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A user other than root, without cached results of earlier checks."""
    found_out = (
        namespaces.why_not_here,
        namespaces.why_no_netem,
        namespaces.why_no_tbf,
        relay.why_not_here,
        block_throttle.why_not_here,
        disk.why_not_here,
    )
    for known in found_out:
        known.cache_clear()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    yield
    for known in found_out:
        known.cache_clear()


@pytest.mark.usefixtures("unprivileged")
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere another reason comes first")
@pytest.mark.parametrize(
    ("engine", "arguments", "sentence"),
    [
        ("flink", ("--plan", "pgval-delay-above-timeout"), "one worker of flink"),
        ("storm", ("--fault", "namespace_delay"), "namespace_delay needs a separate network"),
        ("reference", ("--fault", "namespace_partition"), "namespace_partition needs a separate network"),
        ("flink", ("--fault", "disk_full"), "disk_full needs a separate file system"),
        ("spark", ("--fault", "disk_slow"), "disk_slow cannot be done"),
    ],
)
def test_a_fault_that_needs_root_is_refused_without_it(
    capsys: pytest.CaptureFixture[str], host: Host, engine: str, arguments: tuple[str, ...], sentence: str
) -> None:
    status, line = refused(capsys, host, "--engine", engine, *arguments)
    assert status == 2
    assert sentence in line
    assert " root" in line


@pytest.mark.usefixtures("unprivileged")
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere another reason comes first")
def test_without_root_a_file_that_asks_for_a_network_is_refused(
    capsys: pytest.CaptureFixture[str], host: Host, tmp_path: Path
) -> None:
    fault = {"kind": "namespace_loss", "target": "flink-worker-0-node", "parameters": {"percent": 5}}
    file = tmp_path / "day.yaml"
    file.write_text(yaml.safe_dump({"schedule": {"faults": [fault]}}), encoding="utf-8")
    status, line = refused(capsys, host, "--engine", "flink", "--faults", str(file))
    assert status == 2
    assert f"{file}: namespace_loss needs a separate network " in line
