"""What a reader counts in the ranges of a batch whose fact rows a test makes itself."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from validator.model.coverage import RangeCount
from validator.stream.commit_rows import summaries
from validator.stream.kafka_reading import Range


def counted(ranges: Sequence[Range], facts: pa.Table) -> tuple[RangeCount, ...]:
    """Return the counts of a reader that met the records of ``facts`` and no others."""
    records = {found.partition_id: found.records + found.unexamined for found in summaries(facts)}
    counts = [RangeCount(one.topic, one.partition, one.end - one.start) for one in ranges]
    return tuple(count._replace(skipped=count.skipped - records.get(count.partition_id, 0)) for count in counts)
