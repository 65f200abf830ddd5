"""The build backend of this checkout and of the source archive: `pip install .` builds the package of `scripts/wheel`.

An editable install is that of setuptools, with the packages under their names in the checkout.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from lib.wheel import UMASK, committed, copy_tree
from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    get_requires_for_build_editable,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
]


def build_wheel(
    wheel_directory: str,
    config_settings: dict[str, Any] | None = None,
    metadata_directory: str | None = None,  # noqa: ARG001 - the names are those of PEP 517
) -> str:
    """Build the wheel into a folder and return its file name. Frontends call this in a process of its own."""
    folder = str(Path(wheel_directory).absolute())
    os.umask(UMASK)
    os.environ["SOURCE_DATE_EPOCH"] = str(committed())
    with tempfile.TemporaryDirectory() as work:
        tree = Path(work) / "tree"
        copy_tree(tree)
        os.chdir(tree)
        try:
            return str(build_meta.build_wheel(folder, config_settings))
        finally:
            os.chdir(folder)


def build_sdist(sdist_directory: str, config_settings: dict[str, Any] | None = None) -> str:  # noqa: ARG001
    """Refused: setuptools would leave out the scripts, without which no wheel can be built."""
    raise SystemExit("streamproof: setuptools builds no complete source archive; use scripts/release or scripts/wheel.")
