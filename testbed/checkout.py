"""This checkout: its location, its command lines, and what runs record about it: version, commit and machine."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Final

from validator import __version__

ROOT: Final = Path(__file__).resolve().parents[1]


def streamproof(*arguments: str | Path) -> list[str | Path]:
    """The command line of ``streamproof ARGUMENTS`` in this interpreter."""
    return [sys.executable, "-m", "validator.cli.main", *arguments]


def python_path() -> dict[str, str]:
    """Environment variables with which `streamproof` finds this checkout from any folder."""
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))}


def version() -> str:
    """The version, and the commit if this is a Git checkout."""
    commit = commit_of(ROOT)
    return __version__ + (f" (commit {commit})" if commit else "")


def machine() -> str:
    """One line that describes the machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    kind = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    return f"{os.cpu_count()} cores, {memory} GiB, {kind}"


def commit_of(checkout: Path) -> str | None:
    """The short commit id of a checkout; None if it is not a Git checkout."""
    if not (checkout / ".git").exists():
        return None
    command = ["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"]
    try:
        answer = subprocess.run(command, check=False, capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return answer.stdout.strip() or None
