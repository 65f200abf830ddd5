"""Resolves the jars of a lock file (fetched once, cached, checked at every start), and finds the Java that runs them.

A lock file names each jar as ``group:artifact:version sha256``. :func:`resolve` returns their paths in the user's cache
folder and fetches missing jars with the Ivy that PySpark ships. Neither Maven nor the setting ``spark.jars.packages``
is needed, and a second start needs no network.

Errors, each with a sentence that says how to fix it::

    PrerequisiteError
    ├── JavaNotFoundError      no Java, or one that Spark does not run on
    └── JarError
        ├── JarLockError       the lock file is malformed
        ├── JarDownloadError   a jar could not be fetched
        └── JarChecksumError   a fetched jar is not the locked one

Only the standard library is imported here: scripts/setup runs this module before anything else can work.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

JAVA_MAJOR_MIN = 17
JAVA_MAJOR_MAX = 21
SIDECAR_LOCK = Path(__file__).with_name("jars.lock")

_JAVA_START_SECONDS_MAX = 30
_FETCH_SECONDS_MAX = 900
_ABANDONED_AFTER_SECONDS = 3600  # older fetch folders were left by killed processes
_LOCK_LINE = re.compile(r"(?P<group>[\w.-]+):(?P<artifact>[\w.-]+):(?P<version>[\w.-]+) (?P<sha256>[0-9a-f]{64})")


class PrerequisiteError(Exception):
    """This machine lacks something that streamproof requires. The message says how to fix it."""


class JavaNotFoundError(PrerequisiteError):
    """No Java between :data:`JAVA_MAJOR_MIN` and :data:`JAVA_MAJOR_MAX` was found."""


class JarError(PrerequisiteError):
    """A jar of the lock file is not available."""


class JarLockError(JarError):
    """A line of a lock file is not ``group:artifact:version sha256``."""


class JarDownloadError(JarError):
    """A jar could not be fetched."""


class JarChecksumError(JarError):
    """A fetched jar has another checksum than the lock file. It was not kept."""


@dataclass(frozen=True, slots=True)
class JavaInstallation:
    """A Java installation whose version was determined by starting it."""

    executable: Path
    major: int
    version: str


@dataclass(frozen=True, slots=True)
class LockedJar:
    """One line of a lock file."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def coordinates(self) -> str:
        """``group:artifact:version``, as in the lock file."""
        return f"{self.group}:{self.artifact}:{self.version}"

    @property
    def relative_path(self) -> Path:
        """Path of the jar below a cache folder. It contains the group, since artifact names are not unique."""
        return Path(self.group) / f"{self.artifact}-{self.version}.jar"


def find_java() -> JavaInstallation:
    """Find the Java that Spark uses: the one of ``JAVA_HOME`` if set, else the first one of the ``PATH``.

    Raises :class:`JavaNotFoundError` if there is none, if it does not start, or if its major version is not between
    :data:`JAVA_MAJOR_MIN` and :data:`JAVA_MAJOR_MAX`.
    """
    home = os.environ.get("JAVA_HOME")
    executable = java_executable()
    origin = f"JAVA_HOME={home}" if home else "the PATH"
    if executable is None or not os.access(executable, os.X_OK):
        raise JavaNotFoundError(f"No Java was found through {origin}: {_JAVA_FIX}")
    try:
        answer = subprocess.run(
            [executable, "-version"],
            check=False,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=_JAVA_START_SECONDS_MAX,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaNotFoundError(f"{executable} (from {origin}) did not start ({error}): {_JAVA_FIX}") from error
    match = re.search(r'version "(?P<version>(?:1\.)?(?P<major>\d+)[^"]*)"', answer.stderr + answer.stdout)
    if answer.returncode != 0 or match is None:
        if not _is_in_a_folder():
            raise JavaNotFoundError(
                "Java does not start, because the working directory was deleted: cd to one that exists."
            )
        raise JavaNotFoundError(f"{executable} (from {origin}) prints no version: {_JAVA_FIX}")
    major = int(match["major"])
    if not JAVA_MAJOR_MIN <= major <= JAVA_MAJOR_MAX:
        raise JavaNotFoundError(f"{executable} (from {origin}) is Java {major}, which is not supported: {_JAVA_FIX}")
    return JavaInstallation(executable, major, match["version"])


def java_executable() -> Path | None:
    """The Java that Spark's scripts start, whether or not it exists and runs; None if the ``PATH`` has none."""
    home = os.environ.get("JAVA_HOME")
    return Path(home, "bin", "java") if home else _on_path("java")


_JAVA_FIX = (
    f"streamproof needs Java {JAVA_MAJOR_MIN} to {JAVA_MAJOR_MAX}; install it with "
    "`sudo apt-get install openjdk-17-jre-headless` (Debian, Ubuntu) or "
    "`brew install openjdk@17` (macOS), and set JAVA_HOME to it if another Java comes first on the PATH."
)


def _is_in_a_folder() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return False
    return True


def _on_path(name: str) -> Path | None:
    # shutil.which ignores files that are not executable, but such a file has to be reported.
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return next((path for folder in folders if folder and _is_file(path := Path(folder, name))), None)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False  # a folder of the PATH that this user may not read


def default_cache() -> Path:
    """The folder of the jars: ``$STREAMPROOF_JARS`` (set in the image), else ``jars`` in :func:`user_cache`."""
    named = os.environ.get("STREAMPROOF_JARS")
    return Path(named) if named else user_cache() / "jars"


def user_cache() -> Path:
    """The user's cache folder of streamproof: ``$XDG_CACHE_HOME/streamproof``, else ``~/.cache/streamproof``."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification requires relative paths to be ignored.
    root = Path(base) if Path(base).is_absolute() else Path.home() / ".cache"
    return root / "streamproof"


def read_lock(lock: Path) -> tuple[LockedJar, ...]:
    """The jars of a lock file, in its order. Raises :class:`JarLockError` on the first malformed or repeated line."""
    jars: dict[str, LockedJar] = {}
    for number, raw in enumerate(lock.read_text(encoding="utf-8").splitlines(), start=1):
        line = raw.partition("#")[0].strip()
        if not line:
            continue
        match = _LOCK_LINE.fullmatch(line)
        if match is None:
            raise JarLockError(f"{lock}, line {number}, is not `group:artifact:version sha256`: {line!r}.")
        jar = LockedJar(**match.groupdict())
        if jar.coordinates in jars:
            raise JarLockError(f"{lock}, line {number}, names {jar.coordinates} a second time.")
        jars[jar.coordinates] = jar
    return tuple(jars.values())


def _to_stderr(line: str) -> None:
    with suppress(OSError):
        print(line, file=sys.stderr, flush=True)


def resolve(lock: Path, *, cache: Path | None = None, say: Callable[[str], None] = _to_stderr) -> list[Path]:
    """Paths of the jars of ``lock``, in its order, each checked against its sha256. Missing jars are fetched, and
    ``say`` gets a line about that.

    Every start hashes every jar, so that a modified cache is detected (25 MB: some 20 ms). A complete cache may be
    read-only. ``cache`` defaults to :func:`default_cache`.

    Raises a :class:`JarError`, or :class:`JavaNotFoundError` if a jar has to be fetched and there is no Java.
    """
    cache = default_cache() if cache is None else cache
    jars = read_lock(lock)
    missing = [jar for jar in jars if not _is_cached(jar, cache)]
    if missing:
        many = "1 jar" if len(missing) == 1 else f"{len(missing)} jars"
        say(f"downloading {many} to {cache}; later starts need no network")
        _fetch(missing, cache)
    return [cache / jar.relative_path for jar in jars]


def _is_cached(jar: LockedJar, cache: Path) -> bool:
    try:
        return _sha256(cache / jar.relative_path) == jar.sha256
    except FileNotFoundError:
        return False


def _fetch(missing: list[LockedJar], cache: Path) -> None:
    try:
        cache.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(cache)
        work = tempfile.TemporaryDirectory(prefix=_FETCH_PREFIX, dir=cache)
    except OSError as error:
        raise JarError(
            f"{cache / missing[0].relative_path} is missing or is not the jar of the lock file, and the folder cannot "
            f"be written ({error.strerror}): install streamproof or its image again."
        ) from error
    with work as name:
        folder = Path(name)
        output = _run_ivy(missing, folder)
        for jar in missing:
            arrived = folder / "out" / jar.relative_path
            if not arrived.is_file():
                raise JarDownloadError(
                    f"Could not fetch {jar.coordinates}; check the network, or copy the jar to "
                    f"{cache / jar.relative_path}. Ivy said: {output}"
                )
            actual = _sha256(arrived)
            if actual != jar.sha256:
                raise JarChecksumError(
                    f"The fetched {jar.coordinates} has sha256 {actual}, but the lock file requires {jar.sha256}; "
                    "it was discarded; check the mirror or proxy that served it."
                )
        for jar in missing:
            place(folder / "out" / jar.relative_path, cache / jar.relative_path)


_FETCH_PREFIX = ".fetch-"


def _run_ivy(jars: Iterable[LockedJar], folder: Path) -> str:
    """Fetch ``jars`` into ``folder/out`` with Ivy. Returns the last lines of its output, for an error message."""
    dependencies = "".join(
        ivy_dependency(jar.group, jar.artifact, jar.version, '<artifact name={name} type="jar" ext="jar"/>')
        for jar in jars
    )
    return run_ivy(dependencies, folder, types="jar", retrieve="out/[organisation]/[artifact]-[revision].[ext]")


def ivy_dependency(group: str, artifact: str, version: str, wanted: str) -> str:
    """The element of a dependency of which only the artifact ``wanted`` is fetched; ``{name}`` in it is its name."""
    return (
        f"<dependency org={quoteattr(group)} name={quoteattr(artifact)} rev={quoteattr(version)} "
        f'conf="default->default" transitive="false">{wanted.format(name=quoteattr(artifact))}</dependency>'
    )


def run_ivy(dependencies: str, folder: Path, *, types: str, retrieve: str) -> str:
    """Fetch the artifacts of these ``types`` into ``folder``, at the places that the pattern ``retrieve`` names.

    Returns the last lines of Ivy's output, for an error message.
    """
    (folder / "ivy.xml").write_text(
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="streamproof" module="jars"/>'
        f'<configurations><conf name="default"/></configurations><dependencies>{dependencies}</dependencies>'
        "</ivy-module>",
        encoding="utf-8",
    )
    # Without POM files (usepoms) Ivy requests only the jars, in a quarter of the time. The lock file has the versions.
    (folder / "settings.xml").write_text(
        '<ivysettings><settings defaultResolver="public"/><resolvers>'
        '<ibiblio name="public" m2compatible="true" usepoms="false"/></resolvers></ivysettings>',
        encoding="utf-8",
    )
    command: list[str | Path] = [find_java().executable, "-jar", ivy_jar(), "-warn"]
    command += ["-settings", os.environ.get("STREAMPROOF_IVY_SETTINGS") or folder / "settings.xml"]
    command += ["-ivy", folder / "ivy.xml", "-cache", folder / "cache", "-types", types]
    command += ["-retrieve", f"{folder}/{retrieve}"]
    try:
        run = subprocess.run(
            command,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_FETCH_SECONDS_MAX,
        )
    except subprocess.TimeoutExpired:
        return f"no result within {_FETCH_SECONDS_MAX} s."
    lines = [line.strip() for line in run.stdout.decode(errors="replace").splitlines()]
    return " | ".join([line for line in lines if re.search(r"[A-Za-z]", line)][-6:]) or f"exit status {run.returncode}."


def ivy_jar() -> Path:
    """The Ivy jar that PySpark ships. Raises :class:`JarDownloadError` if there is none."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise JarDownloadError("PySpark, whose Ivy fetches the jars, is not installed: run scripts/setup.")
    found = sorted(Path(spec.origin).parent.glob("jars/ivy-*.jar"))
    if not found:
        raise JarDownloadError(f"The PySpark at {spec.origin} ships no Ivy: install the PySpark of requirements.lock.")
    return found[-1]


def place(arrived: Path, path: Path) -> None:
    """Move a file to its final place. Concurrent processes place equal files."""
    # fsync before rename: a crash leaves either no file or a complete one.
    with arrived.open("rb") as stream:
        os.fsync(stream.fileno())
    path.parent.mkdir(parents=True, exist_ok=True)
    arrived.replace(path)


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _remove_abandoned(cache: Path) -> None:
    for folder in cache.glob(f"{_FETCH_PREFIX}*"):
        try:
            abandoned = time.time() - folder.stat().st_mtime > _ABANDONED_AFTER_SECONDS
        except FileNotFoundError:
            continue  # its owner has just removed it
        if abandoned:
            shutil.rmtree(folder, ignore_errors=True)
