"""The status page in a real browser, with a publisher that serves a run over HTTP: fixtures and their classes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.pages import chromium
from tests.pages.chromium import Browser
from tests.pages.story import SECONDS, at, story
from tests.unit.publish_snapshots import clean, config
from validator.model.snapshot import Snapshot
from validator.publish.history import HISTORY_FILE, History
from validator.publish.publisher import Publisher

PAINTED = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"
"""JavaScript that waits until changes are painted."""
SHOWN_WITHIN_SECONDS = 3.0


class Served:
    """A publisher that has already published the story, and can be stopped and restarted on the same port."""

    def __init__(self, state: Path, before: list[Snapshot]) -> None:
        self.state = state
        self.port = 0
        history = History()
        for snapshot in before:
            history = history.add(snapshot)
        state.mkdir()
        (state / HISTORY_FILE).write_text(history.to_json())
        self.start()

    def start(self) -> None:
        settings = config(self.state)
        metrics = settings.metrics.model_copy(update={"port": self.port})
        self.publisher = Publisher(settings.model_copy(update={"metrics": metrics}), self.state)
        self.port = self.publisher.start().port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"


@pytest.fixture(scope="module")
def snapshots() -> list[Snapshot]:
    return list(story())


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    command = chromium.find()
    assert command is not None
    with chromium.browser(command, tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def page(running: Browser) -> Iterator[Browser]:
    running.open("about:blank")
    running.window(1280, 900)
    running.complaints.clear()
    running.requests.clear()
    yield running
    # The event stream of an open page would reach the next test.
    running.open("about:blank")


@pytest.fixture
def served(tmp_path: Path, snapshots: list[Snapshot]) -> Iterator[Served]:
    one = Served(tmp_path / "state", snapshots[:-1])
    yield one
    one.publisher.stop()


def healthy(second: float = SECONDS) -> Snapshot:
    return replace(clean(), taken_us=at(second))
