"""The command `streamproof faults` as far as it starts no process."""

from __future__ import annotations

import mmap
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from faults.backends import faketime, processes
from faults.catalogue import KINDS, UNSUPPORTED
from validator.cli.main import main

FILE = """\
seed: 7
targets:
  w0: {type: process, pid_file: w0.pid, start: [sleep, '9'], labels: {role: worker}}
  w1: {type: process, pid_file: w1.pid, start: [sleep, '9'], labels: {role: worker}}
  kafka: {type: link, listen: '127.0.0.1:19092', upstream: '127.0.0.1:9092'}
schedule:
  control: 90s
  recovery: 5m
  faults:
    - {kind: process_kill, target: {labels: {role: worker}}, for: 500ms}
    - {kind: net_delay, target: kafka, for: 60s, parameters: {delay: 500ms, jitter: 50ms}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "faults.yaml"
    path.write_text(FILE)
    return path


def test_a_plan_is_a_table_and_changes_nothing(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["faults", "plan", str(file)]) == 0
    assert capsys.readouterr().out == (
        "plan written, seed 7, 14m 0.5s, plus the time for healing\n"
        "0:00:00      control for 90s\n"
        "0:01:30      process_kill on w1 for 500ms\n"
        "0:01:30.500  recovery and control for 6m 30s\n"
        "0:08:00.500  net_delay on kafka for 60s (delay 0.5s, jitter 0.05s, direction to_upstream)\n"
        "0:09:00.500  recovery for 5m\n"
        "0:14:00.500  end\n"
    )
    assert list(file.parent.iterdir()) == [file]


def test_a_plan_shows_each_fault_of_a_group_at_its_time(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(
        FILE.partition("  faults:")[0] + "  faults:\n"
        "    - together:\n"
        "        - {kind: process_pause, target: w0}\n"
        "        - {kind: net_delay, target: kafka, after: 2s, parameters: {delay: 500ms}}\n"
        "      for: 30s\n"
    )
    assert main(["faults", "plan", str(file)]) == 0
    assert capsys.readouterr().out == (
        "plan written, seed 7, 7m 2s, plus the time for healing\n"
        "0:00:00      control for 90s\n"
        "0:01:30      process_pause on w0 for 32s, together\n"
        "0:01:32      net_delay on kafka for 30s, together (delay 0.5s, jitter 0s, direction to_upstream)\n"
        "0:02:02      recovery for 5m\n"
        "0:07:02      end\n"
    )


def test_times_of_a_plan_longer_than_a_day_are_complete(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(FILE.replace("control: 90s", "control: 100h"))
    assert main(["faults", "plan", str(file)]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "0:00:00        control for 100h",
        "100:00:00      process_kill on w1 for 500ms",
        "100:00:00.500  recovery and control for 100h 5m",
        "200:05:00.500  net_delay on kafka for 60s (delay 0.5s, jitter 0.05s, direction to_upstream)",
        "200:06:00.500  recovery for 5m",
        "200:11:00.500  end",
    ]


def test_the_seed_of_the_command_overrides_that_of_the_file(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outputs = set()
    for seed in range(8):
        assert main(["faults", "plan", str(file), "--seed", str(seed)]) == 0
        outputs.add(capsys.readouterr().out.splitlines()[2].split()[3])
    assert outputs == {"w0", "w1"}


def test_the_list_names_every_kind(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["faults", "list"]) == 0
    out = capsys.readouterr().out
    shown = {line.split()[0] for line in out.splitlines() if line.startswith("  ")}
    assert shown >= {*KINDS, *(absent.name for absent in UNSUPPORTED), "namespaces"}


@pytest.mark.skipif(sys.platform != "linux", reason="clock_skew reads /proc")
@pytest.mark.parametrize("where", ["nowhere", "installed", "in a folder of the machine's name", "loaded by a process"])
def test_the_list_checks_for_the_library_of_clock_faults(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    folder = tmp_path / ("lib/x86_64-linux-gnu" if "machine" in where else "lib") / "faketime"
    folder.mkdir(parents=True)
    library = folder / "libfaketimeMT.so.1"
    if where != "nowhere":
        library.write_bytes(b"\x7fELF")
    monkeypatch.setattr(faketime, "_PLACES", () if "loaded" in where else (str(tmp_path / "lib"),))
    monkeypatch.setattr(processes, "mapped", partial(_mapped_here, processes.mapped))
    with ExitStack() as stack:
        if "loaded" in where:
            file = stack.enter_context(library.open("rb"))
            stack.enter_context(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        assert main(["faults", "list"]) == 0
    possible, _, not_here = capsys.readouterr().out.partition("Kinds of faults that are not available on this host:\n")
    assert ("  clock_skew " in possible) is (where != "nowhere")
    is_library_missing = "libfaketime is not installed, and no process here has loaded it" in not_here
    assert is_library_missing is (where == "nowhere")


def _mapped_here(mapped: Callable[[int, str], str | None], pid: int, library: str) -> str | None:
    """As if this process were the only one: other processes of the host may have the library mapped."""
    return mapped(pid, library) if pid == os.getpid() else None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plan"], "name the configuration"),
        (["run", "nowhere.yaml"], "nowhere.yaml: cannot be read"),
        (["explode", "x.yaml"], "invalid choice: 'explode'"),
        (["proxy", "{file}"], "has no link target"),
    ],
)
def test_wrong_usage_is_one_sentence(
    file: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    file.write_text(FILE.replace("  kafka: {type: link, listen: '127.0.0.1:19092', upstream: '127.0.0.1:9092'}\n", ""))
    assert main(["faults", *(argument.replace("{file}", str(file)) for argument in arguments)]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_the_list_of_a_file_shows_the_present_state_of_its_targets(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (file.parent / "w0.pid").write_text(str(os.getpid()))
    assert main(["faults", "list", str(file)]) == 0
    out = capsys.readouterr().out.split("Targets of ")[1].splitlines()
    assert out == [
        f"{file}:",
        f"  w0: process {os.getpid()} runs",
        f"  w1: does not run (file of its process id: {file.parent / 'w1.pid'})",
        "  kafka: 127.0.0.1:19092 to 127.0.0.1:9092, and no proxy runs",
    ]
