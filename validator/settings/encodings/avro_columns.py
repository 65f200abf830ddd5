"""Avro's binary encoding, a batch at a time: the records for which it is certain that `avro_values` finds the same.

All records of one schema are read together, field by field, by NumPy. A record that may be invalid is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from validator.model.arrays import Ints
from validator.model.schemas import RegisteredSchema, Schemas
from validator.settings.encodings.avro_schema import Node, SchemaInvalid, node_at, parsed_schema
from validator.settings.encodings.framed_columns import known_columns
from validator.settings.encodings.packed_columns import Columns, Packed, floats_of, joined, of_good
from validator.settings.formats.seam import Path

_INTEGERS: Final = ("int", "long")
_FIXED_SIZES: Final = {"float": 4, "double": 8}
_ITEMS_MAX: Final = 10_000
"""Largest number of items of a list whose items are read one by one."""
_DEEPEST: Final = 50
_INT_MAX: Final = 2**31


class _TooOdd(Exception):
    """Records that this module leaves to `avro_values`."""


class _Part(NamedTuple):
    """What was read at a path. ``rows``: one for each value. ``values``: integers, texts, or the starts and ends of
    texts."""

    rows: Ints
    values: Ints | pa.Array


def columns(
    text: str | None,
    schemas: Schemas | None,
    values: pa.Array,
    paths: Sequence[Path],
    lists: Sequence[Path],
    headers: pa.Array | None,
) -> Columns | None:
    """As `ColumnReader.read_columns`. ``text``, ``schemas``: those of the `AvroReader`."""
    found: list[tuple[Ints, Columns]] = []
    for schema, rows, starts in _groups(text, schemas, values, headers):
        node = _node(schema, text if schemas is not None else None)
        if node is None:
            continue
        of_group = _of_schema(node, values, rows, starts, paths, lists)
        if of_group is not None:
            found.append(of_group)
    return joined(len(values), found)


def _groups(
    text: str | None, schemas: Schemas | None, values: pa.Array, headers: pa.Array | None
) -> Iterable[tuple[RegisteredSchema, Ints, int]]:
    """The rows of each known schema, and where their content begins."""
    if schemas is None:
        assert text is not None, "without a registry there is a file"
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        yield RegisteredSchema("AVRO", text), np.flatnonzero(valid), 0
        return
    yield from known_columns(values, headers, schemas, "AVRO")


@lru_cache(maxsize=256)
def _node(schema: RegisteredSchema, reader: str | None) -> Node | None:
    """The schema, if values that it wrote have the same form for the reader's schema."""
    try:
        writers = parsed_schema(schema.text, schema.references)
        readers = writers if reader is None else parsed_schema(reader)
    except SchemaInvalid:
        return None
    return writers if reader is None or _alike(writers, readers, 0) else None


def _alike(writers: Node, readers: Node, depth: int) -> bool:
    """Whether reading changes no value, adds no field and names none differently."""
    if depth > _DEEPEST or writers.kind != readers.kind or writers.unit != readers.unit:
        return False
    if (writers.logical, writers.scale, writers.size) != (readers.logical, readers.scale, readers.size):
        return False
    if writers.symbols != readers.symbols or len(writers.branches) != len(readers.branches):
        return False
    pairs = list(zip(writers.branches, readers.branches, strict=True))
    if writers.kind == "record":
        if [one.name for one in writers.fields] != [one.name for one in readers.fields]:
            return False
        pairs += [(a.node, b.node) for a, b in zip(writers.fields, readers.fields, strict=True)]
    if writers.items is not None and readers.items is not None:
        pairs.append((writers.items, readers.items))
    return all(_alike(a, b, depth + 1) for a, b in pairs)


def _of_schema(
    node: Node, values: pa.Array, rows: Ints, start: int, paths: Sequence[Path], lists: Sequence[Path]
) -> tuple[Ints, Columns] | None:
    """The rows of one schema that can be read, and their columns."""
    _, offsets, data = values.buffers()
    if data is None or not len(rows):
        return None
    places = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    first, last = int(places[0]), int(places[-1])
    content = np.frombuffer(data, np.uint8)[first:last]
    packed = Packed(content, places[:-1][rows] - first + start, places[1:][rows] - first)
    walk = _Walk(packed, frozenset(paths), frozenset(lists))
    everyone = np.arange(len(rows))
    try:
        walk.read(node, (), everyone, 0)
        packed.bad |= packed.at != packed.ends
        found = {path: walk.column(path, node) for path in paths}
        found |= {path: walk.list_column(path) for path in lists}
    except _TooOdd:
        return None
    return of_good(packed, rows, found)


class _Walk:
    """Reads the rows of a batch, type by type, and keeps what is at the wanted paths."""

    def __init__(self, packed: Packed, paths: frozenset[Path], lists: frozenset[Path]) -> None:
        self._packed = packed
        self._paths = paths
        self._lists = lists
        self._kept: dict[Path, list[_Part]] = {path: [] for path in (*paths, *lists)}
        self._has_list = {path: np.zeros(len(packed.at), np.bool_) for path in lists}

    def read(self, node: Node, path: Path | None, rows: Ints, depth: int) -> None:
        """Read a value of each of ``rows``. ``path``: None below a list."""
        packed = self._packed
        rows = packed.good(rows)
        if not len(rows) or node.kind == "null":
            return
        if depth > _DEEPEST:
            raise _TooOdd
        match node.kind:
            case "record":
                for one in node.fields:
                    self.read(one.node, None if path is None else (*path, one.name), rows, depth + 1)
            case "union":
                index = packed.signed(rows)
                packed.refuse(rows, (index < 0) | (index >= len(node.branches)))
                for number, branch in enumerate(node.branches):
                    self.read(branch, path, rows[index == number], depth + 1)
            case "array" | "map":
                self._list(node, path, rows, depth)
            case "int" | "long":
                numbers = packed.signed(rows)
                if node.kind == "int":
                    packed.refuse(rows, (numbers < -_INT_MAX) | (numbers >= _INT_MAX))
                self._keep(path, rows, numbers)
            case "enum":
                numbers = packed.signed(rows)
                wrong = (numbers < 0) | (numbers >= len(node.symbols))
                packed.refuse(rows, wrong)
                if path in self._paths:
                    symbols = pa.array(node.symbols, pa.string())
                    self._keep(path, rows, symbols.take(pa.array(numbers, mask=wrong)))
            case "string" | "bytes":
                self._text(node, path, rows)
            case "float" | "double":
                bits = packed.fixed(rows, _FIXED_SIZES[node.kind])
                if path in self._paths:
                    self._keep(path, rows, floats_of(bits, _FIXED_SIZES[node.kind]))
            case "boolean":
                found = packed.content[packed.at[rows]]
                packed.refuse(rows, found > 1)
                packed.advance(rows, 1)
                self._keep(path, rows, pa.array(found == 1))
            case _:
                if path in self._paths:
                    raise _TooOdd
                packed.advance(rows, node.size)

    def _text(self, node: Node, path: Path | None, rows: Ints) -> None:
        packed = self._packed
        sizes = packed.signed(rows)
        packed.refuse(rows, sizes < 0)
        starts, ends = packed.spans(rows, np.maximum(sizes, 0))
        if node.kind == "string":
            bad = packed.bad[rows]
            if bad.any():
                rows, starts, ends = rows[~bad], starts[~bad], ends[~bad]
            # The texts of other fields are read to find those that are not UTF-8.
            self._keep(path, rows, packed.texts(rows, starts, ends))
            return
        if path in self._paths:
            raise _TooOdd
        if node.logical == "decimal":
            packed.refuse(rows, sizes == 0)

    def _list(self, node: Node, path: Path | None, rows: Ints, depth: int) -> None:
        assert node.items is not None, "an array or map has items"
        packed, items = self._packed, node.items
        wanted = path is not None and path in self._lists
        if wanted and (node.kind == "map" or items.kind not in ("int", "long", "string")):
            raise _TooOdd
        # A path below a list has an index, which the rule looks up.
        if path is not None and any(len(one) > len(path) and one[: len(path)] == path for one in self._kept):
            raise _TooOdd
        if wanted and path is not None:
            self._has_list[path][rows] = True
        while len(rows := packed.good(rows)):
            counts = packed.signed(rows)
            sized = counts < 0
            if sized.any():
                packed.refuse(rows, counts == np.iinfo(np.int64).min)
                packed.signed(rows[sized])
                counts = np.where(sized, -counts, counts)
            rows, counts = rows[counts > 0], counts[counts > 0]
            bad = packed.bad[rows]
            rows, counts = rows[~bad], counts[~bad]
            if not len(rows):
                return
            if items.kind in _INTEGERS and node.kind == "array":
                numbers, counts = packed.run_of_signed(rows, counts)
                owners = np.repeat(rows, counts)
                if items.kind == "int":
                    packed.refuse(owners, (numbers < -_INT_MAX) | (numbers >= _INT_MAX))
                if wanted:
                    self._kept_list(path, owners, numbers)
                continue
            if counts.max() > _ITEMS_MAX:
                packed.refuse(rows, counts > _ITEMS_MAX)
            self._items(node, path if wanted else None, rows, counts, depth)

    def _items(self, node: Node, path: Path | None, rows: Ints, counts: Ints, depth: int) -> None:
        """Read ``counts`` items of each of ``rows``, the first items of all rows together, then the second ones."""
        assert node.items is not None, "an array or map has items"
        packed = self._packed
        number = 0
        while True:
            has_item = (counts > number) & ~packed.bad[rows]
            active = rows[has_item]
            if not len(active):
                return
            if node.kind == "map":
                self._text(Node("string"), None, active)
            if path is None:
                self.read(node.items, None, active, depth + 1)
            else:
                sizes = packed.signed(active)
                packed.refuse(active, sizes < 0)
                starts, ends = packed.spans(active, np.maximum(sizes, 0))
                self._kept[path].append(_Part(active, np.stack([starts, ends])))
            number += 1

    def _keep(self, path: Path | None, rows: Ints, values: Ints | pa.Array) -> None:
        if path is not None and path in self._paths:
            self._kept[path].append(_Part(rows, values))

    def _kept_list(self, path: Path | None, owners: Ints, numbers: Ints) -> None:
        assert path is not None, "a wanted list has a path"
        self._kept[path].append(_Part(owners, numbers))

    def column(self, path: Path, root: Node) -> pa.Array:
        """What was kept at a path, one value per row. Null where there is none."""
        parts = self._kept[path]
        if not parts:
            raise _TooOdd
        order = np.full(len(self._packed.at), -1, np.int64)
        order[np.concatenate([part.rows for part in parts])] = np.arange(sum(len(part.rows) for part in parts))
        arrays = [pa.array(part.values) if isinstance(part.values, np.ndarray) else part.values for part in parts]
        if len({str(array.type) for array in arrays}) > 1:
            raise _TooOdd
        found = pa.concat_arrays(arrays)
        node = node_at(root, path)
        if found.type == pa.int64() and node is not None and node.unit is not None:
            if node.unit == "d" or len(parts) > 1:
                raise _TooOdd
            found = found.cast(pa.timestamp(node.unit))
        return found.take(pa.array(order, mask=order < 0))

    def list_column(self, path: Path) -> pa.ListArray:
        """The lists at a path; null in rows without a list."""
        parts = self._kept[path]
        rows = np.concatenate([part.rows for part in parts]) if parts else np.zeros(0, np.int64)
        order: Ints | slice = slice(None) if len(parts) == 1 else np.argsort(rows, kind="stable")
        lengths = np.bincount(rows, minlength=len(self._packed.at))
        ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        if parts and isinstance(parts[0].values, np.ndarray) and parts[0].values.ndim == 2:
            starts, stops = np.concatenate([part.values for part in parts], axis=1)[:, order]
            items = self._packed.texts_of_good(rows[order], starts, stops)
        else:
            items = pa.array(np.concatenate([part.values for part in parts])[order] if parts else rows)
        return pa.ListArray.from_arrays(pa.array(ends), items, mask=pa.array(~self._has_list[path]))
