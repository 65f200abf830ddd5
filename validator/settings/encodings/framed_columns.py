"""The schemas that the records of a batch name, as `registered` finds them in single records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import pyarrow as pa

from validator.model.arrays import Bools, Ints
from validator.model.schemas import RegisteredSchema, Schemas, SchemaUnknown
from validator.settings.formats.registered import PREFIX_BYTES, framed
from validator.settings.formats.seam import Unreadable


def known_columns(
    values: pa.Array, headers: pa.Array | None, schemas: Schemas, kind: str
) -> list[tuple[RegisteredSchema, Ints, int]]:
    """Each schema of a kind that records name, its rows, and where their content begins. Other rows are left out.

    Raises `SchemaUnknown` with all schemas that must be looked up.
    """
    found = list(framed_columns(values, headers))
    unknown = [schema for schema, _, _ in found if schema not in schemas]
    if unknown:
        raise SchemaUnknown(*unknown)
    named = ((schemas[schema], rows, start) for schema, rows, start in found)
    return [(schema, rows, start) for schema, rows, start in named if schema is not None and schema.kind == kind]


def framed_columns(values: pa.Array, headers: pa.Array | None) -> Iterator[tuple[int | str, Ints, int]]:
    """Yield each schema that records name, its rows, and where their content begins, as `framed` does for one record.
    Rows that name none are left out."""
    left = values.is_valid().to_numpy(zero_copy_only=False)
    if headers is not None:
        has_header = headers.is_valid().to_numpy(zero_copy_only=False) & left
        left = left & ~has_header
        encoded = headers.dictionary_encode()
        codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        for code, header in enumerate(encoded.dictionary.to_pylist()):
            rows = np.flatnonzero((codes == code) & has_header)
            with suppress(Unreadable):
                if len(rows):
                    yield framed(b"", header).schema, rows, 0
    ids, known = _ids_in_prefixes(values)
    known &= left
    while known.any():
        schema = int(ids[np.argmax(known)])
        chosen = known & (ids == schema)
        known &= ~chosen
        yield schema, np.flatnonzero(chosen), PREFIX_BYTES


def _ids_in_prefixes(values: pa.Array) -> tuple[Ints, Bools]:
    """The id in each value's prefix, and which values have a prefix."""
    _, offsets, data = values.buffers()
    starts = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    content = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    known = (np.diff(starts) >= PREFIX_BYTES) & values.is_valid().to_numpy(zero_copy_only=False)
    places = np.where(known, starts[:-1], 0)
    if len(content) < PREFIX_BYTES:
        return np.zeros(len(values), np.int64), np.zeros(len(values), np.bool_)
    known &= content[places] == 0
    numbers = np.ndarray((len(content) - 4,), ">u4", content.data, offset=1, strides=(1,))
    return numbers[places].astype(np.int64), known
