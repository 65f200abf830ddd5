"""Reading in parts: whatever records do not fit, exactly these are skipped, and every other one is read once."""

from __future__ import annotations

import random
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from validator.model.books import Books, TimeRules
from validator.model.frontier import Frontier, PartitionId
from validator.stream import isolating
from validator.stream.batch import NewGenerationWanted
from validator.stream.isolating import FILE, Isolation, Span

pytestmark = pytest.mark.unit

PLACES = [PartitionId("a", 0), PartitionId("a", 1), PartitionId("b", 0)]


class Log:
    """What was committed of partitions in which some records do not fit into memory: a runner of batches."""

    def __init__(self, chance: random.Random, fits: int) -> None:
        self.chance = chance
        self.fits = fits
        self.ends_of_batch = {place: chance.randrange(40) for place in PLACES}
        self.too_large = {
            (place, offset)
            for place, end in self.ends_of_batch.items()
            for offset in range(end)
            if chance.random() < 0.05
        }
        starts = {place: chance.randrange(end + 1) for place, end in self.ends_of_batch.items()}
        frontiers = {
            place: Frontier("input", *_pair(place), "id", 0, start, 0, 0, 0, 0) for place, start in starts.items()
        }
        self.books = Books(TimeRules(0, 0), frontiers=frontiers)
        self.wanted = {(place, at) for place, start in starts.items() for at in range(start, self.ends_of_batch[place])}
        self.read: list[tuple[PartitionId, int]] = []
        self.skipped: list[tuple[PartitionId, int]] = []
        self.killed_after_commit = False

    def advance(self, span: Span, ends: dict[PartitionId, int]) -> None:
        assert ends == {span.place: span.end}
        assert self.books.frontiers[span.place].next_offset == span.start
        records = [(span.place, offset) for offset in range(span.start, span.end)]
        if len(records) > self.fits or self.too_large & set(records):
            # One in three ends the JVM.
            raise ConnectionError if self.chance.random() < 0.3 else RuntimeError("java.lang.OutOfMemoryError: heap")
        self.read += records
        self._commit(span.place, span.end)

    def skip(self, place: PartitionId, offset: int) -> None:
        self.skipped.append((place, offset))
        self._commit(place, offset + 1)

    def _commit(self, place: PartitionId, end: int) -> None:
        moved = replace(self.books.frontiers[place], next_offset=end)
        self.books = replace(self.books, frontiers={**self.books.frontiers, place: moved})
        if self.chance.random() < 0.1:
            raise KeyboardInterrupt


def _pair(place: PartitionId) -> tuple[str, int]:
    return place.topic, place.partition


@pytest.mark.parametrize("seed", range(15))
def test_exactly_what_does_not_fit_is_skipped(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over any number of processes, each of them ended by its JVM or killed right after a commit."""
    monkeypatch.setattr(isolating, "_SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(isolating, "memory_ended_the_jvm", lambda: True)
    log: Any = Log(random.Random(seed), fits=random.Random(seed).choice([1, 7, 1000]))
    begun = Isolation(tmp_path, lambda _: None).begin(log)
    assert begun == bool(log.wanted) == (tmp_path / FILE).exists()
    outcome: BaseException | None = None
    for _ in range(10_000):
        isolation = Isolation(tmp_path, lambda _: None)
        if not isolation.wanted:
            break
        try:
            outcome = isolation.run(log, lambda span: span, threading.Event())  # type: ignore[arg-type,return-value]
        except (ConnectionError, KeyboardInterrupt):
            continue
    assert not (tmp_path / FILE).exists()
    assert outcome is None or isinstance(outcome, NewGenerationWanted)
    assert set(log.skipped) == log.too_large & log.wanted
    assert sorted(log.read + log.skipped) == sorted(log.wanted)


def test_a_topic_that_was_recreated_is_not_read_by_the_offsets_of_the_old_one(tmp_path: Path) -> None:
    log: Any = Log(random.Random(1), fits=1000)
    assert Isolation(tmp_path, lambda _: None).begin(log)
    renamed = {place: replace(frontier, topic_id="another") for place, frontier in log.books.frontiers.items()}
    log.books = replace(log.books, frontiers=renamed)
    isolation = Isolation(tmp_path, lambda _: None)
    assert isinstance(isolation.run(log, lambda span: span, threading.Event()), NewGenerationWanted)  # type: ignore[arg-type,return-value]
    assert (log.read, isolation.wanted) == ([], False)


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", '{"spans": [["id", "a"]], "failures": 0}', '{"spans": 1, "failures": 0}']
)
def test_a_damaged_file_is_no_part(text: str, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(text)
    assert not Isolation(tmp_path, lambda _: None).wanted
