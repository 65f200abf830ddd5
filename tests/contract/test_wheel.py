"""The wheel: one complete package that runs without a checkout, with the same bytes for the same commit."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from validator import __version__

ROOT = Path(__file__).parents[2]
PACKAGES = ("validator", "generator", "faults", "testbed", "dashboards")
SIZE_MOST = 2_000_000
IMPORTS_ALL = """
import importlib, pkgutil, sys
import streamproof, chaosstreamproof
for package in (streamproof, chaosstreamproof):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
assert set(streamproof.__all__) == {*streamproof.validator.api.__all__, "__version__"}
print(streamproof.__version__, sorted({name.split(".")[0] for name in sys.modules}))
"""

pytestmark = pytest.mark.timeout(300)


def built(folder: Path, root: Path = ROOT, umask: int = 0o022) -> Path:
    command = [sys.executable, root / "scripts" / "lib" / "wheel.py", folder]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, cwd=folder.parent, env=environment, umask=umask
    )
    return Path(done.stdout.strip())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("first") / "dist")


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that pip would unpack the wheel into."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(folder)
    return folder


def run(installed: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the wheel and its dependencies, without the checkout."""
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(installed), "HOME": str(installed)}
    command = [sys.executable, "-P", *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, cwd=installed, env=environment)


def test_the_wheel_has_no_common_top_level_name(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
    assert {name.split("/")[0] for name in names} == {
        "streamproof", "chaosstreamproof", f"streamproof-{__version__}.dist-info"
    }  # fmt: skip
    assert wheel.stat().st_size < SIZE_MOST


@pytest.mark.full
def test_a_checkout_and_a_build_under_another_umask_give_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    for name in (*PACKAGES, "chaosstreamproof", "docs", "scripts/lib"):
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("README.md", "LICENSE", "pyproject.toml"):
        shutil.copy(ROOT / name, checkout / name)
    for path in checkout.rglob("*"):
        path.chmod(path.stat().st_mode & ~0o077)
    other = built(tmp_path / "dist", checkout, umask=0o077)
    assert other.read_bytes() == wheel.read_bytes()

    options = ["--quiet", "--no-deps", "--no-build-isolation", "-w", "pip"]
    command = [sys.executable, "-m", "pip", "wheel", *options, checkout]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
    subprocess.run(command, check=True, cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, umask=0o077)
    [of_pip] = (tmp_path / "pip").iterdir()
    assert of_pip.read_bytes() == wheel.read_bytes(), "pip install of a checkout and of a source archive"


def test_no_file_of_a_package_is_left_out(installed: Path) -> None:
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", *PACKAGES], check=True, capture_output=True, text=True
    ).stdout.split()
    assert [name for name in listed if not (installed / "streamproof" / name).exists()] == []
    assert (installed / "streamproof" / "py.typed").exists()


def test_every_module_is_imported_under_the_one_name(installed: Path) -> None:
    done = run(installed, "-c", IMPORTS_ALL)
    assert done.returncode == 0, done.stderr
    version, _, tops = done.stdout.strip().partition(" ")
    assert version == __version__
    assert not set(PACKAGES) & set(eval(tops)), "no module of the checkout, and none under its old name"


def test_the_command_of_the_wheel_works(installed: Path) -> None:
    [points] = installed.glob("*.dist-info/entry_points.txt")
    assert "streamproof = streamproof.validator.cli.main:main" in points.read_text()
    done = run(installed, "-m", "streamproof.validator.cli.main", "--version")
    assert (done.returncode, done.stdout.strip()) == (0, f"streamproof {__version__}")
    for command in ("doctor", "generate", "faults", "dashboards", "demo", "campaign", "report"):
        done = run(installed, "-m", "streamproof.validator.cli.main", command, "--help")
        assert (done.returncode, done.stderr) == (0, "")
        assert "usage: streamproof" in done.stdout
        address = Path(done.stdout.split()[-1])
        assert address == installed / "streamproof" / "README.md"
        pages = set(re.findall(r"docs/[\w/-]+\.md", done.stdout))
        assert [page for page in pages if not (address.parent / page).is_file()] == []
    done = run(installed, "-m", "streamproof.validator.cli.main", "config", "example", "minimal")
    schema = installed / "streamproof" / "validator" / "config" / "streamproof.schema.json"
    assert done.stdout.startswith(f"# yaml-language-server: $schema={schema.as_uri()}\n")
    assert schema.is_file()


def test_a_command_without_its_extra_names_it(installed: Path, tmp_path: Path) -> None:
    without = "import sys; sys.modules['requests'] = sys.modules['grafana_api'] = None; "
    main = "from streamproof.validator.cli.main import main; sys.exit(main(sys.argv[1:]))"
    done = run(installed, "-c", without + main, "dashboards", "check", "--prometheus", "http://127.0.0.1:1")
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'streamproof[grafana]'" in done.stderr
    assert run(installed, "-c", without + main, "dashboards", "build", "--out", str(tmp_path)).returncode == 0
