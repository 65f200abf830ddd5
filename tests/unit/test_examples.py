"""The search for a record that does not decode: one that a busy host ends is repeated."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from validator.codecs.one_record import Undecodable
from validator.config.examples import EXAMPLES
from validator.config.load import loads
from validator.core.doubts import TopicInDoubt
from validator.model.frontier import PartitionId
from validator.stream import examples
from validator.stream.bounded import Ended
from validator.stream.doubt_sentences import Example
from validator.stream.examples import Examples

PROGRESS: Any = None
PLACE = PartitionId("clicks", 0)
WHY = (Undecodable("id", "id", "is absent"),)
ANSWER = Example(0, 7, WHY)


@pytest.fixture
def found() -> list[Example]:
    """The examples, in order."""
    return []


@pytest.fixture
def limits() -> list[float]:
    """The limit of each attempt, in seconds."""
    return []


@pytest.fixture
def looked(
    found: list[Example], limits: list[float], timeouts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Examples:
    """A search whose first ``timeouts`` attempts run out of time."""

    def searched(seconds: float, *_: object) -> Iterator[tuple[Undecodable, ...]]:
        limits.append(seconds)
        if len(limits) <= timeouts:
            raise Ended(-signal.SIGALRM)
        yield WHY

    monkeypatch.setattr(examples, "bounded", searched)
    monkeypatch.setattr(examples, "topics_in_doubt", lambda _: [TopicInDoubt("input", "clicks", 3, 3)])
    config = loads(EXAMPLES["clickstream"], tmp_path, environment={})
    return Examples(config, found=lambda _, example: found.append(example))


def look(looked: Examples) -> None:
    """One batch, and the end of the attempt that it starts."""
    assert looked.look(PROGRESS, {PLACE: 7}) == {"clicks"}
    for thread in threading.enumerate():
        if thread.name == "streamproof-example-clicks":
            thread.join()


@pytest.mark.parametrize("timeouts", [1])
def test_a_search_that_ran_out_of_time_is_repeated_with_the_next_batch(
    looked: Examples, found: list[Example], limits: list[float]
) -> None:
    look(looked)
    assert found[-1] == Example(0, 7)
    look(looked)
    assert found[-1] == ANSWER
    look(looked)
    assert limits == [10, 20]


@pytest.mark.parametrize("timeouts", [2])
def test_the_end_of_a_run_waits_for_the_repeated_search(looked: Examples, found: list[Example]) -> None:
    looked.look(PROGRESS, {PLACE: 7})
    looked.wait(threading.Event())
    assert found[-1] == ANSWER


@pytest.mark.parametrize("timeouts", [9])
def test_after_the_last_attempt_the_example_says_that_it_was_not_read_in_time(
    looked: Examples, found: list[Example], limits: list[float]
) -> None:
    looked.look(PROGRESS, {PLACE: 7})
    looked.wait(threading.Event())
    assert found[-1] == Example(0, 7, unread="could not be read in time")
    look(looked)
    assert limits == [10, 20, 40]


@pytest.mark.parametrize("timeouts", [9])
def test_a_stopped_run_does_not_repeat_a_search(looked: Examples, limits: list[float]) -> None:
    look(looked)
    stop = threading.Event()
    stop.set()
    looked.wait(stop)
    assert limits == [10]
