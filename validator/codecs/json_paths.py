"""JSON records to columns: dotted paths become one nested schema, read once by Spark's own parser."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType, StructField, StructType

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


def at(parsed: Column, path: str) -> Column:
    """The leaf at a dotted path; null where any part of the path is absent."""
    column = parsed
    for name in path.split("."):
        column = column[name]
    return column


def is_whole(parsed: Column) -> Column:
    """True where the record was JSON and every field had the type asked for."""
    return parsed.isNotNull() & parsed[_CORRUPT].isNull()
