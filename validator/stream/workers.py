"""Spark's Python workers read the ranges of a batch and return its fact rows to the driver.

A batch is one Spark job. Each task reads some ranges (`kafka_reading`), passes the records through the stage, and
returns its fact rows as bytes through the JVM. If they are many, and workers and driver share a machine, the task
writes them to a file instead and returns its name.
"""

from __future__ import annotations

import ctypes
import heapq
import json
import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Final, Generic, NamedTuple, TypeVar

import pyarrow as pa
from confluent_kafka import Message
from pyspark.sql import SparkSession

from validator.model.coverage import Counting, RangeCount
from validator.model.schemas import SchemaUnknown
from validator.reconcile.facts import GROUPED
from validator.stream.failures import text_of
from validator.stream.kafka_reading import Range, ReadFailed, Reading
from validator.stream.reading_again import records_again
from validator.stream.stage import Stage

_INLINE_BYTES: Final = 2**18
"""Fact rows of a task above this size go through a file if possible: the JVM copies and holds them several times."""
_OFFSETS_MIN: Final = 10_000
"""Offsets per task below which a batch uses fewer tasks: starting a task takes some ten milliseconds."""
_BESIDE_SECONDS: Final = 5.0
"""A read beside a batch fails after this silence, since the batch waits for it."""
_COUNTS: Final = b"counts"
"""Key of the metadata of a task's fact rows, with its `RangeCount`s."""
_UNKNOWN: Final = b"schemas"
"""Key of that metadata with the schemas that are not known."""
_FAILED: Final = re.compile(rf"(?:^|\.){ReadFailed.__name__}: (.*)$", re.MULTILINE)

_C_LIBRARY: Final = ctypes.CDLL(None)

_WARM: Final = set[str]()
"""Ids of the sessions in which `Workers.warm_up` ran."""

_Item = TypeVar("_Item")


class SchemasUnknown(Exception):
    """Records name schemas that must be looked up before they can be read. ``schemas``: ids or GUIDs."""

    def __init__(self, schemas: frozenset[int | str]) -> None:
        super().__init__(f"schemas to look up: {sorted(schemas, key=str)}")
        self.schemas = schemas


class FactsRead(NamedTuple):
    """The fact rows of some ranges, and what the reader counted in them."""

    facts: pa.Table
    counts: tuple[RangeCount, ...]


@dataclass(frozen=True)
class _Task:
    """Reads ranges into fact rows, in a worker. ``folder``: for files to the driver; None: rows go through the JVM."""

    stage: Stage
    reading: Reading
    folder: str | None

    def __call__(self, lists: Iterable[Sequence[Range]]) -> Iterator[bytes | str]:
        parts: list[pa.Table] = []
        counts: list[RangeCount] = []
        unknown: list[int | str] = []
        for ranges in lists:
            for one in ranges:
                counting = Counting(one.start, one.end)
                records = self.reading.records(one, self.stage.readers[one.source].decoder)
                try:
                    parts += self.stage.facts(one.source, _counted(records, counting))
                except SchemaUnknown as found:
                    # The whole batch is read again, so what was read of it is dropped.
                    unknown += found.schemas
                counts.append(counting.result(one.topic, one.partition))
        rows = pa.concat_tables([GROUPED.empty_table(), *(parts if not unknown else ())])
        rows = rows.replace_schema_metadata({_COUNTS: json.dumps(counts), _UNKNOWN: json.dumps(unknown)})
        if self.folder is None or rows.nbytes <= _INLINE_BYTES:
            yield _in_bytes(rows)
        else:
            name = _in_file(rows, self.folder)
            del rows, parts
            _release_memory()
            yield name


def _counted(batches: Iterator[pa.RecordBatch], counting: Counting) -> Iterator[pa.RecordBatch]:
    """The same records, counted before they are decoded (SEMANTICS 5.1)."""
    for batch in batches:
        if batch.num_rows:
            counting.add(batch.column("offset").to_numpy())
        yield batch


@dataclass(frozen=True)
class _SecondTask:
    """Reads a range a second time into fact rows, in a worker."""

    stage: Stage
    reading: Reading

    def __call__(self, lists: Iterable[Sequence[Range]]) -> Iterator[bytes]:
        for ranges in lists:
            for one in ranges:
                records = records_again(self.reading, one, self.stage.readers[one.source].decoder)
                rows = pa.concat_tables([GROUPED.empty_table(), *self.stage.facts(one.source, records)])
                yield _in_bytes(rows)


@dataclass(frozen=True)
class _Each(Generic[_Item]):
    """Applies ``taken`` to each message of some ranges, in a worker."""

    taken: Callable[[Message], _Item]
    reading: Reading

    def __call__(self, lists: Iterable[Sequence[Range]]) -> Iterator[_Item]:
        return (item for ranges in lists for item in self.reading.each(self.taken, ranges))


class Workers:
    """The workers of one Spark session.

    ``folder``: where the workers of a local session leave files for the driver. It is created on demand, and removed by
    the caller.
    """

    def __init__(self, spark: SparkSession, reading: Reading, folder: Path) -> None:
        self._context = spark.sparkContext
        self._reading = reading
        self._folder = folder if str(self._context.master).startswith("local") else None

    def warm_up(self) -> None:
        """Run a job in which the Python workers of a local session start and import the modules that read records.

        A cluster may have no free executor for a long time, so nothing is done there, nor in a session that an earlier
        run warmed up. If the job fails, the first batch fails in the same way, and the query's retries and messages
        apply.
        """
        if self._folder is None:
            return
        with suppress(Exception):
            application, cores = self._context.applicationId, self._context.defaultParallelism
            if application not in _WARM:
                _WARM.add(application)
                self._context.parallelize(range(cores), cores).mapPartitions(_nothing).collect()

    def facts(self, stage: Stage, ranges: Sequence[Range]) -> FactsRead:
        """The fact rows (schema `GROUPED`) of all records in ``ranges``. Raises `ReadFailed`, `SchemasUnknown` and
        Spark's errors."""
        lists = spread(ranges, self._context.defaultParallelism)
        if not lists:
            return FactsRead(GROUPED.empty_table(), ())
        if self._folder is not None:
            self._folder.mkdir(mode=0o700, exist_ok=True)
        task = _Task(stage, self._reading, None if self._folder is None else str(self._folder))
        tables = list(map(_received, self._collected(task, lists)))
        unknown = frozenset(one for table in tables for one in json.loads(table.schema.metadata[_UNKNOWN]))
        if unknown:
            raise SchemasUnknown(unknown)
        counts = [
            RangeCount(topic, partition, skipped, tuple((first, end) for first, end in gaps))
            for table in tables
            for topic, partition, skipped, gaps in json.loads(table.schema.metadata[_COUNTS])
        ]
        parts = [table.replace_schema_metadata() for table in tables]
        return FactsRead(pa.concat_tables([GROUPED.empty_table(), *parts]), tuple(counts))

    def facts_again(self, stage: Stage, wanted: Range) -> pa.Table:
        """The fact rows (schema `GROUPED`) of a second reading of a small range, with a new consumer. Raises as `facts`
        does, and if the range can no longer be read as a whole."""
        [handed] = self._collected(_SecondTask(stage, self._reading), [[wanted]])
        return _received(handed)

    def each(
        self, taken: Callable[[Message], _Item], ranges: Sequence[Range], *, isolated: bool = False
    ) -> list[_Item]:
        """``taken`` (a module-level function) applied to each visible message of a few ``ranges``.

        The ranges are not part of a batch: little is fetched at once, and silence fails the read after
        `_BESIDE_SECONDS`. ``isolated``: see `Reading`. Raises as `facts` does.
        """
        task = _Each(taken, replace(self._reading.with_low_memory(isolated=isolated), silence_seconds=_BESIDE_SECONDS))
        return self._collected(task, [list(ranges)])

    def _collected(
        self, task: Callable[[Iterable[Sequence[Range]]], Iterator[_Item]], lists: Sequence[Sequence[Range]]
    ) -> list[_Item]:
        try:
            found: list[_Item] = self._context.parallelize(lists, len(lists)).mapPartitions(task).collect()
        except Exception as error:
            # Spark returns only text, which includes the worker's stack trace.
            messages = _FAILED.findall(text_of(error))
            if messages:
                raise ReadFailed(messages[-1]) from error
            raise
        return found


def _nothing(lists: Iterable[object]) -> Iterator[object]:
    # Unpickling this function imports this module, and with it everything that a task uses.
    del lists
    return iter(())


def spread(ranges: Sequence[Range], cores: int) -> list[list[Range]]:
    """Distribute ``ranges`` over lists, one per task. A list has ranges of one source. Large ranges are cut.

    Lists of earlier sources come first: their records (results) take the longest.
    """
    lists = []
    for source in sorted({one.source for one in ranges}):
        mine = [one for one in ranges if one.source == source and one.start < one.end]
        offsets = sum(one.end - one.start for one in mine)
        tasks = max(1, min(2 * cores, -(-offsets // _OFFSETS_MIN)))
        lists += _balanced([part for one in mine for part in _cut(one, -(-offsets // tasks))], tasks)
    return lists


def _cut(one: Range, most: int) -> Iterator[Range]:
    parts = max(1, -(-(one.end - one.start) // max(1, most)))
    edges = [one.start + (one.end - one.start) * number // parts for number in range(parts + 1)]
    return (one._replace(start=start, end=end) for start, end in pairwise(edges))


def _balanced(parts: list[Range], tasks: int) -> list[list[Range]]:
    """The parts in at most ``tasks`` lists, with about the same number of offsets each."""
    lists: list[tuple[int, int, list[Range]]] = [(0, number, []) for number in range(tasks)]
    for part in sorted(parts, key=lambda part: part.start - part.end):
        load, number, held = heapq.heappop(lists)
        heapq.heappush(lists, (load + part.end - part.start, number, [*held, part]))
    return [held for _, _, held in sorted(lists, key=lambda item: item[1]) if held]


def _in_bytes(rows: pa.Table) -> bytes:
    """``rows`` as an Arrow stream. Raises `MemoryError` if it is too large to go through the JVM."""
    sink = pa.BufferOutputStream()
    _write(rows, sink)
    payload = sink.getvalue()
    if payload.size >= 2**31 - 2**16:
        raise MemoryError(f"the facts of one task have {payload.size:,} bytes")
    return bytes(payload)


def _in_file(rows: pa.Table, folder: str) -> str:
    name = str(Path(folder, f"{uuid.uuid4()}.arrow"))
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        _write(rows, file)
    return name


def _release_memory() -> None:
    """Return free memory to the operating system: the driver needs it to judge the rows while the worker is idle."""
    pa.default_memory_pool().release_unused()
    if hasattr(_C_LIBRARY, "malloc_trim"):  # the C library is glibc
        _C_LIBRARY.malloc_trim(0)


def _write(rows: pa.Table, sink: object) -> None:
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)


def _received(handed: bytes | str) -> pa.Table:
    if isinstance(handed, bytes):
        return pa.ipc.open_stream(handed).read_all()
    with pa.memory_map(handed) as source:
        rows = pa.ipc.open_stream(source).read_all()
    # The mapping stays readable after the file is removed.
    Path(handed).unlink()
    return rows
