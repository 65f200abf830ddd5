"""promtool and prometheus, for the tests of rules: from PATH, else unpacked from Debian's package into the cache.

Nothing is installed: `apt-get download` checks the archive's signature and `dpkg-deb -x` unpacks into a folder.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest

from validator.stream.jars import default_cache

DOWNLOAD_SECONDS = 90


def tool(name: str) -> Path:
    """The program ``name`` of Prometheus; skips the test with the reason where none can be had."""
    found = shutil.which(name)
    if found is not None:
        return Path(found)
    folder, problem = _unpacked()
    if folder is None:
        pytest.skip(f"{name} is not on the PATH and could not be fetched: {problem}")
    return folder / "usr" / "bin" / name


@cache
def _unpacked() -> tuple[Path | None, str]:
    target = default_cache().parent / "prometheus"
    if (target / "usr" / "bin" / "promtool").exists():
        return target, ""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        return None, "this is no Debian; install Prometheus"
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as name:
        folder = Path(name)
        try:
            _run(["apt-get", "download", "prometheus"], folder)
            [package] = folder.glob("prometheus_*.deb")
            _run(["dpkg-deb", "-x", package.name, "unpacked"], folder)
        except (subprocess.SubprocessError, ValueError) as error:
            return None, f"{error}"
        with contextlib.suppress(OSError):  # another run was quicker
            (folder / "unpacked").rename(target)
    return target, ""


def _run(command: list[str], folder: Path) -> None:
    subprocess.run(
        command, cwd=folder, check=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=DOWNLOAD_SECONDS
    )
