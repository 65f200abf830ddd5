"""`streamproof doctor` and the Java client on a slow machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from tests.unit import publish_snapshots
from validator.cli import clients
from validator.cli.check_result import CheckResult
from validator.config.model import Config
from validator.stream import jars

pytestmark = pytest.mark.unit

TIMED_OUT = "org.apache.kafka.common.errors.TimeoutException: Failed to get offsets by times in 8000ms"
OTHER = "org.apache.kafka.common.KafkaException: Received an unexpected error"


class FakeJava:
    """A JVM whose client waits ``needs_seconds`` for each of its first requests, and then fails with ``text``."""

    def __init__(self, text: str, *needs_seconds: float) -> None:
        self.text = text
        self.needs = list(needs_seconds)
        self.java: Any = SimpleNamespace(
            util=SimpleNamespace(HashMap=lambda: SimpleNamespace(put=lambda *_: None), ArrayList=Partitions),
            time=SimpleNamespace(Duration=SimpleNamespace(ofMillis=lambda ms: ms)),
        )
        consumer = SimpleNamespace(KafkaConsumer=lambda _: self)
        common = SimpleNamespace(TopicPartition=lambda topic, number: (topic, number))
        clients_ = SimpleNamespace(consumer=consumer)
        self.org = SimpleNamespace(apache=SimpleNamespace(kafka=SimpleNamespace(clients=clients_, common=common)))

    def _answer(self, limit_ms: float) -> None:
        needs = self.needs.pop(0) if self.needs else 0.0
        if needs * 1000 > limit_ms:
            cause = SimpleNamespace(_target_id="o1", toString=lambda: self.text, getCause=lambda: None)
            raise Py4JJavaError("failed", cause)

    def assign(self, partitions: list[Any]) -> None: ...

    def seek(self, partition: Any, offset: int) -> None: ...

    def close(self, limit: int) -> None: ...

    def beginningOffsets(self, partitions: list[Any], limit_ms: int = 8000) -> dict[Any, int]:  # noqa: N802
        self._answer(limit_ms)
        return dict.fromkeys(partitions, 0)

    def endOffsets(self, partitions: list[Any], limit_ms: int = 8000) -> dict[Any, int]:  # noqa: N802
        self._answer(limit_ms)
        return dict.fromkeys(partitions, 1)

    def poll(self, limit_ms: int) -> Any:
        del limit_ms
        return SimpleNamespace(count=lambda: 1)


class Partitions(list[Any]):
    """Java's ArrayList."""

    def add(self, item: Any) -> None:
        self.append(item)


def checked(java: FakeJava, read: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> CheckResult:
    @contextmanager
    def running() -> Iterator[Any]:
        yield java

    monkeypatch.setattr(clients, "running_jvm", running)
    config: Config = publish_snapshots.config(Path("state"))
    return clients.check(config, {"click": (0,), "output": (0,)}, read)


def test_the_first_request_may_take_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new JVM loads the client's classes meanwhile."""
    found = checked(FakeJava(TIMED_OUT, 20.0), (), monkeypatch)
    assert found == CheckResult("ok", "java client", "reads click, output.")


@pytest.mark.parametrize(
    ("read", "text", "status", "words"),
    [
        (("click", "output"), TIMED_OUT, "note", "too slow: no record of click came within 30 s, although librdkafka"),
        (("click",), TIMED_OUT, "problem", "no record of click came within 30 s; check the brokers"),
        ((), TIMED_OUT, "problem", "no record of click came within 30 s; check the brokers"),
        (("click", "output"), OTHER, "problem", "no record of click came within 30 s; check the brokers"),
    ],
)
def test_a_timeout_is_a_note_if_librdkafka_read_the_topics(
    read: tuple[str, ...], text: str, status: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = checked(FakeJava(text, 40.0), read, monkeypatch)
    assert (found.status, found.text.startswith(words)) == (status, True), found


def test_later_topics_have_the_usual_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    found = checked(FakeJava(TIMED_OUT, 20.0, 0.0, 20.0), (), monkeypatch)
    assert found.text.startswith("no record of output came within 8 s; ")


def test_a_jvm_that_does_not_start_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho 'NOTE: Picked up JDK_JAVA_OPTIONS: -Xss4m' >&2\necho 'Error: no room' >&2\n")
    java.chmod(0o755)
    monkeypatch.setattr(clients.jars, "find_java", lambda: SimpleNamespace(executable=java))
    with pytest.raises(jars.PrerequisiteError, match=r"could be started \(Error: no room\)"), clients.running_jvm():
        pass
