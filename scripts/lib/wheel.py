"""Builds the wheel: the packages of this checkout as parts of one package, ``streamproof``.

In the checkout they are top-level packages (``validator``, ``faults`` ...). Other distributions use these names too,
so an installed package must not claim them. The wheel is built from a copy in which imports name
``streamproof.validator`` and so on. Strings that name a module, for a later import or for ``python -m``, change too.

The same commit gives the same bytes, because files have the time of the commit and fixed modes.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
NAME: Final = "streamproof"
PACKAGES: Final = ("validator", "generator", "faults", "testbed", "dashboards")
OUTSIDE: Final = "chaosstreamproof"
"""Remains a top-level package, because experiments of the Chaos Toolkit name it. No other distribution has its name."""
NOT_MODULES: Final = frozenset({"faults.topic"})
"""Strings that name a setting, not the module of the same name."""
_CLASSIC: Final = 315_532_800
"""1980-01-01, the earliest time of a file in a zip archive."""
_FOLDER_MODE: Final = 0o755
_FILE_MODE: Final = 0o644
UMASK: Final = 0o022
"""For the files that the build itself creates."""


class Edit(NamedTuple):
    """A replacement of columns ``start`` to ``end`` of a line; all numbers begin at 0."""

    line: int
    start: int
    end: int
    text: str


class NotRewritten(Exception):
    """A file names a module in a form that `rewritten` does not support."""


def main() -> int:
    """Build the wheel into a folder; print its path."""
    parser = argparse.ArgumentParser(prog="scripts/wheel", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "dist", help="where it goes (default: dist)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        tree = Path(work) / "tree"
        copy_tree(tree)
        print(built(tree, given.folder))
    return 0


def copy_tree(tree: Path) -> None:
    """Write the copy of the packages from which the wheel is built. Its modes do not depend on the umask or on the
    checkout, because a wheel contains the modes of its files.
    """
    own = tree / NAME
    own.mkdir(parents=True)
    (own / "__init__.py").write_text(_INIT)
    (own / "py.typed").touch()
    for package, place in [*((package, own) for package in PACKAGES), (OUTSIDE, tree)]:
        shutil.copytree(ROOT / package, place / package, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    # The documentation of this version, at whose place the help of the commands points.
    shutil.copytree(ROOT / "docs", own / "docs", ignore=shutil.ignore_patterns("pictures", "next"))
    shutil.copy(ROOT / "README.md", own / "README.md")
    modules = frozenset(_modules(own))
    for file in sorted(tree.rglob("*.py")):
        if file != own / "__init__.py":
            file.write_text(rewritten(file.read_text(), modules, str(file.relative_to(tree))))
    for name in ("README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree / name)
    (tree / "pyproject.toml").write_text(_project())
    for path in tree.rglob("*"):
        path.chmod(_FOLDER_MODE if path.is_dir() else _FILE_MODE)


def built(tree: Path, folder: Path) -> Path:
    """The wheel of a copy, with the time of the newest commit in all of its files."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as fresh:
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", fresh]
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(committed()), "PIP_NO_INPUT": "1"}
        subprocess.run([*command, str(tree)], check=True, env=environment, stdin=subprocess.DEVNULL, umask=UMASK)
        [wheel] = Path(fresh).glob("*.whl")
        return Path(shutil.copy(wheel, folder / wheel.name))


def rewritten(source: str, modules: frozenset[str], name: str) -> str:
    """``source`` with ``streamproof.`` before our packages. ``modules``: the dotted names of our modules. ``name``: the
    file's name, for the error. Raises `NotRewritten`.
    """
    lines = source.splitlines(keepends=True)
    for edit in sorted(_edits(ast.parse(source), lines, modules, name), reverse=True):
        line = lines[edit.line]
        lines[edit.line] = line[: edit.start] + edit.text + line[edit.end :]
    return "".join(lines)


def _edits(tree: ast.Module, lines: list[str], modules: frozenset[str], name: str) -> Iterator[Edit]:
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), level=0) if _is_ours(module):
                yield _before(module, node, lines, name)
            case ast.Import():
                ours = [alias for alias in node.names if _is_ours(alias.name)]
                if ours and (len(node.names) > 1 or "." in ours[0].name):
                    raise NotRewritten(
                        f"{name}:{node.lineno}: import one package per line; for a module in a package write "
                        "`from MODULE import NAME`"
                    )
                if ours:
                    at = node.lineno - 1
                    yield Edit(at, node.col_offset, node.col_offset + len("import "), f"from {NAME} import ")
            case ast.Constant(value=str(text)) if _names_a_module(text, modules):
                yield _before(text, node, lines, name)


def _before(text: str, node: ast.stmt | ast.expr, lines: list[str], name: str) -> Edit:
    """The edit that puts ``streamproof.`` before ``text``, which is on the first line of ``node``."""
    at = node.lineno - 1
    start = lines[at].find(text, len(lines[at].encode()[: node.col_offset].decode()))
    if start < 0:
        raise NotRewritten(f"{name}:{node.lineno}: {text!r} does not stand on the line on which its expression begins")
    return Edit(at, start, start, f"{NAME}.")


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] in PACKAGES


def _names_a_module(text: str, modules: frozenset[str]) -> bool:
    """Whether a string names one of our modules, a prefix of modules or a name in a module. It must have a dot, because
    a single word can mean anything.
    """
    if text in NOT_MODULES or not re.fullmatch(r"[a-z_]+(\.[A-Za-z_]+)*\.?", text) or not _is_ours(text):
        return False
    outer = text.rstrip(".").rpartition(".")[0]
    return "." in text and (text in modules or text.endswith(".") or outer in modules)


def _modules(own: Path) -> Iterator[str]:
    for file in own.rglob("*.py"):
        parts = file.relative_to(own).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _project() -> str:
    """The project file of the copy: the distribution's metadata from `pyproject.toml`, and the new package names."""
    source = (ROOT / "pyproject.toml").read_text()
    known = tomllib.loads(source)
    begin, end = source.index("[project]"), source.index("[tool.setuptools]")
    project = source[begin:end].replace('"validator.', f'"{NAME}.validator.')
    data = ", ".join(f'"{pattern}"' for pattern in known["tool"]["setuptools"]["package-data"]["*"])
    return f"""[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

{project}
[tool.setuptools.packages.find]
include = ["{NAME}*", "{OUTSIDE}*"]

[tool.setuptools.package-data]
"*" = [{data}]
"""


def committed() -> int:
    """The time of the newest commit in seconds since the epoch, at least 1980; 1980 in a source archive, which has no
    commits. SOURCE_DATE_EPOCH takes precedence.
    """
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return max(_CLASSIC, int(given))
    if not (ROOT / ".git").exists():
        return _CLASSIC
    command = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return max(_CLASSIC, int(done.stdout) if done.returncode == 0 and done.stdout.strip() else 0)


_INIT: Final = '''"""Whether a stream processing pipeline keeps its guarantee, proven from its Kafka topics."""

from streamproof.validator import __version__
from streamproof.validator.api import ConfigError, GuaranteeBroken, NotVerified, Report, Verdict, read_report, verify

__all__ = ["ConfigError", "GuaranteeBroken", "NotVerified", "Report", "Verdict", "__version__", "read_report", "verify"]
'''


if __name__ == "__main__":
    raise SystemExit(main())
