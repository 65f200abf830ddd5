"""The scripts report what is missing before they download anything. The repository names no registry or machine."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = ["setup", "demo", "test", "check", "bench"]
NEEDED_BY_SETUP = ["scripts", "validator/__init__.py", "validator/stream/__init__.py", "validator/stream/jars.py"]
BASH = shutil.which("bash") or "bash"

# In pieces, so that this file names none itself.
REGISTRY_HOSTS = [
    ("maven", "org"), ("maven", "apache", "org"), ("maven", "google", "com"), ("pypi", "org"), ("pythonhosted", "org"),
    ("npmjs", "org"), ("npmjs", "com"), ("yarnpkg", "com"), ("golang", "org/"), ("crates", "io"), ("debian", "org"),
    ("repo", "spring", "io"), ("jitpack", "io"), ("sonatype", "org"), ("jcenter", "bintray"),
]  # fmt: skip
MACHINE_PATHS = ["/tmp/" + "boot", "/work/" + "main", "/work/" + "shared", "/ro" + "ot/"]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The files that the scripts need before any installation, without the installation sources."""
    for name in NEEDED_BY_SETUP:
        source, target = ROOT / name, tmp_path / "checkout" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copyfile)(source, target)
    return tmp_path / "checkout"


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A PATH with one folder that has neither Python nor Java."""
    folder = tmp_path / "tools"
    folder.mkdir()
    for tool in ("bash", "dirname", "env"):
        link_tool(folder, tool, shutil.which(tool))
    return folder


def link_tool(folder: Path, name: str, target: str | None) -> None:
    assert target is not None, f"this machine has no {name}"
    (folder / name).write_text(f'#!{BASH}\nexec {target} "$@"\n')
    (folder / name).chmod(0o755)


def run(checkout: Path, script: str, path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [BASH, checkout / "scripts" / script],
        check=False,
        cwd=path,  # the working directory must not matter
        env={"PATH": str(path), "HOME": str(path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


def assert_refused(answer: subprocess.CompletedProcess[str], checkout: Path, *words: str) -> None:
    assert answer.returncode == 1
    assert answer.stdout == ""
    [sentence] = answer.stderr.strip().splitlines()
    assert all(word in sentence for word in (*words, "apt-get install", "brew install")), sentence
    assert not (checkout / ".venv").exists(), "something was installed already"


@pytest.mark.parametrize("script", SCRIPTS)
def test_an_old_java_is_refused_first(checkout: Path, tools: Path, script: str) -> None:
    link_tool(tools, "python3", sys.executable)
    java = tools / "java"
    java.write_text(f"#!{BASH}\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    assert_refused(run(checkout, script, tools), checkout, "is Java 11", "17 to 21")


def test_no_java_is_refused_first(checkout: Path, tools: Path) -> None:
    link_tool(tools, "python3", sys.executable)
    assert_refused(run(checkout, "setup", tools), checkout, "No Java was found")


def test_no_python_is_refused_first(checkout: Path, tools: Path) -> None:
    assert_refused(run(checkout, "setup", tools), checkout, "needs Python 3.11 to 3.13")


def test_an_old_python_is_refused_first(checkout: Path, tools: Path) -> None:
    (tools / "python3").write_text(f"#!{BASH}\nexit 1\n")  # the result of the version check with Python 3.10
    (tools / "python3").chmod(0o755)
    assert_refused(run(checkout, "setup", tools), checkout, "needs Python 3.11 to 3.13")


def committed_files() -> list[Path]:
    answer = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
    return [ROOT / name for name in answer.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_no_committed_file_names_a_registry_or_a_machine() -> None:
    hosts = [r"\b" + re.escape(".".join(parts)) for parts in REGISTRY_HOSTS]
    forbidden = re.compile("|".join([*hosts, *map(re.escape, MACHINE_PATHS)]))
    found = [
        f"{file.relative_to(ROOT)}:{number}: {match.group()}"
        for file in committed_files()
        for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), start=1)
        if (match := forbidden.search(line))
    ]
    assert not found, "\n".join(found)


def test_every_script_is_executable_and_strict() -> None:
    for script in [*(ROOT / "scripts" / name for name in [*SCRIPTS, "lock"]), ROOT / ".ci" / "run"]:
        text = script.read_text()
        assert script.stat().st_mode & 0o111 == 0o111, script
        assert text.startswith("#!/usr/bin/env bash\n# "), f"{script} does not say what it does"
        assert "\nset -euo pipefail\n" in text, script


def test_the_lock_pins_every_package_by_hash_and_names_no_index() -> None:
    text = (ROOT / "requirements.lock").read_text()
    entries = re.split(r"^(?=[a-z])", text, flags=re.MULTILINE)[1:]
    assert len(entries) > 30
    assert all(re.match(r"[a-z0-9-]+==[^ ]+ ", entry) and "--hash=sha256:" in entry for entry in entries)
    assert "index-url" not in text
