"""Java sources are compiled once per source and lock. A Java that cannot compile is reported in one sentence."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest

from testbed.engines.flink import FlinkEngine
from testbed.engines.flink_jars import WHEEL_LOCK, flink_jars
from testbed.engines.java_build import CompileError, JavacNotFoundError, find_javac, job_jar
from testbed.engines.kafka_streams import KafkaStreamsEngine
from testbed.engines.registry import REGISTRY
from validator.stream.jars import JarDownloadError, read_lock

JAVA = """#!{python}
import sys
print('openjdk version "17.0.1"', file=sys.stderr)
"""
# Records its calls, and compiles a source unless it contains "broken".
JAVAC = """#!{python}
import pathlib, sys
here, arguments = pathlib.Path(__file__).parents[1], sys.argv[1:]
with (here / "calls").open("a") as calls: calls.write("compile\\n")
source, folder = pathlib.Path(arguments[-1]), pathlib.Path(arguments[arguments.index("-d") + 1])
if "broken" in source.read_text():
    sys.exit("Job.java:1: error: broken")
folder.mkdir(parents=True)
(folder / "Job.class").write_bytes(b"class of " + source.read_bytes())
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Java home without a compiler, and a PATH without one."""
    executable(tmp_path / "jdk" / "bin" / "java", JAVA)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    (tmp_path / "Job.java").write_text("class Job {}")
    (tmp_path / "job.lock").write_text("# no jars\n")
    return tmp_path


def executable(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.replace("{python}", sys.executable))
    path.chmod(0o755)


def build(home: Path) -> Path:
    return job_jar([home / "Job.java"], home / "job.lock", [], cache=home / "cache")


def compilations(home: Path) -> int:
    return len((home / "jdk" / "calls").read_text().splitlines())


def test_a_java_without_compiler_is_one_sentence_that_names_the_package(home: Path) -> None:
    with pytest.raises(JavacNotFoundError, match=r"/bin/java has no compiler .*openjdk-17-jdk-headless"):
        find_javac()


def test_the_compiler_beside_the_java_in_use_is_taken(home: Path) -> None:
    executable(home / "jdk" / "bin" / "javac", JAVAC)
    assert find_javac() == home / "jdk" / "bin" / "javac"


def test_a_source_is_compiled_once_and_again_when_it_or_its_lock_changes(home: Path) -> None:
    executable(home / "jdk" / "bin" / "javac", JAVAC)
    first = build(home)
    assert build(home) == first
    assert compilations(home) == 1
    with zipfile.ZipFile(first) as jar:
        assert {name: jar.read(name) for name in jar.namelist()} == {"Job.class": b"class of class Job {}"}
    (home / "job.lock").write_text("# another\n")
    second = build(home)
    (home / "Job.java").write_text("class Job { int other; }")
    assert len({first, second, build(home)}) == 3
    assert compilations(home) == 3


def test_a_failed_compilation_leaves_no_file(home: Path) -> None:
    executable(home / "jdk" / "bin" / "javac", JAVAC)
    (home / "Job.java").write_text("broken")
    with pytest.raises(CompileError, match=r"Job\.java:\nJob\.java:1: error: broken"):
        build(home)
    assert list((home / "cache").iterdir()) == []


@pytest.mark.parametrize("engine", [KafkaStreamsEngine, FlinkEngine])
def test_locks_name_the_engine_and_its_sources_exist(engine: type[KafkaStreamsEngine] | type[FlinkEngine]) -> None:
    assert all(source.is_file() for source in engine.sources)
    assert engine.name in REGISTRY
    artifacts = {jar.artifact: jar.version for jar in read_lock(engine.lock)}
    expected = {"kafka_streams": ("kafka-streams", "4.1.0"), "flink": ("flink-sql-connector-kafka", "5.0.0-2.2")}
    artifact, version = expected[engine.name]
    assert artifacts[artifact] == version


def test_flinks_wheel_is_one_pinned_requirement_with_its_hash() -> None:
    lines = [line for line in WHEEL_LOCK.read_text().splitlines() if not line.startswith("#")]
    assert len(lines) == 1
    requirement, _, digest = lines[0].partition(" --hash=sha256:")
    assert requirement == "apache-flink-libraries==2.2.1"
    assert len(bytes.fromhex(digest)) == 32


def test_an_unavailable_wheel_is_one_sentence_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable(tmp_path / "python", '#!{python}\nimport sys\nsys.exit("no such index")\n')
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(JarDownloadError, match=r"flink-wheel.lock .*: no such index$"):
        flink_jars(cache=tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []
