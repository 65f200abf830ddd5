"""What memory held after a batch, in one file of the state, so that a start need not fold all facts of the retention.

The file is derived: `validator.stream.recovery` reads it and folds the facts of later batches. Without it, or where it
does not fit the tables or the rules, all facts are folded. It is written in the form of Arrow's streams, one after the
other, with a checksum: the cells, and what is known of those that left memory.
"""

from __future__ import annotations

import io
import json
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

import validator
from validator.core.judging import Judging, new_cells
from validator.core.settled import SettledCells
from validator.model.books import Books, TimeRules
from validator.model.frontier import Outages, PartitionId, Rest
from validator.publish.atomic import replacing
from validator.reconcile.cells import Cells
from validator.reconcile.judge import Rules
from validator.reconcile.lateness import Reaches
from validator.state.positions import Positions
from validator.stream.retiring import Retired
from validator.stream.unexamined import Found, Unexamined
from validator.stream.void import Rereads

FILE: Final = "cells.arrow"
EVERY_SECONDS: Final = 60.0
"""How long after the last time, at least, the file is written anew."""
SHARE_MOST: Final = 0.02
"""Of the time, writing it takes no more than this."""
_FORMAT: Final = 2
_HEADER: Final = b"streamproof"
_DAMAGED: Final = (pa.ArrowException, ValueError, KeyError, TypeError, EOFError, OSError)


@dataclass(frozen=True)
class SavedCells:
    """Memory after batch ``batch``, whose instant is ``lookup_us``: what folding all facts up to it gives, less the
    settled cells. ``rules``: those that these were judged by; None where there are none. ``passed``, ``rests``,
    ``horizon_us``: as in `Judging`. ``replaced``, ``cut_back``, ``faults_topics``, ``outages``: as in `Books`.
    ``rereads``: those that it rests on. ``unexamined``: as in `RunRecord`."""

    cells: Cells
    retired: Retired
    positions: Positions
    rereads: Rereads
    unexamined: Found = field(default_factory=dict)
    rules: Rules | None = None
    batch: int = -1
    lookup_us: int = 0
    settled: SettledCells = field(default_factory=SettledCells)
    passed: list[tuple[int, int]] = field(default_factory=list)
    rests: list[tuple[int, Rest]] = field(default_factory=list)
    horizon_us: int | None = None
    replaced: frozenset[PartitionId] = frozenset()
    cut_back: frozenset[PartitionId] = frozenset()
    faults_topics: frozenset[str] = frozenset()
    outages: Outages = ()


@dataclass
class Saver:
    """Writes the file of one state now and then. ``rereads``: those that memory rests on. ``say``: told what hinders
    it."""

    state: Path
    rules: Rules
    time_rules: TimeRules
    say: Callable[[str], None] = print
    rereads: Rereads = field(default_factory=dict)
    _said: str = ""
    _due: float = field(default_factory=lambda: time.monotonic() + EVERY_SECONDS)

    def __post_init__(self) -> None:
        # What a process left that was killed while it wrote.
        for left in self.state.glob(f".{FILE}.*.tmp"):
            left.unlink(missing_ok=True)

    @property
    def is_due(self) -> bool:
        """Whether it is time to write."""
        return time.monotonic() >= self._due

    def save(self, judging: Judging, books: Books, retired: Retired, positions: Positions, unexamined: Found) -> None:
        """Write what memory holds after the last batch, whose effects are recorded. Where that cannot be written the
        file of before stays: nothing but the time of a start depends on it."""
        began = time.monotonic()
        try:
            self._write(judging, books, retired, positions, unexamined)
        except (OSError, pa.ArrowException) as error:
            said = f"{self.state / FILE} cannot be written ({error}): the next start reads older facts, too"
            if said != self._said:
                self.say(said)
            self._said = said
        ended = time.monotonic()
        self._due = ended + max(EVERY_SECONDS, (ended - began) / SHARE_MOST)

    def _write(self, judging: Judging, books: Books, retired: Retired, positions: Positions, unexamined: Found) -> None:
        judging.come_to_rest()
        cells, (settled, starts, older) = judging.cells, judging.settled.to_tables()
        plain = {
            "made_by": _made_by(self.rules, self.time_rules),
            "batch": books.batch,
            "lookup_us": books.lookup_us,
            "settled": settled,
            "passed": judging.passed,
            "rests": [(instant, rest.value) for instant, rest in judging.rests],
            "horizon_us": judging.horizon_us,
            "replaced": _plain_places(books.replaced),
            "cut_back": _plain_places(books.cut_back),
            "faults_topics": sorted(books.faults_topics),
            "outages": books.outages,
            "retired": retired.to_mark(),
            "positions": positions.to_json(books.batch),
            "examples": [[place.topic, place.partition, offset] for place, offset in positions.examples.items()],
            "rereads": self.rereads,
            "unexamined": [[place.topic, place.partition, *found] for place, found in unexamined.items()],
            "lateness": [_plain_reaches(cells.lateness.proven), _plain_reaches(cells.lateness.possible)],
            "newest_topics": cells.newest.topics if cells.newest is not None else [],
        }
        with replacing(self.state / FILE) as file:
            sink = _Summed(file)
            sink.write(_HEADER)
            _write(sink, cells.to_table().replace_schema_metadata({"plain": json.dumps(plain)}))
            _write(sink, starts)
            _write(sink, older)
            file.write(sink.sum.to_bytes(4, "big"))


def saved_cells(state: Path, rules: Rules, time_rules: TimeRules) -> SavedCells | str | None:
    """What `Saver.save` wrote last; None where there is nothing, or other rules or another version wrote it. A sentence
    that says why where it cannot be read."""
    path = state / FILE
    try:
        content = path.read_bytes()
        body, sum_ = memoryview(content)[:-4], int.from_bytes(content[-4:], "big")
        if len(content) < 4 or zlib.crc32(body) != sum_:
            raise ValueError("its checksum is another")
        return _saved(body, rules, time_rules)
    except FileNotFoundError:
        return None
    except _DAMAGED as error:
        return f"{path} cannot be read ({error}): all facts of the retention are read in its place"


def _saved(body: memoryview, rules: Rules, time_rules: TimeRules) -> SavedCells | None:
    source = pa.BufferReader(pa.py_buffer(body))
    if source.read(len(_HEADER)) != _HEADER:
        raise ValueError("it is another file")
    table, starts, older = (_read(source) for _ in range(3))
    plain = json.loads((table.schema.metadata or {})[b"plain"])
    if plain["made_by"] != _made_by(rules, time_rules):
        return None
    cells = new_cells(rules.oracle)
    if not cells.fill(table):
        return None
    cells.lateness.proven, cells.lateness.possible = map(_reaches, plain["lateness"])
    if cells.newest is not None:
        cells.newest.topics = plain["newest_topics"]
    positions = Positions.from_json(plain["positions"])
    positions.examples |= {PartitionId(topic, number): offset for topic, number, offset in plain["examples"]}
    return SavedCells(
        rules=rules,
        batch=plain["batch"],
        lookup_us=plain["lookup_us"],
        cells=cells,
        settled=SettledCells.from_tables(plain["settled"], starts, older),
        passed=[(mark_us, instant_us) for mark_us, instant_us in plain["passed"]],
        rests=[(instant_us, Rest(rest)) for instant_us, rest in plain["rests"]],
        horizon_us=plain["horizon_us"],
        replaced=frozenset(PartitionId(*place) for place in plain["replaced"]),
        cut_back=frozenset(PartitionId(*place) for place in plain["cut_back"]),
        faults_topics=frozenset(plain["faults_topics"]),
        outages=tuple((began, ended) for began, ended in plain["outages"]),
        retired=Retired.from_mark(plain["retired"]),
        positions=positions,
        rereads={topic: (batch, lookup_us) for topic, (batch, lookup_us) in plain["rereads"].items()},
        unexamined={PartitionId(*row[:2]): Unexamined(*row[2:]) for row in plain["unexamined"]},
    )


def _made_by(rules: Rules, time_rules: TimeRules) -> str:
    """What the verdicts of settled cells rest on, besides facts."""
    return f"{_FORMAT} {validator.__version__} {rules!r} {time_rules!r}"


class _Summed(io.RawIOBase):
    """A file that is written to, and the checksum of what was."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.sum = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self.sum = zlib.crc32(data, self.sum)
        self._file.write(data)
        return len(data)


def _write(sink: _Summed, table: pa.Table) -> None:
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)


def _read(source: pa.NativeFile) -> pa.Table:
    with pa.ipc.open_stream(source) as reader:
        return reader.read_all()


def _plain_places(places: frozenset[PartitionId]) -> list[tuple[str, int]]:
    return sorted((place.topic, place.partition) for place in places)


def _plain_reaches(reaches: Reaches) -> list[list[Any]]:
    return [[*place, list(of_place.items())] for place, of_place in reaches.items()]


def _reaches(plain: list[list[Any]]) -> Reaches:
    return {(topic, partition): dict(found) for topic, partition, found in plain}
