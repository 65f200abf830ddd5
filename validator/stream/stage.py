"""The one stage of a batch: each task of Spark decodes what it read, groups it by cell, and gives the driver fact rows.

What a task hands over are bytes of Arrow: the JVM passes them on without a look at what they hold. A task that is
repeated gives the same, since it reads the same offsets in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from validator.codecs.batches import ResultBatches
from validator.codecs.plain_fields import plain
from validator.reconcile.facts import GROUPED
from validator.reconcile.grouping import facts_of_events, facts_of_results
from validator.stream.decode import Reader

_COLUMN: Final = "facts"
_RECORDS_AT_ONCE: Final = 2**19
_BYTES_AT_ONCE: Final = 2**26
_CONTRIBUTIONS_AT_ONCE: Final = 2**21
"""A task that reads more groups it in parts, so that a Python worker's memory has a bound: a contribution of an event
takes some 170 bytes while it is grouped, and in sliding windows an event has many."""


@dataclass(frozen=True)
class Stage:
    """The body of `mapInArrow`: batches of `validator.stream.decode.RECORD_TYPE` to serialized rows of `GROUPED`.

    ``readers``: by source. ``limit_us``, ``with_first_event``: as for `facts_of_events`.
    """

    readers: Sequence[Reader]
    limit_us: int
    with_first_event: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The records of one task, which are of one source."""
        batches = (batch for batch in batches if batch.num_rows)
        first = next(batches, None)
        if first is None:
            return
        source = first["source"][0].as_py()
        held: list[pa.RecordBatch] = []
        rows = size = 0
        reader = self.readers[source]
        cells = 1 if isinstance(reader.batches, ResultBatches) else reader.oracle.cells_most
        most = min(_RECORDS_AT_ONCE, max(1, _CONTRIBUTIONS_AT_ONCE // cells))
        for decoded in _cut(reader.batches(_of_one_source(chain([first], batches), source)), most):
            if held and (rows + decoded.num_rows > most or size + decoded.nbytes > _BYTES_AT_ONCE):
                yield self._grouped(held, source)
                held, rows, size = [], 0, 0
            held.append(decoded)
            rows, size = rows + decoded.num_rows, size + decoded.nbytes
        if held:
            yield self._grouped(held, source)

    def facts(self, frame: DataFrame) -> pa.Table:
        """Run it on the records of ``frame``; rows of `GROUPED`."""
        found = frame.mapInArrow(self, f"{_COLUMN} binary").toArrow()[_COLUMN]
        parts = [pa.ipc.open_stream(one.as_buffer()).read_all() for one in found]
        return pa.concat_tables([GROUPED.empty_table(), *parts])

    def _grouped(self, held: list[pa.RecordBatch], source: int) -> pa.RecordBatch:
        reader, records = self.readers[source], pa.Table.from_batches(held)
        if isinstance(reader.batches, ResultBatches):
            facts = facts_of_results(records, source, reader.oracle)
        else:
            facts = facts_of_events(
                records, source, reader.oracle, reader.slack_us, self.limit_us, with_first_event=self.with_first_event
            )
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, facts.schema) as writer:
            writer.write_table(facts)
        return _in_one_row(sink.getvalue())


def _in_one_row(payload: pa.Buffer) -> pa.RecordBatch:
    """One row of bytes. Raises `MemoryError` where they are too many for one."""
    if payload.size >= 2**31:
        raise MemoryError(f"the facts of one task have {payload.size:,} bytes")
    ends = pa.py_buffer(np.array([0, payload.size], dtype=np.int32))
    return pa.RecordBatch.from_arrays([pa.Array.from_buffers(pa.binary(), 1, [None, ends, payload])], [_COLUMN])


def _cut(batches: Iterator[pa.RecordBatch], most: int) -> Iterator[pa.RecordBatch]:
    """The same records in batches of at most so many."""
    for batch in batches:
        for start in range(0, max(1, batch.num_rows), most):
            yield batch.slice(start, most)


def _of_one_source(batches: Iterator[pa.RecordBatch], source: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if (plain(batch["source"]) != source).any():
            raise AssertionError("Spark gave records of several sources to one task")
        yield batch
