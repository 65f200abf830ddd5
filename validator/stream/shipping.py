"""Builds the archive that Spark sends to the executors of a cluster.

It contains this package and the distributions that a worker imports, as installed here. The hosts provide Spark and a
Python of the same minor version; nothing else is installed on them. (venv-pack and conda-pack would include Spark's
jars, and PEX unpacks itself at each start of a worker.)
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

FOLDER: Final = "streamproof-environment"
"""Folder of the unpacked archive, below an executor's working folder."""
_IMPORTED: Final = ("confluent-kafka", "msgpack", "numpy", "protobuf", "pyarrow", "pydantic")
"""Distributions that `validator.stream.workers` imports; tests/integration/test_spark_cluster.py tests them."""
_LEFT_OUT: Final = re.compile(r"(^|/)(tests|include|__pycache__)/|\.(pyc|pyx|pxd|pyi|h|hpp)$")
_REQUIREMENT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def executor_python() -> str:
    """The name of the Python interpreter on the hosts of a cluster."""
    return f"python{sys.version_info.major}.{sys.version_info.minor}"


def environment(cache: Path) -> Path:
    """The path of the archive, which is built in ``cache`` if it is absent. Raises OSError."""
    distributions = {found.name: found for found in _closure(_IMPORTED)}
    own = sorted(_own_files())
    known = hashlib.sha256(f"{sys.version_info[:2]} {sys.platform}".encode())
    for name, found in sorted(distributions.items()):
        known.update(f"{name} {found.version}\n".encode())
    for path, name in own:
        known.update(f"{name} {path.stat().st_mtime_ns} {path.stat().st_size}\n".encode())
    archive = cache / f"environment-{known.hexdigest()[:16]}.zip"
    if archive.exists():
        return archive
    cache.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(suffix=".tmp", dir=cache)
    try:
        with (
            os.fdopen(descriptor, "wb") as file,
            zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as to,
        ):
            for path, name in own:
                to.write(path, name)
            for found in distributions.values():
                for path, name in _files_of(found):
                    to.write(path, name)
        Path(temporary).replace(archive)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return archive


def _own_files() -> Iterator[tuple[Path, str]]:
    """The files of the top-level package of this module, with their names in the archive."""
    package = Path(__file__).resolve().parents[len(__name__.split(".")) - 2]
    for path in package.rglob("*"):
        name = str(path.relative_to(package.parent))
        if path.is_file() and not _LEFT_OUT.search(name):
            yield path, name


def _closure(names: tuple[str, ...]) -> Iterator[Distribution]:
    """The distributions and their transitive requirements, except extras and distributions not installed here."""
    left, seen = list(names), set[str]()
    while left:
        name = re.sub(r"[-_.]+", "-", left.pop()).lower()
        if name in seen:
            continue
        seen.add(name)
        try:
            found = distribution(name)
        except PackageNotFoundError:
            continue
        yield found
        left += [_named(line) for line in found.requires or () if "extra ==" not in line]


def _named(requirement: str) -> str:
    match = _REQUIREMENT.match(requirement)
    return match.group() if match else requirement


def _files_of(found: Distribution) -> Iterator[tuple[Path, str]]:
    for file in found.files or ():
        name, path = str(file), Path(str(found.locate_file(file)))
        # Scripts and data files, outside of site-packages, are left out.
        if not name.startswith("..") and not _LEFT_OUT.search(name) and path.is_file():
            yield path, name
