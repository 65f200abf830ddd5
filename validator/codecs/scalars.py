"""Parts of Kafka's records as Spark columns, cut to the limits."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from validator.codecs.one_record import TOO_LARGE


def within(value: Column, most: int) -> Column:
    """The value of a record, or what stands for one of more than ``most`` bytes; a value that looks so is none."""
    size = F.octet_length(value)
    stands = F.concat(F.lit(TOO_LARGE), size.cast("string").cast("binary"))
    return F.when(size > most, stands).when(F.startswith(value, F.lit(TOO_LARGE)), F.lit(b"")).otherwise(value)


def no_longer(part: Column, most: int) -> Column:
    """A key or a header of a record; null where it has more than ``most`` bytes."""
    return F.when(F.octet_length(part) <= most, part)


def last_header(headers: Column, name: str, most: int) -> Column:
    """The last of the ``headers`` with this name, with its size; null where none has it."""
    named = F.filter(headers, lambda header: header["key"] == name)
    # Not `element_at`: with ANSI it fails where there is none.
    last = F.get(named, F.size(named) - 1)
    return F.when(
        F.size(named) > 0,
        F.struct(
            F.lit(name).alias("key"),
            no_longer(last["value"], most).alias("value"),
            F.octet_length(last["value"]).alias("size"),
        ),
    )
