"""The statuses of records and fact rows, and the type of a result in a fact row. A status does not depend on the
topic's format."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

DECODED: Final = 0
"""``status`` of a record that decoded."""
UNDECODABLE: Final = 1
"""``status`` of a record that did not decode. It has no cell and no ids."""
TOMBSTONE: Final = 2
"""``status`` of a null value on an output topic, or of one that is not an event on an input topic. It is counted. With
emission `cumulative` it also withdraws the result of its key (`validator.reconcile.by_id`)."""
REACH: Final = 3
"""``status`` of a fact row without records. It keeps the reach of retired facts (`validator.reconcile.lateness`)."""

UNEXAMINED: Final = 4
"""``status`` of a record of an output topic that was not examined: it is larger than the limits, or does not fit
into memory. Its content is not known, like that of a record that expired before it was read."""
KNOWN: Final = 5
"""``status`` of a fact row without records. It keeps ids of input events whose cell was retired, as long as results
of another cell have these ids."""

UNOWED: Final = 6
"""``status`` of events that decoded and owe nothing: the oracle's condition does not hold for them, or they have no key
and the pipeline skips them. Their rows have their ids and the cell to which they would contribute, but no
contributions."""

SKIPPED: Final = 7
"""``status`` of a decoded event that has no key and that the pipeline skips. Its fact row has the status `UNOWED`, and
no event time that counts."""

PAUSED: Final = 8
"""``status`` of a fact row without records: after a pause of their partition, events may be late to the engine because
of other partitions, for windows up to its reach (`validator.reconcile.lateness`)."""


REMOVED: Final = 9
"""``status`` of what a change of a table removes: an event that decoded, whose contribution counts with a minus sign.
All events of a fact row have one status, and so one sign."""

VERSION: Final = 10
"""``status`` of rows of a table that decoded. They are in no cell; ``times`` and ``aggregates`` have the time and the
fields of each (`validator.reconcile.table_rows`)."""

CONTRIBUTING: Final = (DECODED, REMOVED)
"""The statuses of records that contribute to a cell."""
WITH_A_CELL: Final = (*CONTRIBUTING, UNOWED)
"""The statuses of fact rows that have a cell."""


def list_of(items: pa.DataType) -> pa.DataType:
    """Return the type of a list as Delta tables have it."""
    return pa.list_(pa.field("element", items))


AGGREGATE_TYPE: Final = pa.struct(
    [("count", pa.int64()), ("sum", pa.string()), ("min", pa.string()), ("max", pa.string())]
)
"""The aggregate of one field over the events of a fact row (evidence `values`). ``count``: the events in which it is a
number. The others are exact decimals, as texts; null if there is no such event."""

RESULT_TYPE: Final = pa.struct(
    [
        ("offset", pa.int64()),
        ("time_us", pa.int64()),
        ("ids", list_of(pa.int64())),
        ("text_ids", list_of(pa.string())),
        ("count", pa.int64()),
        ("values", list_of(pa.string())),
    ]
)
"""One record of an output topic: its offset, its broker time, and the ids that it carries, integers and texts apart.
``count``: with evidence `values`, the number of events that it states; else null. ``values``: the other
numbers that it states, as texts, or null."""
