"""Changes of rows that Arrow decodes exactly as the rule does (`validator.codecs.one_record`): the rows after a change
are read together, then the rows before one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from validator.codecs.fingerprints import Ints
from validator.codecs.plain_fields import Read, Readers, bools, read
from validator.codecs.plain_json import Bools, Path
from validator.model.envelopes import Envelope, Image


@dataclass(frozen=True)
class Decoded:
    """``rows``: the rows of a batch that are decoded."""

    rows: Ints


Some = TypeVar("Some", bound=Decoded)


class Changes(NamedTuple):
    """Changes that are read. ``operations``: their texts. ``known``: the rows whose operation is one of the image."""

    part: Read
    operations: pa.Array
    known: Bools


def by_image(
    batch: pa.RecordBatch, envelope: Envelope, decoded: Callable[[pa.RecordBatch, Image], Iterable[Some]]
) -> Iterator[Some]:
    """Yield what ``decoded`` returns for each image, of the rows that are left from the images before it."""
    if envelope.is_listed:
        return
    rows = np.arange(batch.num_rows)
    for image in envelope.images:
        some = batch if len(rows) == batch.num_rows else batch.take(pa.array(rows))
        left = np.ones(len(rows), dtype=np.bool_)
        for one in decoded(some, image):
            left[one.rows] = False
            yield replace(one, rows=rows[one.rows])
        rows = rows[left]
        if not len(rows):
            return


def read_image(
    batch: pa.RecordBatch,
    envelope: Envelope,
    image: Image,
    places: Sequence[Path],
    lists: Sequence[Path] = (),
    most: int = 2**31,
    any_scalars: Collection[Path] = (),
    readers: Readers | None = None,
    amounts: Sequence[Path] = (),
    counted: Sequence[Path] = (),
) -> Iterator[Changes]:
    """As `validator.codecs.plain_fields.read`, of the rows in one image."""
    operation = (*envelope.around, envelope.operation)
    paths = {place: envelope.in_value(place, image.field) for place in (*places, *lists, *amounts, *counted)}
    wanted = [operation, *(paths[place] for place in places)]
    # Other fields must also have the type of another one.
    scalars = [path for path in (paths[place] for place in any_scalars) if wanted.count(path) == 1]
    of_lists, numbers, others = ([paths[place] for place in of] for of in (lists, amounts, counted))
    for part in read(batch, wanted, of_lists, most, scalars, readers, numbers, others):
        operations = part.at(operation)
        if operations.type == pa.string():
            known = pc.is_in(operations, value_set=pa.array(image.operations, pa.string()))
            yield Changes(part._replace(paths=paths), operations, bools(known))
