"""A batch that does not fit into memory is read in ever smaller parts, down to the one record that does not fit.

That record is skipped: it is counted with its position, and the verdict is unknown. It is skipped only where another
record can be read after each of its failures: where none can, memory is short for another reason, and the run ends.
What is still to be read this way is kept in a file of the state, since a record may end the JVM, and the process with
it. The file proves nothing and decides nothing that was committed: without it, the next failure begins anew
(docs/decisions/0098).
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

from py4j.protocol import Py4JError
from pyspark import SparkContext

from validator.model.frontier import Lookup, PartitionId
from validator.publish.atomic import replace_file
from validator.stream.batch import BatchRunner, NewGenerationWanted
from validator.stream.failures import CannotVerify, text_of

FILE: Final = "isolation.json"
_PARTS: Final = 4
"""A part that does not fit is read in so many smaller ones."""
_FAILURES: Final = 2
"""A record is skipped when reading it alone has failed so often."""
_SKIPS_MOST: Final = 100
"""So many records are skipped in a row, with no part read in between."""
_REFUSALS_MOST: Final = 4
"""Where so many other records cannot be read either, memory is short for another reason than the record."""
_NEIGHBOURS: Final = 3
"""Offsets before a place that are tried: of a transaction the last one is its marker, which is no record."""
_EXHAUSTED: Final = (
    "OutOfMemoryError",
    "OutOfDirectMemoryError",
    "UNABLE_TO_ACQUIRE_MEMORY",
    "MemoryError",
    "ArrowCapacityError",
    "java.lang.StackOverflowError",
    "java.lang.NegativeArraySizeException",
    "Cannot grow BufferHolder",
    "OutOfMemoryException",
    "OversizedAllocationException",
    "Python worker exited unexpectedly",
)
_ENDED_BY_MEMORY: Final = (52, 3, -9, 137)
"""Exit statuses of a JVM: Spark's own and Java's after an OutOfMemoryError, and that of a process which the kernel
killed."""
_DEATH_SECONDS: Final = 5.0


class Span(NamedTuple):
    """Offsets of one partition of the topic with this id, the ``end`` excluded."""

    topic_id: str
    topic: str
    partition: int
    start: int
    end: int

    @property
    def place(self) -> PartitionId:
        """Its partition."""
        return PartitionId(self.topic, self.partition)


@dataclass(frozen=True)
class _Standing:
    """What is known of the first part, where it is a single record.

    ``failures``: how often reading it failed. ``controls``: after how many of these another record was read since.
    ``asked``: how many other records were tried since the last failure, ``refused``: how many of them failed.
    ``skipped``: records that were skipped in a row before it.
    """

    failures: int = 0
    controls: int = 0
    asked: int = 0
    refused: int = 0
    skipped: int = 0

    def failed(self) -> _Standing:
        """Reading the record failed once more."""
        return replace(self, failures=self.failures + 1, asked=0, refused=0)

    def anew(self) -> _Standing:
        """That of a part that was not tried yet."""
        return _Standing(skipped=self.skipped)


def is_exhausted(error: BaseException) -> bool:
    """Whether memory ended a batch: of the JVM, of its stack, or of a Python worker."""
    text = text_of(error)
    return any(mark in text for mark in _EXHAUSTED)


def memory_ended_the_jvm() -> bool:
    """Whether Spark's JVM has ended, and by its memory as far as its exit status says."""
    gateway = SparkContext._gateway
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    try:
        return process is not None and process.wait(_DEATH_SECONDS) in _ENDED_BY_MEMORY
    except subprocess.TimeoutExpired:
        return False


class Isolation:
    """What of a state's topics is read part by part, the first part first."""

    def __init__(self, state: Path, say: Callable[[str], None]) -> None:
        self._path = state / FILE
        self._say = say
        self._spans, self._standing = _read(self._path)
        self.skipped = 0
        """Records that the last `run` skipped."""

    @property
    def wanted(self) -> bool:
        """Whether anything is to be read part by part."""
        return bool(self._spans)

    def begin(self, runner: BatchRunner) -> bool:
        """Memory ended the batch under way in ``runner``: read it in parts. False where it had nothing to read."""
        spans: list[Span] = []
        for place, end in sorted(runner.ends_of_batch.items()):
            frontier = runner.books.frontiers.get(place)
            if frontier is not None and frontier.next_offset < end:
                spans += _parts(Span(frontier.topic_id, place.topic, place.partition, frontier.next_offset, end))
        self._keep(spans, _Standing())
        return bool(spans)

    def run(
        self,
        runner: BatchRunner,
        stop: threading.Event,
        lookups: Mapping[PartitionId, Lookup],
    ) -> BaseException | None:
        """Commit part after part with ``runner``. Returns what ends it: a `NewGenerationWanted` where all parts are
        committed, None where ``stop`` was set.

        ``lookups``: how far the logs reach now; what is not there any more is left out. Raises `CannotVerify` where
        memory is short for another reason than one record, which is not skipped then.
        """
        self.skipped = 0
        while self._spans and not stop.is_set():
            span = self._current(runner, lookups)
            if span is None:
                self._keep(self._spans[1:], self._standing.anew())
                continue
            standing = self._standing
            control: Span | None = None
            if standing.controls < standing.failures:
                control = self._control(runner, span, lookups)
            elif standing.failures >= _FAILURES:
                self._skip(runner, span)
                continue
            try:
                if control is not None:
                    is_read = runner.holds_records(control.place, control.start, control.end)
                    passed = replace(standing, controls=standing.failures) if is_read else standing
                    self._keep(self._spans, replace(passed, asked=standing.asked + 1))
                    continue
                runner.advance({span.place: span.end})
            except NewGenerationWanted as wanted:
                return wanted
            except Exception as error:
                gone = isinstance(error, Py4JError | ConnectionError) and not stop.is_set() and memory_ended_the_jvm()
                if not gone and not is_exhausted(error):
                    return error
                if control is None:
                    self._split_or_count(span)
                else:
                    refused = replace(standing, asked=standing.asked + 1, refused=standing.refused + 1)
                    self._keep(self._spans, refused)
                if gone:
                    raise
            else:
                self._keep(self._spans[1:], _Standing())
        return None if self._spans else NewGenerationWanted("every part was read")

    def note_death(self, runner: BatchRunner) -> None:
        """The JVM has ended in a batch of ``runner``; where its memory ended it, the next process reads that batch in
        parts."""
        if not self._spans and memory_ended_the_jvm() and self.begin(runner):
            self._say("a batch does not fit into memory: the next start reads its records in parts")

    def _current(self, runner: BatchRunner, lookups: Mapping[PartitionId, Lookup]) -> Span | None:
        """What is not committed yet of the first part; None where nothing of it is left, or the topic is another."""
        span = self._spans[0]
        frontier, lookup = runner.books.frontiers.get(span.place), lookups.get(span.place)
        if frontier is None or lookup is None or not frontier.topic_id == lookup.topic_id == span.topic_id:
            return None
        # A log that was cut back ends earlier.
        end = min(span.end, _end(lookup))
        if not max(span.start, lookup.log_start_offset) <= frontier.next_offset < end:
            return None
        return span._replace(start=frontier.next_offset, end=end)

    def _control(self, runner: BatchRunner, span: Span, lookups: Mapping[PartitionId, Lookup]) -> Span:
        """The next other record to read, where that of ``span`` was not read. Raises `CannotVerify` where there is no
        further one, or enough were not read either."""
        standing = self._standing
        others = list(_others(runner, span, lookups)) if standing.refused < _REFUSALS_MOST else []
        if standing.asked < len(others):
            return others[standing.asked]
        # The next start tries all of it again.
        self._keep(self._spans, standing.anew())
        why = (
            f"{standing.refused} other records could not be read either"
            if standing.refused
            else "no topic has another record that would show that memory is not short"
        )
        raise CannotVerify(
            f"memory is short: {_named(span)} does not fit into it, and {why}. Nothing was skipped: raise "
            "limits.worker_bytes, or give the host more memory, and start the sidecar again, it goes "
            f"on from here ({self._path})"
        )

    def _skip(self, runner: BatchRunner, span: Span) -> None:
        standing = self._standing
        if standing.skipped >= _SKIPS_MOST:
            self._keep(self._spans, standing.anew())
            raise CannotVerify(
                f"{_SKIPS_MOST} records in a row did not fit into the memory of a worker and were skipped, and "
                f"{_named(span)} does not fit either: raise limits.worker_bytes; to skip as many again, remove "
                f"{self._path}"
            )
        self._say(
            f"{_named(span)} does not fit into the memory of a worker (limits.worker_bytes): it is skipped, and the "
            "verdict is unknown"
        )
        # Counted first: one that is committed and not counted would not be in the row.
        self._keep(self._spans, replace(standing, skipped=standing.skipped + 1))
        runner.skip(span.place, span.start)
        self.skipped += 1
        self._keep(self._spans[1:], self._standing.anew())

    def _split_or_count(self, span: Span) -> None:
        """A part was not read: in smaller parts, then; or one more failure of its only record."""
        if span.end - span.start > 1:
            self._keep([*_parts(span), *self._spans[1:]], self._standing.anew())
        else:
            self._keep([span, *self._spans[1:]], self._standing.failed())

    def _keep(self, spans: list[Span], standing: _Standing) -> None:
        self._spans, self._standing = spans, standing
        if spans:
            replace_file(self._path, json.dumps({"spans": spans, **asdict(standing)}) + "\n")
        else:
            self._path.unlink(missing_ok=True)


def _end(lookup: Lookup) -> int:
    """Where reading ends now: an open transaction hides what follows its first record."""
    return min(lookup.high_watermark, lookup.last_stable_offset)


def _named(span: Span) -> str:
    return f"the record at offset {span.start} of {span.topic}-{span.partition}"


def _others(runner: BatchRunner, span: Span, lookups: Mapping[PartitionId, Lookup]) -> Iterator[Span]:
    """Single offsets that are not that of ``span``: what was read before it in its partition and in the others, then
    the newest of each, then the first."""
    frontiers = {
        place: frontier
        for place, frontier in sorted(runner.books.frontiers.items(), key=lambda item: item[0] != span.place)
        if place in lookups and lookups[place].topic_id == frontier.topic_id
    }
    nothing = {p: Span(frontier.topic_id, p.topic, p.partition, 0, 0) for p, frontier in frontiers.items()}

    def before(offset_of: Callable[[PartitionId], int]) -> Iterable[tuple[PartitionId, int]]:
        return ((place, offset_of(place) - back) for place in frontiers for back in range(1, _NEIGHBOURS + 1))

    tried = {(span.place, span.start)}
    for place, offset in chain(
        before(lambda place: frontiers[place].next_offset),
        before(lambda place: _end(lookups[place])),
        ((place, lookups[place].log_start_offset) for place in frontiers),
    ):
        lookup = lookups[place]
        if (place, offset) not in tried and max(0, lookup.log_start_offset) <= offset < _end(lookup):
            tried.add((place, offset))
            yield nothing[place]._replace(start=offset, end=offset + 1)


def _parts(span: Span) -> list[Span]:
    step = -(-(span.end - span.start) // _PARTS)
    return [span._replace(start=start, end=min(span.end, start + step)) for start in range(span.start, span.end, step)]


def _read(path: Path) -> tuple[list[Span], _Standing]:
    """What the process before left to do; nothing where the file is absent or damaged."""
    try:
        kept = json.loads(path.read_text())
        spans = [Span(str(topic_id), str(topic), *map(int, numbers)) for topic_id, topic, *numbers in kept["spans"]]
        return spans, _Standing(**{name: int(kept.get(name, 0)) for name in asdict(_Standing())})
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return [], _Standing()
