"""Prometheus, promtool and Alertmanager for tests, from PATH or else unpacked from Debian's packages into the cache.

Nothing is installed: `apt-get download` checks the archive's signature, and `dpkg-deb -x` unpacks into a folder.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from testbed.ports import free_port
from testbed.processes import OwnedProcess
from validator.stream.jars import user_cache

DOWNLOAD_SECONDS = 90
WAIT_SECONDS_MAX = 40.0


ALERTMANAGER = "prometheus-alertmanager"
"""Name of both the program and the package."""


def tool(name: str, package: str = "prometheus") -> Path:
    """Return the program ``name`` of Debian's ``package``; skip the test with the reason if it is not available."""
    found = shutil.which(name) or shutil.which(name.removeprefix("prometheus-"))
    if found is not None:
        return Path(found)
    folder, problem = _unpacked(name, package)
    if folder is None:
        pytest.skip(f"{name} is not on the PATH and could not be fetched: {problem}")
    return folder / "usr" / "bin" / name


def alertmanager() -> list[str | Path]:
    """Return the command that starts an Alertmanager, without options; skip like :func:`tool`."""
    program = tool(ALERTMANAGER, ALERTMANAGER)
    share = program.parents[1] / "share"
    if not program.is_relative_to(user_cache()):
        return [program]
    # Debian's Alertmanager reads templates only from /usr/share. It gets its own /usr/share in a temporary mount
    # namespace.
    as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
    own = ["unshare", *as_root, "--mount", "sh", "-c", 'mount --bind "$0" /usr/share && exec "$@"', share]
    if subprocess.run([*own, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no mount namespace can be had here for an unpacked Alertmanager; install prometheus-alertmanager")
    return [*own, program]


@cache
def _unpacked(name: str, package: str) -> tuple[Path | None, str]:
    target = user_cache() / package
    if (target / "usr" / "bin" / name).exists():
        return target, ""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        return None, f"this is no Debian; install {package}"
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        folder = Path(scratch)
        try:
            _run(["apt-get", "download", package], folder)
            [archive] = folder.glob(f"{package}_*.deb")
            _run(["dpkg-deb", "-x", archive.name, "unpacked"], folder)
        except (subprocess.SubprocessError, ValueError) as error:
            return None, f"{error}"
        with contextlib.suppress(OSError):  # another test run may have been faster
            (folder / "unpacked").rename(target)
    return target, ""


def _run(command: list[str], folder: Path) -> None:
    subprocess.run(
        command, cwd=folder, check=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=DOWNLOAD_SECONDS
    )


def until(
    holds: Callable[[], bool],
    *processes: OwnedProcess,
    seconds: float = WAIT_SECONDS_MAX,
    pause_seconds: float = 0.3,
    what: str = "",
) -> None:
    """Check ``holds`` every ``pause_seconds`` until it is true. Fail after ``seconds``, or when one of the processes
    has ended."""
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not holds():
        said = "\n".join(process.last_lines() for process in processes)
        assert all(process.is_running for process in processes), said
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}\n{said}"
        pause.wait(pause_seconds)


def series(url: str, expression: str) -> list[dict[str, Any]]:
    """Return a Prometheus's answer to a query at ``url``; empty while it is not up."""
    try:
        answered = requests.get(f"{url}/api/v1/query", params={"query": expression}, timeout=10).json()
    except requests.RequestException:
        return []
    return list(answered.get("data", {}).get("result", []))


def start_prometheus(folder: Path, config: dict[str, Any]) -> tuple[OwnedProcess, str]:
    """Start a Prometheus with ``config`` and its files in ``folder``; return it and its URL. The caller stops it."""
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    address = f"127.0.0.1:{free_port()}"
    command = [tool("prometheus"), f"--config.file={folder / 'prometheus.yaml'}",
               f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={address}"]  # fmt: skip
    return OwnedProcess(command, log=folder / "prometheus.log"), f"http://{address}"
