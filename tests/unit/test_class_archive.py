"""The archive of classes is used only if it is complete, this user's, and made for the same Java, Spark and jars."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from validator.stream import class_archive

pytestmark = pytest.mark.unit


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The jars of an installation whose archive has eight bytes."""
    java = tmp_path / "home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("17")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("STREAMPROOF_JARS", str(tmp_path))
    found = [tmp_path / "a.jar", tmp_path / "b.jar"]
    (tmp_path / f"{class_archive._name(found)}-8.jsa").write_bytes(b"12345678")
    return found


def archive(jars: list[Path]) -> Path:
    return next(jars[0].parent.glob("classes-*.jsa"))


def test_the_archive_of_the_same_installation_is_used(jars: list[Path]) -> None:
    os.utime(archive(jars), (0, 0))
    assert class_archive.java_options(jars) == [f"-XX:SharedArchiveFile={archive(jars)}", "-Xlog:cds*=off"]
    assert class_archive.java_options(jars[::-1]) != []
    assert archive(jars).stat().st_mtime > 0, "a start that uses it keeps it"
    assert class_archive.make(jars), "it is there already"


@pytest.mark.parametrize("change", ["cut off", "others may write", "another Java", "another jar", "no Java"])
def test_another_archive_is_not_used(jars: list[Path], change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if change == "cut off":
        archive(jars).write_bytes(b"1234567")
    elif change == "others may write":
        archive(jars).chmod(0o666)
    elif change == "another Java":
        (jars[0].parent / "home" / "bin" / "java").write_text("a newer 17")
    elif change == "another jar":
        jars = [*jars, jars[0].with_name("c.jar")]
    else:
        monkeypatch.setenv("JAVA_HOME", str(jars[0].parent / "none"))
    assert class_archive.java_options(jars) == []
