"""The single stage of a batch: the records of a Spark task are decoded, grouped by cell and turned into fact rows.

A repeated task gives the same rows, since it reads the same offsets in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from validator.codecs.batches import ResultBatches, exploded
from validator.reconcile.grouping import facts_of_events, facts_of_results, facts_of_rows
from validator.reconcile.upserts import facts_of_upserts
from validator.stream.decode import Reader

_RECORDS_AT_ONCE: Final = 2**19
_BYTES_AT_ONCE: Final = 2**26
_CONTRIBUTIONS_AT_ONCE: Final = 2**21
"""A task above one of these limits groups its records in parts, to limit the memory of a Python worker.

A contribution takes some 170 bytes while it is grouped. With sliding windows an event has several contributions."""


_WORDS: Final = 16
"""Usual number of words of an event."""


@dataclass(frozen=True)
class Stage:
    """Turns records into fact rows.

    ``readers``: by source. ``limit_us``, ``with_first_event``: as in `facts_of_events`. ``read_us``: source -> instant
    (microseconds) given to its records, if its topic has no append times (`validator.measure.record_times`).
    """

    readers: Sequence[Reader]
    limit_us: int
    with_first_event: bool
    read_us: Mapping[int, int] = field(default_factory=dict)

    def facts(self, source: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
        """Fact rows (schema `GROUPED`), in parts, of record batches of one source (columns as in `columns_of`)."""
        held: list[pa.RecordBatch] = []
        rows = size = 0
        reader = self.readers[source]
        cells = 1 if isinstance(reader.batches, ResultBatches) else reader.oracle.cells_most
        cells *= _WORDS if reader.oracle.reads.explodes else 1
        most = min(_RECORDS_AT_ONCE, max(1, _CONTRIBUTIONS_AT_ONCE // cells))
        for decoded in _cut(reader.batches(batch for batch in batches if batch.num_rows), most):
            if held and (rows + decoded.num_rows > most or size + decoded.nbytes > _BYTES_AT_ONCE):
                yield self._grouped(held, source)
                held, rows, size = [], 0, 0
            held.append(decoded)
            rows, size = rows + decoded.num_rows, size + decoded.nbytes
        if held:
            yield self._grouped(held, source)

    def _grouped(self, held: list[pa.RecordBatch], source: int) -> pa.Table:
        reader, records = self.readers[source], pa.Table.from_batches(held)
        if source in self.read_us:
            place = records.schema.get_field_index("time_us")
            instants = pa.repeat(pa.scalar(self.read_us[source], pa.int64()), records.num_rows)
            records = records.set_column(place, records.schema.field(place), instants)
        if isinstance(reader.batches, ResultBatches):
            return facts_of_results(records, source, reader.oracle)
        if reader.replaces_rows:
            return facts_of_upserts(
                records, source, reader.oracle, reader.slack_us, self.limit_us, with_first_event=self.with_first_event
            )
        if reader.of_rows:
            return facts_of_rows(records, source, reader.oracle)
        if reader.batches.words is not None:
            records = exploded(records, reader.batches.words)
        return facts_of_events(
            records, source, reader.oracle, reader.slack_us, self.limit_us, with_first_event=self.with_first_event
        )


def _cut(batches: Iterator[pa.RecordBatch], most: int) -> Iterator[pa.RecordBatch]:
    """The same records in batches of about ``most`` rows. The rows of a record stay together."""
    for batch in batches:
        start = 0
        while start == 0 or start < batch.num_rows:
            end = start + most
            while end < batch.num_rows and _same_record(batch, end):
                end += 1
            yield batch.slice(start, end - start)
            start = end


def _same_record(batch: pa.RecordBatch, row: int) -> bool:
    return all(batch[name][row - 1].equals(batch[name][row]) for name in ("partition", "offset"))
