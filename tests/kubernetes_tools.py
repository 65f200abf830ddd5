"""The tools that `scripts/kubernetes-tools` has built. A test that needs a missing tool skips."""

from __future__ import annotations

import functools
import os
import subprocess
from pathlib import Path
from typing import Final

import pytest

from validator.stream.jars import user_cache

CHART: Final = Path(__file__).parents[1] / "helm" / "streamproof"
VALUES: Final = sorted((CHART / "ci").glob("*-values.yaml"))
_FOLDER: Final = Path(os.environ.get("STREAMPROOF_KUBERNETES_TOOLS") or user_cache() / "kubernetes-tools")


def built(name: str) -> str:
    """Path of the program ``name``; empty if it was not built."""
    found = _FOLDER / "bin" / name
    return str(found) if found.is_file() else ""


def needed(name: str) -> Path:
    """The file or folder ``name`` of the tools; skips the test if it was not built."""
    found = _FOLDER / name
    if not found.exists():
        pytest.skip(f"{found} was not built: scripts/kubernetes-tools builds it")
    return found


def helm(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run Helm; the completed process."""
    command = [needed("bin/helm"), *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, cwd=cwd, timeout=300)


@functools.cache
def rendered(values: Path) -> str:
    """The manifests of the chart with these values, in namespace `observing` as release `trial`."""
    done = helm("template", "trial", CHART, "--namespace", "observing", "--values", values)
    assert done.returncode == 0, done.stderr
    return done.stdout
