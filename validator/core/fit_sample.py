"""A sample of events: the cells to which they belong, and those in which results name them (SEMANTICS 4.27).

The sample holds the ids with the smallest hashes. It is a union of sets, so it depends neither on the order of facts
nor on their division into batches, and facts that are added twice change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from validator.codecs.columns import DECODED
from validator.codecs.fingerprints import hash_a, text_numbers
from validator.model import arrays
from validator.model.arrays import Ints, ints, listed
from validator.oracles.seam import Oracle
from validator.reconcile.facts import Kind, Side

IDS_MOST: Final = 256
ROWS_OF_A_CELL: Final = 8
"""An update of a window names all of its events again; the first results of a cell are enough."""
SAME_MOST: Final = 4
"""Ids of one hash, of which there are several only if they are the same number as a double."""
_ADDED_AT_ONCE: Final = 1_024
_ROWS_MOST: Final = 16_384
"""Bounds the sample if an event is in many windows: fewer ids are then kept."""
_EXACT: Final = 2**53
"""From here on, a double does not hold every integer."""
_GUESS: Final = 4
"""A batch's smallest hashes are first looked for below this many times their expected limit."""

_AT_ONCE: Final = 16_384
"""Number of ids that are hashed together, so that their numbers stay in the processor's cache."""

_HALF: Final = np.uint64(32)
_MIX_A: Final = np.uint64(0x9E3779B185EBCA87)
_MIX_B: Final = np.uint64(0xC2B2AE3D27D4EB4F)

_Ranks = npt.NDArray[np.uint64]
Name = tuple[int, str]
"""Hash of an id, and the id as text. Ids that are the same number as a double have the same hash."""


class Expected(NamedTuple):
    """A cell to which an event belongs. ``start_us`` is `ABSENT` if cells have no start."""

    topic: str
    start_us: int
    key: str | None


class Named(NamedTuple):
    """A cell in which a result names an event. ``time_us``: broker time of the result. ``size``: its number of ids."""

    topic: str
    partition: int
    offset: int
    start_us: int
    key: str | None
    time_us: int
    size: int


@dataclass
class Sampled:
    """What is known of one id. Each set holds the smallest rows of each cell, and one cell more than
    `FitSample.cells_most` if there are more."""

    expected: set[Expected] = field(default_factory=set)
    named: set[Named] = field(default_factory=set)


@dataclass
class FitSample:
    """The sample. ``ids_most``: number of different hashes, of which each has at most `SAME_MOST` ids. ``cells_most``:
    number of cells per id and set; an id with more is incomplete. ``version`` rises with each change."""

    ids_most: int = IDS_MOST
    cells_most: int = 4
    found: dict[Name, Sampled] = field(default_factory=dict)
    version: int = 0
    _below: np.uint64 | None = None

    @classmethod
    def of(cls, oracle: Oracle) -> Self:
        """Return an empty sample for the cells of ``oracle``; it stays empty if results name no ids."""
        if not oracle.reads.names_ids:
            return cls(0)
        return cls(max(16, min(IDS_MOST, _ROWS_MOST // oracle.cells_most)), 2 * oracle.cells_most + 2)

    def absorb(self, facts: pa.Table) -> None:
        """Add fact rows."""
        if not self.ids_most:
            return
        parts = [(part, *_chosen(part.ids, self._below)) for part in _contributions(facts)]
        self._narrow([ranks for _, _, ranks in parts])
        for part, places, ranks in parts:
            few = np.arange(len(ranks)) if self._below is None else np.flatnonzero(ranks < self._below)
            for start in range(0, len(few), _ADDED_AT_ONCE):
                some = few[start : start + _ADDED_AT_ONCE]
                self._add(facts, part, places[some], ranks[some])
                self._thin()

    def put(self, name: Name, expected: Iterable[Expected] = (), named: Iterable[Named] = ()) -> None:
        """Add rows of one id."""
        one = self.found.setdefault(name, Sampled())
        before = len(one.expected), len(one.named)
        one.expected.update(expected)
        one.named.update(named)
        if (len(one.expected), len(one.named)) != before:
            self.version += 1
        for rows in (one.expected, one.named):
            if len(rows) > ROWS_OF_A_CELL:
                rows -= set(_beyond(rows, self.cells_most + 1))

    def merge(self, other: FitSample) -> None:
        """Add the rows of another sample."""
        self._narrow([np.array([rank for rank, _ in other.found], dtype=np.uint64)])
        for name, one in other.found.items():
            if self._below is None or name[0] < self._below:
                self.put(name, one.expected, one.named)
        self._thin()

    def to_json(self) -> list[Any]:
        """Return plain values, in a fixed order."""
        return [
            [rank, id_, *(list(map(list, sorted(rows, key=_order))) for rows in (one.expected, one.named))]
            for (rank, id_), one in sorted(self.found.items())
        ]

    def add_json(self, kept: Sequence[Any]) -> None:
        """Add what `to_json` returned."""
        other = FitSample(self.ids_most, self.cells_most)
        for rank, id_, expected, named in kept:
            other.put((rank, id_), (Expected(*row) for row in expected), (Named(*row) for row in named))
        self.merge(other)

    def _narrow(self, ranks: Sequence[_Ranks]) -> None:
        """Lower the limit, so that the sample and ``ranks`` together have `ids_most` different hashes below it."""
        below = [part if self._below is None else part[part < self._below] for part in ranks]
        count = sum(map(len, below))
        if not count:
            return
        known = np.array(sorted({rank for rank, _ in self.found}), dtype=np.uint64)
        smallest = known
        if count > 2 * _GUESS * self.ids_most:
            # Sorting all hashes of a large batch would take longer than computing them.
            guess = np.uint64(2**64 * _GUESS * self.ids_most // count)
            smallest = np.unique(np.concatenate([known, *(part[part < guess] for part in below)]))
        if len(smallest) <= self.ids_most:
            smallest = np.unique(np.concatenate([known, *below]))
        if len(smallest) > self.ids_most:
            self._below = smallest[self.ids_most]
            self.found = {name: one for name, one in self.found.items() if name[0] < self._below}

    def _thin(self) -> None:
        """Keep `SAME_MOST` ids of each hash: those that are a double, then the smallest. Dense ids beyond 2^53 would
        otherwise fill the sample without bound."""
        if len(self.found) <= len({rank for rank, _ in self.found}):
            return
        of_hash: dict[int, list[str]] = {}
        for rank, id_ in self.found:
            of_hash.setdefault(rank, []).append(id_)
        for rank, ids in of_hash.items():
            if len(ids) > SAME_MOST:
                for id_ in sorted(ids, key=lambda it: (not _is_double(it), it))[SAME_MOST:]:
                    del self.found[rank, id_]

    def _add(self, facts: pa.Table, part: _Part, chosen: Ints, ranks: _Ranks) -> None:
        columns = {name: facts[name].take(pa.array(part.rows[chosen])).to_pylist() for name in _OF_ROW}
        ids = part.ids.take(pa.array(chosen)).to_pylist()
        results = None if part.results is None else _claims(part.results, part.result[chosen])
        for i, (rank, id_) in enumerate(zip(ranks.tolist(), ids, strict=True)):
            row = {name: column[i] for name, column in columns.items()}
            if row["kind"] != Kind.FACT.value or row["status"] != DECODED:
                continue
            start = arrays.ABSENT if row["window_start_us"] is None else row["window_start_us"]
            if row["side"] == Side.INPUT.value:
                self.put((rank, str(id_)), [Expected(row["topic"], start, row["key"])])
            elif results is not None:
                offset, time_us, size = results[i]
                named = Named(row["topic"], row["partition"], offset, start, row["key"], time_us, size)
                self.put((rank, str(id_)), named=[named])


_OF_ROW: Final = ("kind", "side", "topic", "partition", "status", "window_start_us", "key")
SAMPLE_COLUMNS: Final = (*_OF_ROW, "ids", "text_ids", "results")
"""The columns of a fact that `FitSample.absorb` needs."""


def rank_of(id_: int | str) -> Name:
    """Return the name of an id in a sample."""
    return int(_ranks(pa.array([id_]), None)[1][0]), str(id_)


class _Part(NamedTuple):
    """Contributions of one kind, one entry each. ``rows``: row of the fact. ``result``: number of the result in
    ``results``."""

    ids: pa.Array
    rows: Ints
    result: Ints
    results: pa.Array | None


def _claims(results: pa.Array, chosen: Ints) -> list[tuple[int, int, int]]:
    """Return offset, broker time and number of ids of the ``chosen`` results. Their ids are not copied: a result may
    have very many."""
    numbers, texts = (ints(pc.list_value_length(arrays.field(results, name)), 0) for name in ("ids", "text_ids"))
    columns = ints(arrays.field(results, "offset")), ints(arrays.field(results, "time_us"), 0), numbers + texts
    return list(zip(*(column[chosen].tolist() for column in columns), strict=True))


def _contributions(facts: pa.Table) -> Iterator[_Part]:
    nothing = np.zeros(0, dtype=np.int64)
    for name in ("ids", "text_ids"):
        rows, items = listed(facts[name])
        ids = arrays.field(items, "id")
        yield _Part(ids, rows, nothing, None)
    parents, results = listed(facts["results"])
    for name in ("ids", "text_ids"):
        of_result, ids = listed(arrays.field(results, name))
        yield _Part(ids, parents[of_result], of_result, results)


def _chosen(ids: pa.Array, below: np.uint64 | None) -> tuple[Ints, _Ranks]:
    """Return the places and hashes of the ids whose hash is below ``below``."""
    places, found = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.uint64)]
    for start in range(0, len(ids), _AT_ONCE):
        few, ranks = _ranks(ids.slice(start, _AT_ONCE), below)
        places.append(few + start)
        found.append(ranks)
    return np.concatenate(places), np.concatenate(found)


def _ranks(ids: pa.Array, below: np.uint64 | None) -> tuple[Ints, _Ranks]:
    if pa.types.is_integer(ids.type):
        ranks = _number_ranks(ints(ids))
        few = np.arange(len(ranks)) if below is None else np.flatnonzero(ranks < below)
        return few, ranks[few]
    heads = _heads(ids.cast(pa.string()))
    few = np.arange(len(heads)) if below is None else np.flatnonzero(heads <= below)
    ranks = heads[few] | text_numbers(ids.take(pa.array(few)).cast(pa.string())).view(np.uint64) >> _HALF
    chosen = slice(None) if below is None else ranks < below
    return few[chosen], ranks[chosen]


def _number_ranks(ids: Ints) -> _Ranks:
    if len(ids) and (ids.max() >= _EXACT or ids.min() <= -_EXACT):
        # An id that a double has rounded gets the hash of the exact one, so that both are in the sample.
        ids = np.clip(ids.astype(np.float64), -(2.0**63), 2.0**63 - 1024).astype(np.int64)
    return hash_a(ids).view(np.uint64)


def _heads(texts: pa.Array) -> _Ranks:
    """Return the upper half of each text's hash: a mix of its length, its first and its last 8 bytes. To hash all of
    every text would take longer than to fold the facts."""
    _, ends, data = texts.buffers()
    at = np.frombuffer(ends, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    characters = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)[at[0] : at[-1]]
    pad = np.zeros(8, dtype=np.uint8)
    padded, at = np.concatenate([pad, characters, pad]), at - at[0]
    words = np.ndarray((len(padded) - 7,), "<u8", buffer=padded, strides=(1,))
    sizes = np.diff(at).astype(np.uint64)
    # A word holds bytes of a neighbour if the text is shorter.
    other = np.minimum(8 - np.minimum(sizes, 8), 7) * np.uint64(8)
    with np.errstate(over="ignore"):
        found = (words[at[1:]] >> other) * _MIX_A ^ (words[at[:-1] + 8] << other) * _MIX_B
        found = (found ^ found >> _HALF ^ sizes) * _MIX_A
    return np.where(sizes == 0, np.uint64(0), found) >> _HALF << _HALF


def _is_double(id_: str) -> bool:
    """Return whether an id is a number that a double holds exactly."""
    try:
        return int(float(id_)) == int(id_)
    except (ValueError, OverflowError):
        return False


def _beyond(rows: Iterable[Expected | Named], cells_most: int) -> Iterator[Expected | Named]:
    """Yield the rows beyond the bounds: those of later cells, and the later ones of each cell."""
    of_cell: dict[tuple[Any, ...], list[Expected | Named]] = {}
    for row in sorted(rows, key=_order):
        of_cell.setdefault((row.start_us, row.key is not None, row.key), []).append(row)
    for number, cell in enumerate(sorted(of_cell)):
        yield from of_cell[cell][ROWS_OF_A_CELL if number < cells_most else 0 :]


def _order(row: Expected | Named) -> tuple[Any, ...]:
    """Sort key of a row: null keys come first."""
    return tuple((value is not None, value) for value in row)


def merged(samples: Iterable[FitSample]) -> FitSample:
    """Return the union of samples of one oracle."""
    first, *others = samples
    found = FitSample(first.ids_most, first.cells_most)
    for one in (first, *others):
        found.merge(one)
    return found


def results_in(found: Mapping[Name, Sampled]) -> set[Named]:
    """Return the claims of a sample."""
    return {claim for one in found.values() for claim in one.named}
