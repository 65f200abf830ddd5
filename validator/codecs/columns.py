"""The statuses of records and fact rows, and the type of a result in a fact row. A status does not depend on the
topic's format."""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

DECODED: Final = 0
"""``status`` of a record that decoded."""
UNDECODABLE: Final = 1
"""``status`` of a record that did not decode. It has no cell and no ids."""
TOMBSTONE: Final = 2
"""``status`` of a null value on an output topic. It is counted. With emission `cumulative` it also withdraws the result
of its key (`validator.reconcile.by_id`)."""
REACH: Final = 3
"""``status`` of a fact row without records. It keeps the reach of retired facts (`validator.reconcile.lateness`)."""

UNEXAMINED: Final = 4
"""``status`` of a record of an output topic that was not examined: it is larger than the limits, or does not fit
into memory. Its content is not known, like that of a record that expired before it was read."""
KNOWN: Final = 5
"""``status`` of a fact row without records. It keeps ids of input events whose cell was retired, as long as results
of another cell have these ids."""

UNOWED: Final = 6
"""``status`` of events that decoded and owe nothing: the oracle's condition does not hold for them. Their rows have
their ids and the cell to which they would contribute, but no contributions."""

RESULT_TYPE: Final = StructType(
    [
        StructField("offset", LongType()),
        StructField("time_us", LongType()),
        StructField("ids", ArrayType(LongType())),
        StructField("text_ids", ArrayType(StringType())),
    ]
)
"""One record of an output topic: its offset, its broker time, and the ids that it carries, integers and texts apart."""
