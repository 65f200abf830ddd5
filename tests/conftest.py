"""Shared by all tests: the marker of their folder, one broker for the whole session, unique topic names."""

from __future__ import annotations

import itertools
import os
import re
import signal
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:
    from testbed.broker import EmbeddedBroker

_TESTS = Path(__file__).parent

# A test's JVM lives for seconds: the second compiler costs more CPU time than it saves (57 CPU-s with it, 37 without,
# for one short sidecar run), and parallel collectors' threads stand in each other's way. Production keeps the defaults.
# With one compiler, the JVM reserves only 48 MB for code. A session of Spark fills them, and the rest is interpreted.
os.environ.setdefault(
    "JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC -Xss4m"
)

# No deadline, because the load of a shared machine must not fail an example. The examples are the same in every run, so
# that a failure is reproducible; `--hypothesis-profile=hunt` draws others.
hypothesis.settings.register_profile("same", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.register_profile("hunt", deadline=None, print_blob=True)
hypothesis.settings.load_profile("same")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test the marker of its folder: ``tests/crash/...`` is marked ``crash``."""
    for item in items:
        if item.path.is_relative_to(_TESTS):
            folder, *rest = item.path.relative_to(_TESTS).parts
            if rest:
                item.add_marker(folder)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """One running Kafka broker for the whole session. Tests that stop or slow a broker start their own."""
    from testbed.broker import EmbeddedBroker  # imported here, so that tests without Kafka do not load its client

    with EmbeddedBroker(folder=tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(scope="session")
def hears_hangups() -> Iterator[None]:
    """Started processes react to SIGHUP as in a terminal, even if the tests run under nohup, which ignores it."""
    before = signal.signal(
        signal.SIGHUP, lambda *_: None
    )  # unlike SIG_IGN, a handler is not inherited by a program that is started
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def topic_names(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Topic names that no other test uses: ``topic_names("click")`` is another one at each call."""
    test = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name)[:60].strip("-")
    run = uuid.uuid4().hex[:8]
    numbers = itertools.count(1)
    return lambda purpose: f"{test}-{run}-{next(numbers)}-{purpose}"
