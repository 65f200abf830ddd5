"""The command line's contract: exit statuses, one sentence on stderr, no traceback without --debug."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree as ET

import pytest

from tests.unit.publish_snapshots import broken, clean
from validator import __version__
from validator.cli.commands import COMMANDS
from validator.cli.main import main
from validator.cli.refused import UNBUILT_COMMANDS
from validator.config.examples import EXAMPLES, SCHEMA_FILE
from validator.config.load import loads
from validator.config.model import Config
from validator.model.classes import Guarantee, Verdict
from validator.model.snapshot import Snapshot
from validator.publish.publisher import Publisher
from validator.publish.report import build, write

pytestmark = pytest.mark.contract

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Ran:
    """The result of a command."""

    status: int
    out: str
    err: str


class Command:
    """Runs commands in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str | Path) -> Ran:
        status = main([str(argument) for argument in arguments])
        captured = self._capsys.readouterr()
        return Ran(status, captured.out, captured.err)


@pytest.fixture
def streamproof(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    path = tmp_path / "pipeline.yaml"
    path.write_text(EXAMPLES["clickstream"], encoding="utf-8")
    return path


def state(tmp_path: Path, snapshot: Snapshot) -> Path:
    write(tmp_path, snapshot)
    return tmp_path


def unsure() -> Snapshot:
    return replace(clean(), verdicts={**clean().verdicts, Guarantee.EXACTLY_ONCE: Verdict.UNKNOWN})


def test_every_command_of_the_contract_is_built_or_refused() -> None:
    rows = (ROOT / "docs" / "CONTRACT.md").read_text(encoding="utf-8").split("## Commands", 1)[1].split("## Conf", 1)[0]
    named = {
        row.split("`streamproof ", 1)[1].split()[0].rstrip("`") for row in rows.splitlines() if "`streamproof " in row
    }
    assert named - {"and"} <= set(COMMANDS)


@pytest.mark.parametrize("refused", UNBUILT_COMMANDS, ids=lambda refused: refused.command)
def test_a_command_that_is_not_built_is_refused_with_any_arguments(streamproof: Command, refused: Any) -> None:
    ran = streamproof(refused.command, "run", "x.yaml", "--seed", "3")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err == f"streamproof: {refused.command} is not supported yet; {refused.instead}.\n"


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("nonsense",),
        ("validate",),
        ("validate", "a", "--onc"),
        ("demo", "--seconds", "0"),
        ("explain", "s"),
        ("broker", "--port", "70000"),
        ("broker", "--topic", "a b"),
        ("broker", "--topic", "orders:0"),
        ("ack", "s", "v"),
    ],
)
def test_bad_usage_is_one_sentence_and_status_2(streamproof: Command, arguments: tuple[str, ...]) -> None:
    ran = streamproof(*arguments)
    assert (ran.status, ran.out) == (2, "")
    assert len(ran.err.splitlines()) == 1
    assert "--help`." in ran.err


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        ("vaidate c.yaml", "validate"),
        ("config chek c.yaml", "check"),
        ("config example clikstream", "clickstream"),
        ("validate c.yaml --onec", "--once"),
        ("report s --format=jsno", "json"),
        ("ack s --reason r --class mising", "missing"),
    ],
)
def test_a_typing_error_is_answered_with_what_was_meant(streamproof: Command, arguments: str, meant: str) -> None:
    ran = streamproof(*arguments.split())
    assert ran.status == 2
    assert f"; did you mean {meant}; see `streamproof" in ran.err


@pytest.mark.parametrize(
    "command",
    ["", *COMMANDS, *(f"config {name}" for name in ("check", "schema", "example", "init")),
     *(f"dashboards {name}" for name in ("build", "check", "push")), "notify test"],
)  # fmt: skip
def test_every_command_has_help_with_its_exit_statuses(streamproof: Command, command: str) -> None:
    ran = streamproof(*command.split(), "--help")
    assert ran.status == 0
    assert ran.out.startswith("usage: streamproof")
    assert "exit status: " in ran.out
    assert ran.out.endswith(f"\ndocumentation of this version: {ROOT / 'README.md'}\n")


def test_bash_completes_commands_options_and_files(streamproof: Command, tmp_path: Path) -> None:
    (tmp_path / "complete").write_text(streamproof("completion", "bash").out)
    (tmp_path / "orders.yaml").touch()
    asks = """
        source ./complete
        ask() {
            COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
            "$(complete -p streamproof | sed 's/.* -F \\([^ ]*\\) .*/\\1/')" streamproof "${@: -1}" "${@: -2:1}"
            echo "${COMPREPLY[@]}"
        }
        ask streamproof va
        ask streamproof validate --o
        ask streamproof config example m
        ask streamproof validate or
    """
    ended = subprocess.run(["bash", "-c", asks], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines() == ["validate", "--once", "minimal mirror-maker", "orders.yaml"], ended.stderr


def test_there_is_a_script_for_zsh(streamproof: Command) -> None:
    """No test runs it: this shell is not on the machines of the tests."""
    assert "--leave-open" in streamproof("completion", "zsh").out


def test_an_example_names_its_schema_for_editors(streamproof: Command) -> None:
    [mode, *_] = streamproof("config", "example", "minimal").out.splitlines()
    named = Path(unquote(urlsplit(mode.removeprefix("# yaml-language-server: $schema=")).path))
    assert named.read_text() == streamproof("config", "schema").out
    assert json.loads(named.read_text())["$id"] == f"urn:streamproof:configuration:{__version__}"


@pytest.mark.parametrize("folder", ["validator/config/pipelines", "docs/guide"])
def test_a_configuration_of_a_checkout_names_its_schema_for_editors(folder: str) -> None:
    files = [file for file in (ROOT / folder).glob("*.yaml") if "\nguarantee: " in file.read_text()]
    for file in files:
        place = file.read_text().partition("\n")[0].removeprefix("# yaml-language-server: $schema=")
        assert (file.parent / place).resolve() == SCHEMA_FILE
    assert files


def test_version_is_printed_by_option_and_command(streamproof: Command) -> None:
    assert streamproof("version").out == streamproof("--version").out == f"streamproof {__version__}\n"


def test_config_check_prints_valid_or_each_problem(streamproof: Command, pipeline: Path) -> None:
    ran = streamproof("config", "check", pipeline)
    assert ran == Ran(
        0, f"{pipeline}: valid; pipeline clickstream, exactly_once, 1 input topic and 1 output topic.\n", ""
    )
    ran = streamproof("config", "check", pipeline, "--set", "timing.tick=0s", "--set", "nonsense=1")
    assert (ran.status, ran.out) == (2, "")
    assert [line.split(": ")[:3] for line in ran.err.splitlines()] == [
        ["streamproof", str(pipeline), "timing.tick (from --set timing.tick)"],
        ["streamproof", str(pipeline), "nonsense (from --set nonsense)"],
    ]


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_passes_config_check(
    streamproof: Command, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_USER", "u")
    monkeypatch.setenv("KAFKA_PASSWORD", "p")
    path = tmp_path / "example.yaml"
    path.write_text(streamproof("config", "example", name).out, encoding="utf-8")
    assert streamproof("config", "check", path).status == 0


def test_the_schema_is_json(streamproof: Command) -> None:
    assert json.loads(streamproof("config", "schema").out)["title"] == "streamproof configuration"


@pytest.mark.parametrize(
    ("snapshot", "status"), [(clean(), 0), (broken(), 1), (unsure(), 3)], ids=["pass", "fail", "unknown"]
)
@pytest.mark.parametrize("form", ["text", "json", "html", "junit", "github"])
def test_the_exit_status_of_report_follows_the_verdict(
    streamproof: Command, tmp_path: Path, snapshot: Snapshot, status: int, form: str
) -> None:
    ran = streamproof("report", state(tmp_path, snapshot), "--format", form)
    assert (ran.status, ran.err) == (status, "")
    if form == "json":
        assert json.loads(ran.out) == build(snapshot)
    if form == "junit":
        ET.fromstring(ran.out)


def test_status_prints_the_verdict_of_a_state_or_a_port_in_one_line(
    streamproof: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, snapshot, status in (("p", clean(), 0), ("f", broken(), 1), ("u", unsure(), 3)):
        folder = tmp_path / name
        folder.mkdir()
        ran = streamproof("status", state(folder, snapshot))
        assert (ran.status, ran.err) == (status, "")
        assert re.fullmatch(r"(pass|fail|unknown): Pipeline clickstream .* As of .* UTC\.\n", ran.out)
    token = "a-token-of-24-characters"
    settings = ["metrics.port=0", f"metrics.authorization.credentials={token}", f"state.path={tmp_path / 'p'}"]
    publisher = Publisher(loads(EXAMPLES["clickstream"], tmp_path, settings, environment={}), tmp_path / "p")
    url = publisher.start().url
    try:
        assert "--token-file" in streamproof("status", url).err
        (tmp_path / "token").write_text(f"{token}\n")
        asked = ("status", url, "--token-file", tmp_path / "token")
        assert streamproof(*asked).status == 3
        publisher.publish(clean())
        passed = streamproof(*asked)
        assert (passed.status, passed.out.partition(":")[0]) == (0, "pass")
        publisher.publish(broken())
        assert streamproof(*asked).status == 1
    finally:
        publisher.stop()
    silent = streamproof(*asked)
    assert (silent.status, "does not answer" in silent.err) == (3, True)
    assert streamproof("status", tmp_path / "nowhere").status == 2


def test_the_report_for_github_goes_to_the_page_of_the_run(
    streamproof: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "summary.md"
    folder = tmp_path / "state"
    folder.mkdir()
    hostile = replace(broken(), pipeline="a|b\n::error::<x>")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))
    ran = streamproof("report", state(folder, hostile), "--format", "github")
    [annotation] = ran.out.splitlines()
    assert annotation.startswith("::error title=streamproof%3A a|b")
    written = page.read_text(encoding="utf-8")
    assert written.startswith("## ❌ Pipeline a\\|b")
    assert "<x>" not in written
    assert "streamproof explain" in written
    monkeypatch.delenv("GITHUB_STEP_SUMMARY")
    assert streamproof("report", folder, "--format", "github").out == f"{annotation}\n\n{written}"


def test_notify_test_says_which_address_did_not_accept(streamproof: Command, pipeline: Path) -> None:
    assert "it has no notify" in streamproof("notify", "test", pipeline).err
    ran = streamproof("notify", "test", pipeline, "--set", 'notify=[{"url": "http://127.0.0.1:1/planted"}]')
    assert (ran.status, ran.out) == (3, "")
    assert ran.err.startswith("streamproof: notify[0]: 127.0.0.1 does not answer (")
    assert "planted" not in ran.err


def test_report_without_a_state_asks_for_one(streamproof: Command, tmp_path: Path) -> None:
    ran = streamproof("report", tmp_path)
    assert ran.status == 2
    assert ran.err.startswith(f"streamproof: {tmp_path}/report.json: ")
    assert "state.path" in ran.err


def test_report_of_a_part_of_a_run_is_refused(streamproof: Command, tmp_path: Path) -> None:
    ran = streamproof("report", state(tmp_path, clean()), "--since", "2026-01-31T12:00:00Z")
    assert (ran.status, ran.out) == (2, "")
    assert "--since is not supported yet" in ran.err


@pytest.mark.parametrize("text", ['{"schema": 2}', "no json", "[]"])
def test_a_report_that_cannot_be_read_is_refused(streamproof: Command, tmp_path: Path, text: str) -> None:
    (tmp_path / "report.json").write_text(text, encoding="utf-8")
    ran = streamproof("report", tmp_path)
    assert (ran.status, ran.out, len(ran.err.splitlines())) == (2, "", 1)


@pytest.mark.parametrize("text", ["{}", '{"violations": [{"id": "1"}]}', '{"violations": 1}'])
def test_damaged_violations_are_refused_by_the_formats_that_list_them(
    streamproof: Command, tmp_path: Path, text: str
) -> None:
    folder = state(tmp_path, clean())
    (Path(folder) / "violations.json").write_text(text, encoding="utf-8")
    for form, status in {"text": 2, "html": 2, "junit": 2, "json": 0}.items():
        ran = streamproof("report", folder, "--format", form)
        assert (ran.status, "violations.json" in ran.err) == (status, status == 2), form


def room(monkeypatch: pytest.MonkeyPatch, name: str, **functions: Any) -> None:
    """Replace a module of another part of the product by one with ``functions``."""
    module = ModuleType(name)
    vars(module).update(functions)
    monkeypatch.setitem(sys.modules, name, module)


def test_validate_passes_the_configuration_to_the_sidecar(
    streamproof: Command, pipeline: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[Config, bool, bool, bool]] = []
    noticed: list[bool] = []

    def run(
        config: Config,
        *,
        once: bool,
        leave_open: bool,
        at_rest: bool,
        say: Callable[[str], None],
        notices: object,
    ) -> int:
        say("a line of the sidecar")
        seen.append((config, once, leave_open, at_rest))
        noticed.append(notices is not None)
        return 3

    room(monkeypatch, "validator.stream.sidecar", run=run)
    ran = streamproof("validate", pipeline, "--once", "--at-rest", "--set", "metrics.port=0")
    assert (ran.status, ran.err) == (3, "a line of the sidecar\n")
    assert [(config.metrics.port, *options) for config, *options in seen] == [(0, True, False, True)]
    streamproof("validate", pipeline)
    streamproof("validate", pipeline, "--quiet")
    streamproof("validate", pipeline, "--once", "--quiet")
    assert noticed == [True, True, False, False]


@pytest.mark.parametrize("option", ["--leave-open", "--at-rest"])
def test_options_for_the_end_of_a_run_are_refused_without_once(
    option: str, streamproof: Command, pipeline: Path
) -> None:
    ran = streamproof("validate", pipeline, option)
    assert ran.status == 2
    assert re.fullmatch(f"streamproof: validate: {option} .* --once\\.\n", ran.err)


class StateLocked(Exception):
    """Stands for the error of the state's lock."""


StateLocked.__module__ = "validator.state.lock"


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (StateLocked("another sidecar is running on x: stop it"), 2, "another sidecar is running on x: stop it"),
        (
            KeyError("k"),
            3,
            (
                "KeyError: 'k'; run with --debug for the traceback, and report it if it looks like a defect of "
                "streamproof."
            ),
        ),
        (OSError(28, "No space left on device", "/x"), 3, "/x: No space left on device; fix that and try again."),
    ],
)
def test_an_error_is_one_sentence_and_its_status(
    streamproof: Command, pipeline: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, said: str
) -> None:
    def run(_: Config, **__: bool) -> int:
        raise error

    room(monkeypatch, "validator.stream.sidecar", run=run)
    assert streamproof("validate", pipeline) == Ran(status, "", f"streamproof: {said}\n")
    shown = streamproof("validate", pipeline, "--debug")
    assert shown.status == status
    assert "Traceback" in shown.err
    assert "Traceback" in streamproof("--debug", "validate", pipeline).err


def test_an_interrupt_is_status_130(streamproof: Command, pipeline: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(_: Config, **__: bool) -> int:
        raise KeyboardInterrupt

    room(monkeypatch, "validator.stream.sidecar", run=run)
    assert streamproof("validate", pipeline) == Ran(130, "", "")


def test_demo_passes_its_arguments_on(streamproof: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Namespace] = []

    def run(given: Namespace) -> int:
        seen.append(given)
        return 1

    room(monkeypatch, "testbed.demo.command", run=run)
    assert streamproof("demo", "--engine", "mutant", "--seconds", "20", "--open").status == 1
    given = seen[0]
    assert (given.engine, given.fault, given.seconds, given.seed, given.open) == ("mutant", None, 20, 1, True)


def test_ack_passes_its_arguments_on(streamproof: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Path, str, str]] = []
    named: list[str] = []

    def one(state: Path, violation: str, reason: str, *, by: str) -> None:
        seen.append((state, violation, reason))
        named.append(by)

    def many(
        state: Path, reason: str, *, violation_class: str | None, fault: str | None, by: str
    ) -> list[SimpleNamespace]:
        named.append(by)
        seen.append((state, reason, f"{violation_class} {fault}"))
        return [SimpleNamespace(count=700), SimpleNamespace(count=800)]

    room(
        monkeypatch,
        "validator.state.acknowledgements",
        acknowledge=one,
        acknowledge_all=many,
    )
    assert streamproof("ack", tmp_path, "v-1", "--reason", "known, ticket 7", "--by", "ann").status == 0
    done = streamproof("ack", tmp_path, "--class", "missing", "--reason", "ticket 7")
    assert (done.status, "2 violations with 1,500 contributions" in done.out) == (0, True)
    assert streamproof("ack", tmp_path, "--fault", "kill", "--reason", "ticket 7").status == 0
    assert streamproof("ack", tmp_path, "--class", "duplicate", "--fault", "kill", "--reason", "ticket 7").status == 0
    assert seen == [
        (tmp_path, "v-1", "known, ticket 7"),
        (tmp_path, "ticket 7", "missing None"),
        (tmp_path, "ticket 7", "None kill"),
        (tmp_path, "ticket 7", "duplicate kill"),
    ]
    assert named[0] == "ann"
    assert all(named)
    assert streamproof("ack", tmp_path, "v-1", "--class", "missing", "--reason", "x").status == 2
    assert streamproof("ack", tmp_path, "--reason", "x").status == 2
    assert streamproof("ack", tmp_path, "--class", "late", "--reason", "x").status == 2
    assert streamproof("ack", tmp_path, "v-1", "--reason", " ").status == 2
    assert streamproof("ack", tmp_path / "none", "v-1", "--reason", "x").status == 2


def test_generate_prints_its_summary_as_json(
    streamproof: Command, pipeline: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def generate(config: list[str], *, on_progress: Any) -> dict[str, int]:
        on_progress(SimpleNamespace(seconds=1.0, sent=5, acknowledged=4))
        return {"sent": len(config)}

    room(monkeypatch, "generator.config", load=lambda path, overrides: [path, *overrides])
    room(monkeypatch, "generator.run", generate=generate)
    ran = streamproof("generate", pipeline, "--set", "seed=1")
    assert (ran.status, json.loads(ran.out)) == (0, {"sent": 2})
    assert ran.err == "1 s: 5 sent, 4 acknowledged\n"


def test_an_extra_that_is_not_installed_is_named(streamproof: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "testbed", None)
    monkeypatch.delitem(sys.modules, "testbed.demo.command", raising=False)
    ran = streamproof("demo")
    assert ran.status == 2
    assert "testbed is not part" in ran.err


def test_a_closed_stdout_is_not_an_error(tmp_path: Path) -> None:
    write(tmp_path, broken())
    command = f'"{sys.executable}" -m validator.cli.main report "{tmp_path}" --format html | head -c 1'
    ran = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.stdout, ran.stderr) == ("<", "")


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_stdout_that_is_closed_from_the_start_changes_no_exit_status(closed: str, tmp_path: Path) -> None:
    write(tmp_path, clean())
    (tmp_path / "pipeline.yaml").write_text(EXAMPLES["minimal"])
    for arguments in (f'report "{tmp_path}"', f'config check "{tmp_path}/pipeline.yaml"', "--version"):
        command = f'"{sys.executable}" -m validator.cli.main {arguments} {closed}'
        ran = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
        assert (ran.returncode, ran.stderr) == (0, "")
    # No file and no process that the command opens later gets the descriptor of stdout.
    code = (
        "import os; from validator.cli.main import main; main(['version']); "
        "raise SystemExit(os.readlink('/proc/self/fd/1') != os.devnull or not os.get_inheritable(1))"
    )
    command = f'"{sys.executable}" -c "{code}" {closed}'
    assert subprocess.run(["bash", "-c", command], cwd=ROOT, timeout=60, check=False).returncode == 0


def test_ctrl_c_during_the_imports_prints_no_traceback() -> None:
    code = (
        "import sys\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'validator.cli.commands': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        "from validator.cli.main import main\n"
        "sys.exit(main(['version']))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.returncode, ran.stderr) == (130, "")


def test_commands_without_spark_and_kafka_start_without_them() -> None:
    code = (
        "import sys; from validator.cli.main import main; main(['version']); main(['config', 'schema']);"
        "bad = {'pyspark', 'delta', 'confluent_kafka', 'pandas', 'generator', 'testbed'} & set(sys.modules); "
        "assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, stdout=subprocess.DEVNULL, timeout=60)
