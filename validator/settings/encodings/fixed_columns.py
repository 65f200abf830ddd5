"""Numbers and booleans that are whole values of a fixed size, a batch at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from validator.model.arrays import Bools
from validator.settings.encodings.float32 import shortest_of


def numbers(values: pa.Array, code: str) -> pa.Array:
    """The numbers that ``code`` of `struct` describes, as 64-bit integers or doubles. Null if a value has another size,
    is NaN, or has an integer above those."""
    layout = np.dtype(code)
    found, known = _of_size(values, layout)
    if layout.kind == "f":
        doubles = np.full(len(values), np.nan)
        doubles[known] = shortest_of(found) if layout.itemsize == 4 else found
        return pa.array(doubles, from_pandas=True)
    integers = np.zeros(len(values), np.int64)
    integers[known] = found.astype(np.int64)
    too_large = integers < 0 if layout.kind == "u" else np.zeros(len(values), np.bool_)
    return pa.array(integers, mask=~known | too_large)


def booleans(values: pa.Array) -> pa.Array:
    """One byte, 0 or 1; null if a value is another."""
    found, known = _of_size(values, np.dtype(np.uint8))
    bytes_ = np.zeros(len(values), np.uint8)
    bytes_[known] = found
    return pa.array(bytes_ == 1, mask=~known | (bytes_ > 1))


def _of_size(values: pa.Array, layout: npt.DTypeLike) -> tuple[npt.NDArray[Any], Bools]:
    """The numbers of the values that have the right size, and which values have it."""
    fit = pc.fill_null(pc.equal(pc.binary_length(values), np.dtype(layout).itemsize), False)
    packed = values.filter(fit)
    _, offsets, data = packed.buffers()
    first = np.frombuffer(offsets, np.int32)[packed.offset] if len(packed) else 0
    found = np.frombuffer(data, layout, len(packed), first) if len(packed) else np.zeros(0, layout)
    return found, fit.to_numpy(zero_copy_only=False)
