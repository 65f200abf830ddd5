"""Reads a batch that does not fit into memory in ever smaller parts, down to the record that does not fit.

That record is skipped: it is counted with its position, and the verdict is unknown. It is skipped only if another
record can be read after each of its failures. Otherwise memory is short for another reason, and the run ends.

The parts that are still to be read are kept in a file of the state, since a record may end the JVM and with it this
process. No committed fact depends on the file: if it is lost, the next failure starts the isolation again
(docs/decisions/0012, SEMANTICS 4.10).
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
from validator.model.wording import plural
from validator.publish.atomic import replace_file
from validator.stream.batch import BatchRunner, NewGenerationWanted
from validator.stream.failures import CannotVerify, text_of

FILE: Final = "isolation.json"
_PARTS: Final = 4
"""Number of smaller parts into which a part that does not fit is split."""
_FAILURES: Final = 2
"""Failed reads of a single record after which it is skipped."""
_SKIPS_MAX: Final = 100
"""Limit of consecutively skipped records, without a part read in between."""
_REFUSALS_MAX: Final = 4
"""If this many other records cannot be read either, the record is not the reason for the lack of memory."""
_NEIGHBOURS: Final = 3
"""Offsets tried below a position: more than one, since the last offset of a transaction is a marker, not a record."""
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
"""Exit statuses of a JVM: Spark's and Java's after an OutOfMemoryError, and those of a process killed by the kernel."""
_DEATH_SECONDS: Final = 5.0


class Span(NamedTuple):
    """Offsets of one partition of the topic with ``topic_id``; ``end`` is exclusive."""

    topic_id: str
    topic: str
    partition: int
    start: int
    end: int

    @property
    def partition_id(self) -> PartitionId:
        """The partition."""
        return PartitionId(self.topic, self.partition)


@dataclass(frozen=True)
class _Attempts:
    """The progress on the first part, if it is a single record.

    ``failures``: number of failed reads. ``controls``: number of failures after which another record could be read.
    ``asked``: other records tried since the last failure. ``refused``: those of them that failed. ``skipped``: records
    skipped in a row before this one.
    """

    failures: int = 0
    controls: int = 0
    asked: int = 0
    refused: int = 0
    skipped: int = 0

    def failed(self) -> _Attempts:
        """The progress after one more failed read of the record."""
        return replace(self, failures=self.failures + 1, asked=0, refused=0)

    def reset(self) -> _Attempts:
        """The progress of a part that was not tried yet."""
        return _Attempts(skipped=self.skipped)


def is_exhausted(error: BaseException) -> bool:
    """Whether a batch failed for lack of memory: heap or stack of the JVM, or memory of a Python worker."""
    text = text_of(error)
    return any(mark in text for mark in _EXHAUSTED)


def memory_ended_the_jvm() -> bool:
    """Whether Spark's JVM has ended for lack of memory, by its exit status. Waits up to `_DEATH_SECONDS`."""
    gateway = SparkContext._gateway
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    try:
        return process is not None and process.wait(_DEATH_SECONDS) in _ENDED_BY_MEMORY
    except subprocess.TimeoutExpired:
        return False


class Isolation:
    """The parts of a state's topics that are read one by one."""

    def __init__(self, state: Path, say: Callable[[str], None]) -> None:
        self._path = state / FILE
        self._say = say
        self._spans, self._attempts = _read(self._path)
        self.skipped = 0
        """Number of records that the last `run` skipped."""

    @property
    def wanted(self) -> bool:
        """Whether parts are left to read."""
        return bool(self._spans)

    def begin(self, runner: BatchRunner) -> bool:
        """Read the current batch of ``runner``, which failed for lack of memory, in parts.

        Returns False if the batch had no offsets to read.
        """
        spans: list[Span] = []
        for partition, end in sorted(runner.ends_of_batch.items()):
            frontier = runner.progress.frontiers.get(partition)
            if frontier is not None and frontier.next_offset < end:
                spans += _parts(
                    Span(frontier.topic_id, partition.topic, partition.partition, frontier.next_offset, end)
                )
        self._keep(spans, _Attempts())
        return bool(spans)

    def run(
        self,
        runner: BatchRunner,
        stop: threading.Event,
        lookups: Mapping[PartitionId, Lookup],
        meanwhile: Callable[[], None] = lambda: None,
    ) -> BaseException | None:
        """Commit part after part with ``runner``. ``meanwhile`` is called before each part.

        Returns a `NewGenerationWanted` when all parts are committed, None if ``stop`` was set, or the error that ended
        the reading. ``lookups``: current bounds of the logs; offsets outside of them are left out.

        Raises `CannotVerify` if memory is short for another reason than one record, or if `_SKIPS_MAX` records in a row
        were skipped; the record is then not skipped. Raises the error if memory ended the JVM.
        """
        self.skipped = 0
        while self._spans and not stop.is_set():
            meanwhile()
            span = self._current(runner, lookups)
            if span is None:
                self._keep(self._spans[1:], self._attempts.reset())
                continue
            attempts = self._attempts
            control: Span | None = None
            if attempts.controls < attempts.failures:
                control = self._control(runner, span, lookups)
            is_skipped = control is None and attempts.failures >= _FAILURES
            try:
                if is_skipped:
                    self._skip(runner, span)
                    continue
                if control is not None:
                    is_read = runner.holds_records(control.partition_id, control.start, control.end)
                    passed = replace(attempts, controls=attempts.failures) if is_read else attempts
                    self._keep(self._spans, replace(passed, asked=attempts.asked + 1))
                    continue
                runner.advance({span.partition_id: span.end})
            except NewGenerationWanted as wanted:
                return wanted
            except CannotVerify:
                raise
            except Exception as error:
                if is_skipped:
                    return error
                jvm_ended = (
                    isinstance(error, Py4JError | ConnectionError) and not stop.is_set() and memory_ended_the_jvm()
                )
                if not jvm_ended and (runner.is_ahead or not is_exhausted(error)):
                    return error
                if runner.is_ahead:
                    # The records had been read.
                    raise
                if control is None:
                    self._split_or_count(span)
                else:
                    refused = replace(attempts, asked=attempts.asked + 1, refused=attempts.refused + 1)
                    self._keep(self._spans, refused)
                if jvm_ended:
                    raise
            else:
                self._keep(self._spans[1:], _Attempts())
        return None if self._spans else NewGenerationWanted("every part was read")

    def note_jvm_end(self, runner: BatchRunner) -> None:
        """Make the next process read the batch of ``runner`` in parts, if the JVM ended in it for lack of memory."""
        if not self._spans and not runner.is_ahead and memory_ended_the_jvm() and self.begin(runner):
            self._say("a batch does not fit into memory: the next start reads its records in parts")

    def _current(self, runner: BatchRunner, lookups: Mapping[PartitionId, Lookup]) -> Span | None:
        """The uncommitted offsets of the first part; None if there are none, or if the topic was recreated."""
        span = self._spans[0]
        frontier, lookup = runner.progress.frontiers.get(span.partition_id), lookups.get(span.partition_id)
        if frontier is None or lookup is None or not frontier.topic_id == lookup.topic_id == span.topic_id:
            return None
        # The log may have been cut back and end earlier.
        end = min(span.end, _end(lookup))
        if not max(span.start, lookup.log_start_offset) <= frontier.next_offset < end:
            return None
        return span._replace(start=frontier.next_offset, end=end)

    def _control(self, runner: BatchRunner, span: Span, lookups: Mapping[PartitionId, Lookup]) -> Span:
        """The next other record to try, after a failed read of ``span``.

        Raises `CannotVerify` if there is no other one, or if `_REFUSALS_MAX` others could not be read either.
        """
        attempts = self._attempts
        others = list(_others(runner, span, lookups)) if attempts.refused < _REFUSALS_MAX else []
        if attempts.asked < len(others):
            return others[attempts.asked]
        # The next start tries all of them again.
        self._keep(self._spans, attempts.reset())
        why = (
            f"{plural(attempts.refused, 'other record')} could not be read either"
            if attempts.refused
            else "no topic has another record to try"
        )
        raise CannotVerify(
            f"memory is short: {_named(span)} does not fit into it, and {why}. Nothing was skipped: raise "
            "limits.worker_bytes, or give the host more memory, and start the sidecar again; it "
            f"continues with this record, whose position is in {self._path}"
        )

    def _skip(self, runner: BatchRunner, span: Span) -> None:
        attempts = self._attempts
        if attempts.skipped >= _SKIPS_MAX:
            self._keep(self._spans, attempts.reset())
            raise CannotVerify(
                f"{_SKIPS_MAX} records in a row did not fit into the memory of a worker and were skipped, and "
                f"{_named(span)} does not fit either: raise limits.worker_bytes, or remove "
                f"{self._path} to skip up to {_SKIPS_MAX} more records"
            )
        self._say(
            f"{_named(span)} does not fit into the memory of a worker (limits.worker_bytes): it is skipped, and the "
            "verdict is unknown"
        )
        # The skip is counted before it is committed: a committed skip that is not counted would escape the limit.
        self._keep(self._spans, replace(attempts, skipped=attempts.skipped + 1))
        runner.skip(span.partition_id, span.start)
        self.skipped += 1
        self._keep(self._spans[1:], self._attempts.reset())

    def _split_or_count(self, span: Span) -> None:
        """Split a part that could not be read, or count one more failure of its only record."""
        if span.end - span.start > 1:
            self._keep([*_parts(span), *self._spans[1:]], self._attempts.reset())
        else:
            self._keep([span, *self._spans[1:]], self._attempts.failed())

    def _keep(self, spans: list[Span], attempts: _Attempts) -> None:
        self._spans, self._attempts = spans, attempts
        if spans:
            replace_file(self._path, json.dumps({"spans": spans, **asdict(attempts)}) + "\n")
        else:
            self._path.unlink(missing_ok=True)


def _end(lookup: Lookup) -> int:
    """The offset up to which the log can be read now: records after the start of an open transaction are hidden."""
    return min(lookup.high_watermark, lookup.last_stable_offset)


def _named(span: Span) -> str:
    return f"the record at offset {span.start} of {span.partition_id}"


def _others(runner: BatchRunner, span: Span, lookups: Mapping[PartitionId, Lookup]) -> Iterator[Span]:
    """Single offsets other than that of ``span``.

    Order: the offsets read last, the newest, the first. Each of these passes begins with the partition of ``span``.
    """
    frontiers = {
        partition: frontier
        for partition, frontier in sorted(
            runner.progress.frontiers.items(), key=lambda item: item[0] != span.partition_id
        )
        if partition in lookups and lookups[partition].topic_id == frontier.topic_id
    }
    nothing = {p: Span(frontier.topic_id, p.topic, p.partition, 0, 0) for p, frontier in frontiers.items()}

    def before(offset_of: Callable[[PartitionId], int]) -> Iterable[tuple[PartitionId, int]]:
        return (
            (partition, offset_of(partition) - back) for partition in frontiers for back in range(1, _NEIGHBOURS + 1)
        )

    tried = {(span.partition_id, span.start)}
    for partition, offset in chain(
        before(lambda partition: frontiers[partition].next_offset),
        before(lambda partition: _end(lookups[partition])),
        ((partition, lookups[partition].log_start_offset) for partition in frontiers),
    ):
        lookup = lookups[partition]
        if (partition, offset) not in tried and max(0, lookup.log_start_offset) <= offset < _end(lookup):
            tried.add((partition, offset))
            yield nothing[partition]._replace(start=offset, end=offset + 1)


def _parts(span: Span) -> list[Span]:
    step = -(-(span.end - span.start) // _PARTS)
    return [span._replace(start=start, end=min(span.end, start + step)) for start in range(span.start, span.end, step)]


def _read(path: Path) -> tuple[list[Span], _Attempts]:
    """The parts that an earlier process left; none if the file is absent or damaged."""
    try:
        kept = json.loads(path.read_text())
        spans = [Span(str(topic_id), str(topic), *map(int, numbers)) for topic_id, topic, *numbers in kept["spans"]]
        return spans, _Attempts(**{name: int(kept.get(name, 0)) for name in asdict(_Attempts())})
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return [], _Attempts()
