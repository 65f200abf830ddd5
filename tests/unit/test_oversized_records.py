"""Reading in parts skips exactly the records that do not fit into memory, and reads every other record once."""

from __future__ import annotations

import json
import random
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from validator.model.frontier import Frontier, Lookup, PartitionId
from validator.model.progress import IngestProgress, TimeRules
from validator.stream import oversized_records
from validator.stream.batch import NewGenerationWanted
from validator.stream.brokers import BrokersUnreachable
from validator.stream.failures import CannotVerify
from validator.stream.oversized_records import FILE, Isolation

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every JVM that ends counts as ended by its memory limit."""
    monkeypatch.setattr(oversized_records, "memory_ended_the_jvm", lambda: True)


PLACES = [PartitionId("a", 0), PartitionId("a", 1), PartitionId("b", 0)]


class Log:
    """A runner of batches that records its commits. Some records of its partitions do not fit into memory."""

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
        self.progress = IngestProgress(TimeRules(0, 0), frontiers=frontiers)
        self.wanted = {(place, at) for place, start in starts.items() for at in range(start, self.ends_of_batch[place])}
        self.read: list[tuple[PartitionId, int]] = []
        self.skipped: list[tuple[PartitionId, int]] = []
        self.killed_after_commit = False
        self.is_ahead = False

    def advance(self, ends: dict[PartitionId, int]) -> None:
        ((place, end),) = ends.items()
        records = [(place, offset) for offset in range(self.progress.frontiers[place].next_offset, end)]
        if len(records) > self.fits or self.too_large & set(records):
            # A third of these failures end the JVM.
            raise ConnectionError if self.chance.random() < 0.3 else RuntimeError("java.lang.OutOfMemoryError: heap")
        self.read += records
        self._commit(place, end)

    def holds_records(self, place: PartitionId, start: int, end: int) -> bool:
        """Every third offset of the last topic holds no record."""
        records = {(place, offset) for offset in range(start, end)}
        if self.too_large & records:
            raise ConnectionError if self.chance.random() < 0.3 else RuntimeError("java.lang.OutOfMemoryError: heap")
        assert all(0 <= offset < self.ends_of_batch[place] for place, offset in records)
        return any(place != PLACES[-1] or offset % 3 for place, offset in records)

    def lookups(self) -> dict[PartitionId, Lookup]:
        return {place: Lookup("id", 0, end, end) for place, end in self.ends_of_batch.items()}

    def skip(self, place: PartitionId, offset: int) -> None:
        self.skipped.append((place, offset))
        self._commit(place, offset + 1)

    def _commit(self, place: PartitionId, end: int) -> None:
        moved = replace(self.progress.frontiers[place], next_offset=end)
        self.progress = replace(self.progress, frontiers={**self.progress.frontiers, place: moved})
        if self.chance.random() < 0.1:
            raise KeyboardInterrupt


def read_on(isolation: Isolation, log: Any) -> BaseException | None:
    """The part-wise reading of one process."""
    return isolation.run(log, threading.Event(), log.lookups())


def _pair(place: PartitionId) -> tuple[str, int]:
    return place.topic, place.partition


def test_the_status_is_looked_at_before_each_part(tmp_path: Path) -> None:
    log: Any = Log(random.Random(3), fits=1000)
    assert Isolation(tmp_path, lambda _: None).begin(log)
    isolation = Isolation(tmp_path, lambda _: None)
    log.too_large, read = set(), log.read
    log.chance = SimpleNamespace(random=lambda: 1.0)
    looked: list[int] = []
    isolation.run(log, threading.Event(), log.lookups(), lambda: looked.append(len(read)))
    assert len(set(looked)) > 4
    assert looked[-1] < len(read)


@pytest.mark.parametrize("seed", range(15))
def test_exactly_the_records_that_do_not_fit_are_skipped(seed: int, tmp_path: Path) -> None:
    """The reading may take many processes. Each one is ended by its JVM, or killed right after a commit."""
    log: Any = Log(random.Random(seed), fits=random.Random(seed).choice([1, 7, 1000]))
    begun = Isolation(tmp_path, lambda _: None).begin(log)
    assert begun == bool(log.wanted) == (tmp_path / FILE).exists()
    outcome: BaseException | None = None
    for _ in range(10_000):
        isolation = Isolation(tmp_path, lambda _: None)
        if not isolation.wanted:
            break
        try:
            outcome = read_on(isolation, log)
        except (ConnectionError, KeyboardInterrupt):
            continue
    assert not (tmp_path / FILE).exists()
    assert outcome is None or isinstance(outcome, NewGenerationWanted)
    assert set(log.skipped) == log.too_large & log.wanted
    assert sorted(log.read + log.skipped) == sorted(log.wanted)


@pytest.mark.parametrize(
    "error", [RuntimeError("java.lang.OutOfMemoryError: heap"), ConnectionError()], ids=["text", "jvm"]
)
def test_a_failure_after_the_records_were_read_ends_the_reading_in_parts(error: Exception, tmp_path: Path) -> None:
    """The cells in memory may already contain the facts of the part. Reading it again would add them twice."""
    log: Any = Log(random.Random(1), fits=1000)
    isolation = Isolation(tmp_path, lambda _: None)
    assert isolation.begin(log)
    calls = []

    def fails(ends: dict[PartitionId, int]) -> None:
        calls.append(ends)
        log.is_ahead = True
        raise error

    log.advance, kept = fails, (tmp_path / "isolation.json").read_bytes()
    if isinstance(error, ConnectionError):
        with pytest.raises(ConnectionError):
            read_on(isolation, log)
    else:
        assert read_on(isolation, log) is error
    assert (len(calls), (tmp_path / "isolation.json").read_bytes()) == (1, kept)
    (tmp_path / "isolation.json").unlink()
    after = Isolation(tmp_path, lambda _: None)
    after.note_jvm_end(log)
    assert not after.wanted


@pytest.mark.parametrize("during", ["advance", "skip"])
@pytest.mark.parametrize("error", [NewGenerationWanted("a topic appeared"), BrokersUnreachable("no answer")], ids=str)
def test_an_ordinary_interruption_ends_the_reading_in_parts_without_ending_the_sidecar(
    error: Exception, during: str, tmp_path: Path
) -> None:
    log: Any = Log(random.Random(3), fits=1000)
    log.chance = SimpleNamespace(random=lambda: 0.9)  # no JVM ends
    isolation = Isolation(tmp_path, lambda _: None)
    assert isolation.begin(log)

    def interrupted(*_: object) -> None:
        raise error

    setattr(log, during, interrupted)
    assert read_on(isolation, log) is error


def test_a_topic_that_was_recreated_is_not_read_by_the_offsets_of_the_old_one(tmp_path: Path) -> None:
    log: Any = Log(random.Random(1), fits=1000)
    assert Isolation(tmp_path, lambda _: None).begin(log)
    renamed = {place: replace(frontier, topic_id="another") for place, frontier in log.progress.frontiers.items()}
    log.progress = replace(log.progress, frontiers=renamed)
    isolation = Isolation(tmp_path, lambda _: None)
    assert isinstance(read_on(isolation, log), NewGenerationWanted)
    assert (log.read, isolation.wanted) == ([], False)


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", '{"spans": [["id", "a"]], "failures": 0}', '{"spans": 1, "failures": 0}']
)
def test_a_damaged_file_is_not_isolated(text: str, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(text)
    assert not Isolation(tmp_path, lambda _: None).wanted


def starts(folder: Path, log: Any, *, most: int) -> list[str]:
    """The message with which each process ends, until nothing is left to read in parts."""
    said: list[str] = []
    while len(said) < most and (isolation := Isolation(folder, lambda _: None)).wanted:
        try:
            said.append(str(read_on(isolation, log)))
        except (ConnectionError, KeyboardInterrupt, CannotVerify) as error:
            said.append(f"{type(error).__name__}: {error}")
    return said


class ShortLog(Log):
    """A log that fails a read for lack of memory if the number of earlier reads is in ``short``."""

    short = range(0)
    reads = 0

    def _check(self) -> None:
        self.reads += 1
        if self.reads - 1 in self.short:
            raise ConnectionError if self.chance.random() < 0.3 else RuntimeError("java.lang.OutOfMemoryError: heap")

    def advance(self, ends: dict[PartitionId, int]) -> None:
        self._check()
        super().advance(ends)

    def holds_records(self, place: PartitionId, start: int, end: int) -> bool:
        self._check()
        return super().holds_records(place, start, end)


def test_no_record_is_skipped_if_none_can_be_read(tmp_path: Path) -> None:
    log: Any = ShortLog(random.Random(3), fits=1000)
    log.short = range(10**9)
    assert Isolation(tmp_path, lambda _: None).begin(log)
    said = starts(tmp_path, log, most=60)
    assert (len(said), log.skipped, log.read) == (60, [], [])
    ended = [one for one in said if one.startswith("CannotVerify")]
    assert len(ended) > 3
    assert all("memory is short" in one and "Nothing was skipped" in one and str(tmp_path) in one for one in ended)


@pytest.mark.parametrize("seed", range(8))
def test_a_temporary_shortage_of_memory_skips_only_records_that_never_fit(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    log: Any = ShortLog(chance, fits=chance.choice([1, 1000]))
    begin = chance.randrange(60)
    log.short = range(begin, begin + chance.randrange(60))
    Isolation(tmp_path, lambda _: None).begin(log)
    assert len(starts(tmp_path, log, most=10_000)) < 10_000
    assert set(log.skipped) == log.too_large & log.wanted
    assert sorted(log.read + log.skipped) == sorted(log.wanted)


def test_a_record_without_any_other_is_not_skipped(tmp_path: Path) -> None:
    """It is unknown whether the record or the lack of memory is the cause."""
    log: Any = a_log(1, too_large={0})
    assert Isolation(tmp_path, lambda _: None).begin(log)
    said = starts(tmp_path, log, most=30)
    assert log.skipped == []
    assert any("no topic has another" in one for one in said)


def test_the_number_of_consecutive_skipped_records_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oversized_records, "_SKIPS_MAX", 5)
    log: Any = a_log(40, too_large={3, *range(10, 17)})
    assert Isolation(tmp_path, lambda _: None).begin(log)
    said = starts(tmp_path, log, most=200)
    assert [offset for _, offset in log.skipped] == [3, *range(10, 15)]
    assert "5 records in a row" in said[-1]
    # With more memory the reading continues from there.
    log.too_large = set()
    starts(tmp_path, log, most=200)
    assert [offset for _, offset in log.read] == [*range(3), *range(4, 10), *range(15, 40)]


@pytest.mark.parametrize(("start", "end", "left"), [(5, 20, 12), (-3, 10**18, 12), (5, 5, 5), (12, 20, 5), (20, 5, 5)])
def test_parts_end_where_the_log_ends(start: int, end: int, left: int, tmp_path: Path) -> None:
    """The log was truncated after the file was written, or the file has offsets that never existed."""
    log: Any = a_log(12, too_large=set(), start=5)
    spans = [["id", "a", 0, start, end], ["id", "a", 7, 0, 9]]
    (tmp_path / FILE).write_text(json.dumps({"spans": spans, "failures": 0}))
    starts(tmp_path, log, most=100)
    assert [offset for _, offset in log.read] == list(range(5, left))
    assert not (tmp_path / FILE).exists()


def a_log(end: int, *, too_large: set[int], start: int = 0) -> Log:
    """One partition that is read from ``start``. The offsets ``too_large`` do not fit."""
    log: Any = Log(random.Random(1), fits=1000)
    place = PLACES[0]
    log.ends_of_batch = {place: end}
    log.too_large = {(place, offset) for offset in too_large}
    log.progress = IngestProgress(
        TimeRules(0, 0), frontiers={place: Frontier("input", *_pair(place), "id", 0, start, 0, end, end, 0)}
    )
    return log
