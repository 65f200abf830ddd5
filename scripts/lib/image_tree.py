"""Completes the image's tree of installed packages: the second half of scripts/image-tree.

The tree is the same, byte for byte, for the same commit and the same Python: files have the time of the commit.
"""

from __future__ import annotations

import compileall
import os
import py_compile
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts" / "lib")]

from wheel import committed  # noqa: E402  (the path comes first)

from validator.stream.jars import SIDECAR_LOCK, PrerequisiteError, default_cache, read_lock, resolve  # noqa: E402

OWNED_BY_THE_USER: Final = "var/lib/streamproof"
USER_ID: Final = 10001
COMMANDS: Final = ("streamproof", "streamproof-health")


class UnusedPattern(Exception):
    """A pattern of image/left-out matches no file: the packages changed."""


def main(dest: Path, site: Path) -> None:
    """Complete the tree ``dest``, whose packages are in ``site``."""
    home = dest / "opt" / "streamproof"
    sys.path.insert(0, str(site))  # the Ivy that fetches the jars is PySpark's
    copy_jars(home / "jars")
    for path in excluded(site):
        (shutil.rmtree if path.is_dir() else Path.unlink)(path)
    shutil.rmtree(site / "bin", ignore_errors=True)
    environment(home)
    for name in COMMANDS:
        copy_with_mode(ROOT / "image" / name, dest / "usr" / "local" / "bin" / name)
    copy_with_mode(ROOT / "LICENSE", home / "LICENSE")
    for folder in ("etc/streamproof", OWNED_BY_THE_USER):
        (dest / folder).mkdir(parents=True, exist_ok=True)
    compile_all(site)
    seal(dest)


def copy_jars(folder: Path) -> None:
    """The sidecar's jars, from this user's cache where it has them, each checked against the lock."""
    for jar in read_lock(SIDECAR_LOCK):
        known = default_cache() / jar.relative_path
        if known.is_file():
            copy_with_mode(known, folder / jar.relative_path)
    resolve(SIDECAR_LOCK, cache=folder)


def excluded(site: Path) -> Iterator[Path]:
    """The installed files that image/left-out names. Raises `UnusedPattern`."""
    for line in (ROOT / "image" / "left-out").read_text().splitlines():
        if pattern := line.partition("#")[0].strip():
            found = sorted(site.glob(pattern))
            if not found:
                raise UnusedPattern(f"image/left-out: {pattern} fits no file of the installed packages: correct it.")
            yield from found


def environment(home: Path) -> None:
    """Make ``home`` a virtual environment of Debian's Python; the host's Python can be another one."""
    (home / "bin").mkdir(parents=True, exist_ok=True)
    link = home / "bin" / "python"
    link.unlink(missing_ok=True)
    link.symlink_to(f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}")
    (home / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")


def copy_with_mode(source: Path, target: Path) -> None:
    """Copy ``source`` with its file mode."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)


def compile_all(site: Path) -> None:
    """Compile every module, because Python cannot do it on a read-only file system. The bytecode has no time stamp and
    no path of the host.
    """
    inside = "/" + str(site.relative_to(site.parents[4]))
    compileall.compile_dir(
        site,
        quiet=2,
        workers=0,
        stripdir=str(site),
        prependdir=inside,
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )


def seal(dest: Path) -> None:
    """Set modes and times that do not depend on the host: readable by all, the state's folder owned by the user."""
    seconds = committed()
    for path in [dest, *dest.rglob("*")]:
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
        os.utime(path, (seconds, seconds), follow_symlinks=False)
    state = dest / OWNED_BY_THE_USER
    state.chmod(0o750)
    if os.geteuid() == 0:
        os.chown(state, USER_ID, USER_ID)


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), Path(sys.argv[2]))
    except (PrerequisiteError, UnusedPattern) as error:
        sys.exit(str(error))
