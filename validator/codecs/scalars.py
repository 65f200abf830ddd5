"""Fingerprint terms of ids, as Spark columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from validator.codecs.one_record import TOO_LARGE

Term = Callable[[Column], Column]
"""A fingerprint term of one integer."""

_TEXT_SALT: Final = "streamproof"


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


def hash_a(integer: Column) -> Column:
    """First fingerprint term of an integer id; sums of it wrap at 64 bits."""
    return F.xxhash64(integer)


def hash_b(integer: Column) -> Column:
    """Second fingerprint term of an integer id; null for null."""
    return integer * integer


def text_number(text: Column) -> Column:
    """A 64-bit stand-in of a text id, of which the fingerprint terms are taken; null for null."""
    return F.when(text.isNotNull(), F.xxhash64(F.lit(_TEXT_SALT), text))
