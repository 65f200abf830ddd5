"""JSON records to columns: dotted paths become one nested schema, read once by Spark's own parser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType, StructField, StructType

from validator.codecs.scalars import integer_id

_ALL: Final = 2**31 - 1
_CORRUPT: Final = "_streamproof_corrupt_record"
_OPTIONS: Final = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}


def nested_schema(leaves: Mapping[str, DataType]) -> StructType:
    """The struct that holds every dotted path of ``leaves``, plus the column that takes a record that is not JSON."""
    tree: dict[str, object] = {}
    for path, leaf in leaves.items():
        node = tree
        *parents, last = path.split(".")
        for name in parents:
            below = node.setdefault(name, {})
            if not isinstance(below, dict):
                raise ValueError(f"field path {path!r} goes through {name!r}, which another field reads as a value")
            node = below
        if isinstance(node.get(last), dict):
            raise ValueError(f"field path {path!r} is also the parent of another field")
        node[last] = leaf
    root = _struct(tree)
    return StructType([*root.fields, StructField(_CORRUPT, StringType())])


def _struct(tree: Mapping[str, object]) -> StructType:
    fields = []
    for name, node in tree.items():
        if isinstance(node, dict):
            fields.append(StructField(name, _struct(node)))
        else:
            assert isinstance(node, DataType)
            fields.append(StructField(name, node))
    return StructType(fields)


def parse(value: Column, schema: StructType) -> Column:
    """``value`` (text) as a struct of ``schema``. Only an object is taken: Spark would take an array's first
    element."""
    return F.when(F.ltrim(value).startswith("{"), F.from_json(value, schema, _OPTIONS))


def parse_flat(frame: DataFrame, value: Column, names: Sequence[str], into: str) -> DataFrame:
    """``frame`` with the column ``into``: the struct that `parse` gives for top-level text fields ``names``, taken
    from the
    text itself where the record is plainly one flat object, and from Spark's parser everywhere else.

    The short way costs a quarter of the parser's. It is taken only when: the text is valid UTF-8, starts with
    ``{``, ends
    with ``}``, and holds no further brace, no bracket, no backslash and no doubled comma; each field's ``"name":``
    occurs exactly once (without backslashes it cannot be inside a string); and each value is a closed string or a
    canonical integer. What it does not look at is the syntax of fields that nobody reads.
    """
    text, guard = f"{into}_text", f"{into}_plain"
    rows = frame.withColumn(text, value)
    whole = F.col(text)
    plain = (
        whole.startswith("{")
        & whole.endswith("}")
        & (F.instr(F.substring(whole, 2, _ALL), F.lit("{")) == 0)
        & ~whole.contains("[")
        & ~whole.contains("\\")
        & ~whole.contains(",,")
        & ~whole.contains(",}")
        & F.is_valid_utf8(whole)
    )
    rows = rows.withColumn(guard, plain)
    length = F.octet_length(whole)
    tails, fields = {}, []
    for number, name in enumerate(names):
        marker = f'"{name}":'
        tail = F.substring_index(whole, marker, -1)
        head = F.substring_index(whole, marker, 1)
        once = F.octet_length(tail) + F.octet_length(head) + F.lit(len(marker.encode())) == length
        tails[f"{into}_{number}"] = F.when(F.col(guard) & once, F.ltrim(tail))
    rows = rows.withColumns(tails)
    for number, name in enumerate(names):
        fields.append(_plain_value(F.col(f"{into}_{number}")).alias(f"{into}_{name}_value"))
    rows = rows.select(*frame.columns, text, *fields)
    complete = F.lit(True)
    for name in names:
        complete = complete & F.col(f"{into}_{name}_value").isNotNull()
    schema = nested_schema({name: StringType() for name in names})
    short = F.struct(
        *[F.col(f"{into}_{name}_value").alias(name) for name in names], F.lit(None).cast("string").alias(_CORRUPT)
    )
    parsed = F.when(complete, short).otherwise(parse(whole, schema))
    return rows.withColumn(into, parsed).select(*frame.columns, into)


def _plain_value(tail: Column) -> Column:
    """The value at the start of ``tail`` if it is a closed string or a canonical integer, else null."""
    inside = F.substring(tail, 2, _ALL)
    string = F.substring_index(inside, '"', 1)
    # What follows the closing quote must end the value: a quote too few or too many is for the parser to refuse.
    after = F.substring(inside, F.length(string) + 2, F.lit(1))
    closed = after.isin(",", "}")
    number = F.rtrim(F.substring_index(F.substring_index(tail, ",", 1), "}", 1))
    return F.when(tail.startswith('"'), F.when(closed, string)).when(integer_id(number).isNotNull(), number)


def at(parsed: Column, path: str) -> Column:
    """The leaf at a dotted path; null where any part of the path is absent."""
    column = parsed
    for name in path.split("."):
        column = column[name]
    return column


def is_whole(parsed: Column) -> Column:
    """True where the record was JSON and every field had the type asked for."""
    return parsed.isNotNull() & parsed[_CORRUPT].isNull()
