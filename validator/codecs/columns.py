"""What every decoded record has, whatever the topic's format and role: a status; a record that does not decode, too."""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

DECODED: Final = 0
"""``status`` of a record that decoded."""
UNDECODABLE: Final = 1
"""``status`` of a record that did not; it has no cell and no ids."""
TOMBSTONE: Final = 2
"""``status`` of a null value on an output topic that is not cumulative: counted and ignored."""
REACH: Final = 3
"""``status`` of a fact row without records, which keeps the reach of events whose facts were retired."""

UNEXAMINED: Final = 4
"""``status`` of a record of an output topic that was not examined: it is larger than the limits, or does not fit
into memory. What it holds is not known, as of a record that was gone before it was read."""
KNOWN: Final = 5
"""``status`` of a fact row without records, which keeps ids of input events whose cell was retired, as long as results
of another cell carry them."""

UNOWED: Final = 6
"""``status`` of events that decoded and owe nothing: the oracle's condition does not hold for them. Their rows have the
cell that they would be in and their ids, and no contributions."""

RESULT_TYPE: Final = StructType(
    [
        StructField("offset", LongType()),
        StructField("time_us", LongType()),
        StructField("ids", ArrayType(LongType())),
        StructField("text_ids", ArrayType(StringType())),
    ]
)
"""One record of an output topic: its offset, broker time, and the ids that it claims (integers and texts apart)."""
