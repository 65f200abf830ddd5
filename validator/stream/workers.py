"""Spark's Python workers: they read the ranges of a batch and give its fact rows to the driver.

A batch is one job of Spark's. Each task reads some ranges (`kafka_reading`), takes them through the stage, and hands
its fact rows over: as bytes through the JVM where they are few, else, where workers and driver share this machine, in a
file whose name goes through the JVM.
"""

from __future__ import annotations

import heapq
import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Final, Generic, TypeVar

import pyarrow as pa
from confluent_kafka import Message
from pyspark.sql import SparkSession

from validator.reconcile.facts import GROUPED
from validator.stream.failures import text_of
from validator.stream.kafka_reading import Range, ReadFailed, Reading
from validator.stream.stage import Stage

_INLINE_BYTES: Final = 2**18
"""So many bytes of fact rows of a task go through the JVM; it copies them several times, and keeps them meanwhile."""
_OFFSETS_LEAST: Final = 10_000
"""A task has no fewer offsets where they could be spread over more: starting one takes some ten milliseconds."""
_BESIDE_SECONDS: Final = 5.0
"""A batch waits no longer for what is read beside it."""
_FAILED: Final = re.compile(rf"(?:^|\.){ReadFailed.__name__}: (.*)$", re.MULTILINE)

_Item = TypeVar("_Item")


@dataclass(frozen=True)
class _Task:
    """What a worker does with the ranges that it is given. ``folder``: where it may leave files for the driver."""

    stage: Stage
    reading: Reading
    folder: str | None

    def __call__(self, lists: Iterable[Sequence[Range]]) -> Iterator[bytes | str]:
        parts: list[pa.Table] = []
        for ranges in lists:
            for one in ranges:
                records = self.reading.records(one, self.stage.readers[one.source].decoder)
                parts += self.stage.facts(one.source, records)
        rows = pa.concat_tables([GROUPED.empty_table(), *parts])
        if not rows.num_rows:
            return
        if self.folder is None or rows.nbytes <= _INLINE_BYTES:
            yield _in_bytes(rows)
        else:
            yield _in_file(rows, self.folder)


@dataclass(frozen=True)
class _Each(Generic[_Item]):
    """What a worker does with ranges whose messages are few."""

    taken: Callable[[Message], _Item]
    reading: Reading

    def __call__(self, lists: Iterable[Sequence[Range]]) -> Iterator[_Item]:
        return (item for ranges in lists for item in self.reading.each(self.taken, ranges))


class Workers:
    """The workers of one Spark session. ``folder``: for what they leave there on their way to the driver; it is made
    when it is needed, and whoever names it removes it."""

    def __init__(self, spark: SparkSession, reading: Reading, folder: Path) -> None:
        self._context = spark.sparkContext
        self._reading = reading
        self._folder = folder if str(self._context.master).startswith("local") else None

    def facts(self, stage: Stage, ranges: Sequence[Range]) -> pa.Table:
        """The fact rows (`GROUPED`) of all records in ``ranges``. Raises `ReadFailed`, and what Spark raises."""
        lists = spread(ranges, self._context.defaultParallelism)
        if not lists:
            return GROUPED.empty_table()
        if self._folder is not None:
            self._folder.mkdir(mode=0o700, exist_ok=True)
        task = _Task(stage, self._reading, None if self._folder is None else str(self._folder))
        return pa.concat_tables([GROUPED.empty_table(), *map(_received, self._collected(task, lists))])

    def each(
        self, taken: Callable[[Message], _Item], ranges: Sequence[Range], *, isolated: bool = False
    ) -> list[_Item]:
        """What ``taken``, a function of a module, makes of each visible message of a few ``ranges``, which are read
        beside a batch. ``isolated``: as of `Reading`. Raises as `facts` does."""
        task = _Each(taken, replace(self._reading.spared(isolated=isolated), silence_seconds=_BESIDE_SECONDS))
        return self._collected(task, [list(ranges)])

    def _collected(
        self, task: Callable[[Iterable[Sequence[Range]]], Iterator[_Item]], lists: Sequence[Sequence[Range]]
    ) -> list[_Item]:
        try:
            found: list[_Item] = self._context.parallelize(lists, len(lists)).mapPartitions(task).collect()
        except Exception as error:
            # Spark hands back text only, with the worker's trace.
            said = _FAILED.findall(text_of(error))
            if said:
                raise ReadFailed(said[-1]) from error
            raise
        return found


def spread(ranges: Sequence[Range], cores: int) -> list[list[Range]]:
    """The ranges as lists for tasks, those of each source apart: where they are large, cut, so that no core waits.

    Earlier sources come first: their records (results) take the longest.
    """
    lists = []
    for source in sorted({one.source for one in ranges}):
        mine = [one for one in ranges if one.source == source and one.start < one.end]
        offsets = sum(one.end - one.start for one in mine)
        tasks = max(1, min(2 * cores, -(-offsets // _OFFSETS_LEAST)))
        lists += _balanced([part for one in mine for part in _cut(one, -(-offsets // tasks))], tasks)
    return lists


def _cut(one: Range, most: int) -> Iterator[Range]:
    parts = max(1, -(-(one.end - one.start) // max(1, most)))
    edges = [one.start + (one.end - one.start) * number // parts for number in range(parts + 1)]
    return (one._replace(start=start, end=end) for start, end in pairwise(edges))


def _balanced(parts: list[Range], tasks: int) -> list[list[Range]]:
    """The parts in so many lists at most, of about as many offsets each."""
    lists: list[tuple[int, int, list[Range]]] = [(0, number, []) for number in range(tasks)]
    for part in sorted(parts, key=lambda part: part.start - part.end):
        load, number, held = heapq.heappop(lists)
        heapq.heappush(lists, (load + part.end - part.start, number, [*held, part]))
    return [held for _, _, held in sorted(lists, key=lambda item: item[1]) if held]


def _in_bytes(rows: pa.Table) -> bytes:
    """Raises `MemoryError` where they are too many to go through the JVM."""
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


def _write(rows: pa.Table, sink: object) -> None:
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)


def _received(handed: bytes | str) -> pa.Table:
    if isinstance(handed, bytes):
        return pa.ipc.open_stream(handed).read_all()
    with pa.memory_map(handed) as source:
        rows = pa.ipc.open_stream(source).read_all()
    # What is mapped stays readable.
    Path(handed).unlink()
    return rows
