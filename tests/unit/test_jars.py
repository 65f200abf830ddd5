"""Jars come only from the lock file: downloaded once, verified at each use, never left incomplete."""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from validator.stream import jars
from validator.stream.jars import (
    JarChecksumError,
    JarDownloadError,
    JarError,
    JarLockError,
    JavaNotFoundError,
    default_cache,
    find_java,
    read_lock,
    resolve,
    user_cache,
)

ROOT = Path(__file__).parents[2]

# A Java that prints its version. Run as Ivy, it copies files from the folder `repository` beside `bin`.
FAKE_JAVA = """#!{python}
import pathlib, shutil, sys, xml.etree.ElementTree as tree
here, arguments = pathlib.Path(__file__).parents[1], sys.argv[1:]
if arguments == ["-version"]:
    print('openjdk version "{version}"', file=sys.stderr)
    sys.exit()
with (here / "calls").open("a") as calls: calls.write("fetch\\n")
pattern = arguments[arguments.index("-retrieve") + 1]
for wanted in tree.parse(arguments[arguments.index("-ivy") + 1]).iter("dependency"):
    name = pattern.replace("[organisation]", wanted.get("org")).replace("[artifact]", wanted.get("name"))
    target = pathlib.Path(name.replace("[revision]", wanted.get("rev")).replace("[ext]", "jar"))
    source = here / "repository" / target.name
    if source.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    else:
        print("unresolved dependency:", target.name)
"""


@dataclass(frozen=True)
class World:
    """A machine with a Java, a reachable repository, a lock file and an empty cache."""

    home: Path

    @property
    def lock(self) -> Path:
        return self.home / "jars.lock"

    @property
    def cache(self) -> Path:
        return self.home / "cache"

    def publish(self, **contents: bytes) -> None:
        (self.home / "repository").mkdir(exist_ok=True)
        for name, content in contents.items():
            (self.home / "repository" / f"{name}-1.0.jar").write_bytes(content)

    def lock_to(self, **contents: bytes) -> None:
        lines = [f"org.{name}:{name}:1.0 {hashlib.sha256(content).hexdigest()}" for name, content in contents.items()]
        self.lock.write_text("# what is needed\n\n" + "\n".join(lines) + "\n")

    def resolve(self) -> list[bytes]:
        return [path.read_bytes() for path in resolve(self.lock, cache=self.cache)]

    def fetches(self) -> int:
        calls = self.home / "calls"
        return calls.read_text().count("fetch") if calls.exists() else 0

    def cached_jars(self) -> list[str]:
        return sorted(path.name for path in self.cache.rglob("*.jar"))


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    def install(version: str) -> Path:
        executable = tmp_path / "bin" / "java"
        executable.parent.mkdir(exist_ok=True)
        executable.write_text(FAKE_JAVA.replace("{python}", sys.executable).replace("{version}", version))
        executable.chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        return executable

    return install


@pytest.fixture
def world(tmp_path: Path, java: Callable[[str], Path]) -> World:
    java("17.0.15")
    return World(tmp_path)


def test_missing_jars_are_fetched_once_and_in_the_order_of_the_lock(world: World) -> None:
    world.publish(b=b"bb", a=b"aa")
    world.lock_to(b=b"bb", a=b"aa")
    assert world.resolve() == [b"bb", b"aa"]
    assert world.resolve() == [b"bb", b"aa"]
    assert world.fetches() == 1
    assert not list(world.cache.glob(".*")), "nothing of the fetch is left"


def test_only_missing_jars_are_fetched(world: World) -> None:
    world.publish(a=b"aa")
    world.lock_to(a=b"aa")
    world.resolve()
    (world.home / "repository" / "a-1.0.jar").unlink()
    world.publish(b=b"bb")
    world.lock_to(a=b"aa", b=b"bb")
    assert world.resolve() == [b"aa", b"bb"]


def test_a_jar_that_differs_from_the_lock_is_refused_and_not_cached(world: World) -> None:
    world.publish(a=b"aa", b="évil".encode())
    world.lock_to(a=b"aa", b=b"good")
    with pytest.raises(JarChecksumError, match=r"org\.b:b:1\.0 has sha256 .* discarded"):
        world.resolve()
    assert world.cached_jars() == []
    assert not list(world.cache.glob(".*"))


def test_an_unavailable_jar_is_reported_with_the_message_of_ivy(world: World) -> None:
    world.publish(a=b"aa")
    world.lock_to(a=b"aa", b=b"bb")
    with pytest.raises(JarDownloadError, match=r"org\.b:b:1\.0.*unresolved dependency: b-1\.0\.jar"):
        world.resolve()
    assert world.cached_jars() == []


def test_a_jar_that_was_changed_is_fetched_again(world: World) -> None:
    world.publish(a=b"aa")
    world.lock_to(a=b"aa")
    [path] = resolve(world.lock, cache=world.cache)
    state = path.stat()
    path.write_bytes(b"ab")
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert world.resolve() == [b"aa"], "also one of the same size and time"
    assert world.fetches() == 2


def test_a_folder_that_cannot_be_written_serves_the_locked_jars_and_no_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.publish(a=b"aa")
    world.lock_to(a=b"aa")
    [path] = resolve(world.lock, cache=world.cache)

    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(jars.tempfile, "TemporaryDirectory", refused)
    assert world.resolve() == [b"aa"]
    path.write_bytes(b"ab")
    with pytest.raises(JarError, match=r"a-1\.0\.jar is missing .*Read-only"):
        world.resolve()


def test_a_jar_that_was_copied_in_is_not_fetched(world: World) -> None:
    world.lock_to(a=b"aa")
    by_hand = world.cache / "org.a" / "a-1.0.jar"
    by_hand.parent.mkdir(parents=True)
    by_hand.write_bytes(b"aa")
    assert world.resolve() == [b"aa"]
    assert world.fetches() == 0


def test_two_processes_may_fetch_at_once(world: World) -> None:
    world.publish(a=b"aa", b=b"bb")
    world.lock_to(a=b"aa", b=b"bb")
    program = "import sys, pathlib as p; from validator.stream.jars import resolve\n"
    program += "print([j.read_bytes() for j in resolve(p.Path(sys.argv[1]), cache=p.Path(sys.argv[2]))])"
    command = [sys.executable, "-c", program, world.lock, world.cache]
    pair = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate(timeout=60)[0].strip() for process in pair] == ["[b'aa', b'bb']"] * 2
    assert [process.returncode for process in pair] == [0, 0]


def test_folders_of_killed_fetches_are_removed_after_a_while(world: World) -> None:
    world.publish(a=b"aa")
    world.lock_to(a=b"aa")
    for name, age_seconds in ((".fetch-old", 7200), (".fetch-now", 0)):
        folder = world.cache / name
        folder.mkdir(parents=True)
        (folder / "half.jar").touch()
        os.utime(folder, (time.time() - age_seconds,) * 2)
    world.resolve()
    assert [path.name for path in world.cache.glob(".fetch-*")] == [".fetch-now"]


def test_a_full_cache_costs_less_than_100_ms(world: World) -> None:
    contents = {f"jar{number}": b"x" * (1 << 20) for number in range(11)}
    world.publish(**contents)
    world.lock_to(**contents)
    resolve(world.lock, cache=world.cache)

    def seconds() -> float:
        started = time.process_time()
        resolve(world.lock, cache=world.cache)
        return time.process_time() - started

    assert min(seconds() for _ in range(5)) < 0.1


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("org.a:a 00", r"line 1, is not `group:artifact:version sha256`: 'org\.a:a 00'"),
        ("org.a:a:1.0 " + "0" * 63, "line 1, is not"),
        ("../evil:a:1.0 " + "0" * 64, "line 1, is not"),
        (f"org.a:a:1.0 {'0' * 64}\norg.a:a:1.0 {'1' * 64}", r"line 2, names org\.a:a:1\.0 "),
    ],
)
def test_a_malformed_lock_is_refused(tmp_path: Path, line: str, complaint: str) -> None:
    lock = tmp_path / "jars.lock"
    lock.write_text(line)
    with pytest.raises(JarLockError, match=complaint):
        read_lock(lock)


@pytest.mark.parametrize("lock", ["validator/stream/jars.lock", "testbed/jars.lock"])
def test_the_committed_locks_are_well_formed(lock: str) -> None:
    assert len(read_lock(ROOT / lock)) > 5


@pytest.mark.parametrize(("version", "major"), [("17.0.15", 17), ("19", 19), ("21.0.7-ea", 21)])
def test_java_versions_that_spark_supports_are_accepted(java: Callable[[str], Path], version: str, major: int) -> None:
    executable = java(version)
    found = find_java()
    assert (found.executable, found.major, found.version) == (executable, major, version)


@pytest.mark.parametrize(("version", "major"), [("1.8.0_402", 8), ("11.0.2", 11), ("25", 25)])
def test_other_java_versions_are_refused_with_the_fix(java: Callable[[str], Path], version: str, major: int) -> None:
    java(version)
    with pytest.raises(JavaNotFoundError, match=rf"is Java {major}, .*17 to 21.*apt-get install.*brew install"):
        find_java()


def test_a_folder_of_the_path_that_cannot_be_looked_at_is_left_out(
    java: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    executable = java("17.0.15")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    # Root may look at every folder, but not at a name that is too long.
    monkeypatch.setenv("PATH", os.pathsep.join(["/" + "x" * 300, str(executable.parent)]))
    assert find_java().executable == executable


def test_no_java_or_one_that_does_not_start_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaNotFoundError, match=r"No Java .* the PATH"):
        find_java()
    (tmp_path / "java").write_bytes(b"\x7fELF of another machine")
    (tmp_path / "java").chmod(0o755)
    with pytest.raises(JavaNotFoundError, match="did not start"):
        find_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(JavaNotFoundError, match=r"No Java .* JAVA_HOME=.*gone"):
        find_java()


def test_in_a_deleted_folder_the_error_does_not_ask_to_install_java(
    tmp_path: Path, java: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    java("17.0.15").write_text("#!/bin/sh\necho Could not determine current working directory.; exit 1\n")
    with pytest.raises(JavaNotFoundError, match=r"prints no version.* install it"):
        find_java()
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(JavaNotFoundError, match=r"directory was deleted: cd "):
        find_java()


def test_the_cache_belongs_to_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    monkeypatch.delenv("STREAMPROOF_JARS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    assert default_cache() == Path("/home/ann/.cache/streamproof/jars")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert default_cache() == Path("/caches/streamproof/jars")
    monkeypatch.setenv("STREAMPROOF_JARS", "/opt/streamproof/jars")
    assert default_cache() == Path("/opt/streamproof/jars")
    assert user_cache() == Path("/caches/streamproof"), "what is made at run time goes to a folder that can be written"


def test_without_pyspark_the_error_says_what_to_run(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.lock_to(a=b"aa")
    monkeypatch.setattr(jars.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(JarDownloadError, match=r"PySpark, .* run scripts/setup"):
        world.resolve()
