"""Texts to ids, keys and instants, as Spark columns. No Python runs per record.

Rules: docs/ARCHITECTURE.md, "Units and encodings inside".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

MICROSECONDS: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}
"""Factor from a unit of time to microseconds; nanoseconds divide."""

FARTHEST_US: Final = 2**62
"""Instants farther than that from the epoch (144,000 years) are none: a window less than them would leave 64 bits, and
an event of long ago would close every cell."""

Term = Callable[[Column], Column]
"""A fingerprint term of one integer."""

_TEXT_SALT: Final = "streamproof"


def integer_id(text: Column) -> Column:
    """The id as an integer where ``text`` is a canonical 64-bit integer, else null."""
    number = text.try_cast("bigint")
    return F.when(number.cast("string") == text, number)


def scalar(text: Column) -> Column:
    """``text`` where it was a JSON scalar, else null: the parser hands over an object or a list as its JSON text.

    A text that merely looks like one, such as a GUID in braces, is no JSON and stays.
    """
    braced = text.startswith("{") & text.endswith("}")
    bracketed = text.startswith("[") & text.endswith("]")
    return F.when(~((braced | bracketed) & F.get_json_object(text, "$").isNotNull()), text)


def hash_a(integer: Column) -> Column:
    """First fingerprint term of an integer id; sums of it wrap at 64 bits."""
    return F.xxhash64(integer)


def hash_b(integer: Column) -> Column:
    """Second fingerprint term of an integer id. Null for null, so that a fold over a list with a null id is null."""
    return integer * integer


def text_number(text: Column) -> Column:
    """A 64-bit stand-in of a text id, of which the fingerprint terms are taken; null for null."""
    return F.when(text.isNotNull(), F.xxhash64(F.lit(_TEXT_SALT), text))


def instant_us(text: Column, unit: str | None) -> Column:
    """Microseconds since the epoch of an ISO 8601 text (no zone: UTC) or of a number in ``unit``; null if neither, or
    beyond `FARTHEST_US`.

    A time without a date is refused: Spark would put today's date before it.
    """
    if unit is None:
        dated = F.substring(text, 5, 1) == "-"
        return F.when(dated, F.unix_micros(text.try_cast("timestamp")))
    whole = text.try_cast("bigint")
    if unit == "ns":
        return F.coalesce(F.floor(whole / F.lit(1000)).cast("bigint"), _decimal_us(text, "0.001"))
    factor = MICROSECONDS[unit]
    farthest = FARTHEST_US // factor
    # Not the absolute value: of the smallest integer that is itself.
    in_range = whole.between(-farthest, farthest)
    return F.when(whole.isNotNull(), F.when(in_range, whole * F.lit(factor))).otherwise(_decimal_us(text, str(factor)))


def _decimal_us(text: Column, factor: str) -> Column:
    number = text.try_cast("decimal(28,9)")
    whole = F.floor(number * F.lit(factor).cast("decimal(10,3)")).try_cast("bigint")
    return F.when(whole.between(-FARTHEST_US, FARTHEST_US), whole)


def key_text(parts: list[Column]) -> Column:
    """A key as one text: of one field its text, of several the JSON array of their texts; null if any is null."""
    if len(parts) == 1:
        return parts[0]
    whole = F.to_json(F.array(*parts))
    present = parts[0].isNotNull()
    for part in parts[1:]:
        present = present & part.isNotNull()
    return F.when(present, whole)
