"""A batch that does not fit into memory is read in ever smaller parts, down to the one record that does not fit.

That record is skipped: it is counted with its position, and the verdict is unknown. What is still to be read this way
is kept in a file of the state, since a record may end the JVM, and the process with it. The file proves nothing and
decides nothing that was committed: without it, the next failure begins anew (docs/decisions/0098).
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import DataFrame

from validator.model.frontier import PartitionId
from validator.publish.atomic import replace_file
from validator.stream.batch import BatchRunner, NewGenerationWanted
from validator.stream.failures import text_of

FILE: Final = "isolation.json"
_PARTS: Final = 4
"""A part that does not fit is read in so many smaller ones."""
_FAILURES: Final = 2
"""A record is skipped when reading it alone has failed so often."""
_SETTLE_SECONDS: Final = 4.0
"""After so long, Spark has let go of the records that its Kafka client had fetched for a read that failed
(`validator.stream.session`)."""
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
        self._spans, self._failures = _read(self._path)
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
        self._keep(spans, 0)
        return bool(spans)

    def run(
        self, runner: BatchRunner, read: Callable[[Span], DataFrame], stop: threading.Event
    ) -> BaseException | None:
        """Commit part after part with ``runner``, whose frames ``read`` gives. Returns what ends it: a
        `NewGenerationWanted` where all parts are committed, None where ``stop`` was set."""
        self.skipped = 0
        while self._spans and not stop.is_set():
            span = self._current(runner)
            if span is None:
                self._keep(self._spans[1:], 0)
                continue
            if self._failures >= _FAILURES:
                self._skip(runner, span)
                continue
            if self._failures and stop.wait(_SETTLE_SECONDS):
                break
            try:
                runner.advance(read(span), {span.place: span.end})
            except NewGenerationWanted as wanted:
                return wanted
            except Exception as error:
                gone = isinstance(error, Py4JError | ConnectionError) and not stop.is_set() and memory_ended_the_jvm()
                if not gone and not is_exhausted(error):
                    return error
                self._split_or_count(span)
                if gone:
                    raise
            else:
                self._keep(self._spans[1:], 0)
        return None if self._spans else NewGenerationWanted("every part was read")

    def note_death(self, runner: BatchRunner) -> None:
        """The JVM has ended in a batch of ``runner``; where its memory ended it, the next process reads that batch in
        parts."""
        if not self._spans and memory_ended_the_jvm() and self.begin(runner):
            self._say(
                "a batch does not fit into the memory of the Spark JVM: the next start reads its records in parts"
            )

    def _current(self, runner: BatchRunner) -> Span | None:
        """What is not committed yet of the first part; None where nothing of it is left, or the topic is another."""
        span = self._spans[0]
        frontier = runner.books.frontiers.get(span.place)
        if frontier is None or frontier.topic_id != span.topic_id:
            return None
        if not span.start <= frontier.next_offset < span.end:
            return None
        return span._replace(start=frontier.next_offset)

    def _skip(self, runner: BatchRunner, span: Span) -> None:
        self._say(
            f"the record at offset {span.start} of {span.topic}-{span.partition} does not fit into the memory of the "
            "Spark JVM (spark.options: spark.driver.memory): it is skipped, and the verdict is unknown"
        )
        runner.skip(span.place, span.start)
        self.skipped += 1
        self._keep(self._spans[1:], 0)

    def _split_or_count(self, span: Span) -> None:
        """A part was not read: in smaller parts, then; or one more failure of its only record."""
        if span.end - span.start > 1:
            self._keep([*_parts(span), *self._spans[1:]], 0)
        else:
            self._keep([span, *self._spans[1:]], self._failures + 1)

    def _keep(self, spans: list[Span], failures: int) -> None:
        self._spans, self._failures = spans, failures
        if spans:
            replace_file(self._path, json.dumps({"spans": spans, "failures": failures}) + "\n")
        else:
            self._path.unlink(missing_ok=True)


def _parts(span: Span) -> list[Span]:
    step = -(-(span.end - span.start) // _PARTS)
    return [span._replace(start=start, end=min(span.end, start + step)) for start in range(span.start, span.end, step)]


def _read(path: Path) -> tuple[list[Span], int]:
    """What the process before left to do; nothing where the file is absent or damaged."""
    try:
        kept = json.loads(path.read_text())
        return [
            Span(str(topic_id), str(topic), *map(int, numbers)) for topic_id, topic, *numbers in kept["spans"]
        ], int(kept["failures"])
    except (OSError, ValueError, KeyError, TypeError):
        return [], 0
