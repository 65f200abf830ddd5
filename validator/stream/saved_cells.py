"""Saves the cells in memory after a batch to a file, so that the next start need not fold all retained facts.

The file is derived: `validator.stream.recovery` reads it and folds the facts of later batches. If the file is absent,
or does not match the tables or the rules, all facts are folded. The file consists of consecutive Arrow streams and a
checksum. The streams have the cells, and the settled cells that have left memory.
"""

from __future__ import annotations

import io
import json
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

import validator
from validator.core.evicted import EvictedCells
from validator.core.fit_sample import FitSample
from validator.core.judging import Judging, new_cells
from validator.core.unread import Unexamined
from validator.model.coverage import Difference
from validator.model.frontier import Outages, PartitionId, RunEnd
from validator.model.progress import IngestProgress, TimeRules
from validator.publish.atomic import replacing
from validator.reconcile.cells import Cells
from validator.reconcile.judge import Rules
from validator.reconcile.lateness import Lateness, Reaches
from validator.state.positions import Positions
from validator.stream.retention import Retired
from validator.stream.void_facts import Rereads

FILE: Final = "cells.arrow"
EVERY_SECONDS: Final = 60.0
"""Minimum interval between two writes of the file."""
SHARE_MAX: Final = 0.02
"""Maximum share of the time that is spent on writing the file."""
_FORMAT: Final = 5
_HEADER: Final = b"streamproof"
_DAMAGED: Final = (pa.ArrowException, ValueError, KeyError, TypeError, EOFError, OSError)


@dataclass(frozen=True)
class SavedCells:
    """The cells after batch ``batch`` with lookup instant ``lookup_us``, as folding all facts up to it would give them.

    ``evicted``: the settled cells that have left memory. ``rules``: the rules by which they were judged; None if
    nothing is saved. ``watermark_steps``, ``run_ends``, ``horizon_us``, ``sample``: as in `Judging`. ``replaced``,
    ``cut_back``,
    ``faults_topics``, ``former_ids``, ``outages``, ``differences``: as in `IngestProgress`. ``rereads``: those
    decisions to read a topic again that ``cells`` takes into account. ``unexamined``: as in `Unread`.
    """

    cells: Cells
    retired: Retired
    positions: Positions
    rereads: Rereads
    sample: FitSample
    unexamined: Mapping[PartitionId, Unexamined] = field(default_factory=dict)
    rules: Rules | None = None
    batch: int = -1
    lookup_us: int = 0
    evicted: EvictedCells = field(default_factory=EvictedCells)
    watermark_steps: list[tuple[int, int]] = field(default_factory=list)
    run_ends: list[tuple[int, RunEnd]] = field(default_factory=list)
    horizon_us: int | None = None
    replaced: frozenset[PartitionId] = frozenset()
    cut_back: frozenset[PartitionId] = frozenset()
    faults_topics: frozenset[str] = frozenset()
    former_ids: frozenset[str] = frozenset()
    outages: Outages = ()
    differences: tuple[Difference, ...] = ()


@dataclass
class Saver:
    """Writes the file of one state periodically.

    ``rereads``: those decisions to read a topic again that the cells in memory take into account. ``say``: receives a
    sentence if the file cannot be written.
    """

    state: Path
    rules: Rules
    time_rules: TimeRules
    say: Callable[[str], None] = print
    rereads: Rereads = field(default_factory=dict)
    _reported: str = ""
    _due: float = field(default_factory=lambda: time.monotonic() + EVERY_SECONDS)

    def __post_init__(self) -> None:
        # Temporary files are left by a process that was killed while it wrote.
        for left in self.state.glob(f".{FILE}.*.tmp"):
            left.unlink(missing_ok=True)

    @property
    def is_due(self) -> bool:
        """Whether the next write is due."""
        return time.monotonic() >= self._due

    def save(self, judging: Judging, progress: IngestProgress, retired: Retired, positions: Positions) -> None:
        """Write the cells after the last batch, whose effects must be recorded in the derived tables.

        If the file cannot be written, the previous one stays: only the duration of the next start depends on it.
        """
        if self.rules.oracle.tables:
            return
        began = time.monotonic()
        try:
            self._write(judging, progress, retired, positions)
        except (OSError, pa.ArrowException) as error:
            sentence = f"{self.state / FILE} cannot be written ({error}): the next start takes longer"
            if sentence != self._reported:
                self.say(sentence)
            self._reported = sentence
        ended = time.monotonic()
        self._due = ended + max(EVERY_SECONDS, (ended - began) / SHARE_MAX)

    def _write(self, judging: Judging, progress: IngestProgress, retired: Retired, positions: Positions) -> None:
        judging.evict_settled()
        cells, (evicted, starts, older) = judging.cells, judging.evicted.to_tables()
        plain = {
            "made_by": _made_by(self.rules, self.time_rules),
            "batch": progress.batch,
            "lookup_us": progress.lookup_us,
            "settled": evicted,
            "passed": judging.watermark_steps,
            "rests": [(instant, run_end.value) for instant, run_end in judging.run_ends],
            "horizon_us": judging.horizon_us,
            "replaced": _plain_partitions(progress.replaced),
            "cut_back": _plain_partitions(progress.cut_back),
            "faults_topics": sorted(progress.faults_topics),
            "former_ids": sorted(progress.former_ids),
            "outages": progress.outages,
            "differences": progress.differences,
            "sampled_ids": judging.sample.to_json(),
            "retired": retired.to_mark(),
            "positions": positions.to_json(progress.batch),
            "rereads": self.rereads,
            "unexamined": [[it.topic, it.partition, *found] for it, found in judging.unread.unexamined.items()],
            "lateness": [_plain_reaches(reaches) for reaches in vars(cells.lateness).values()],
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
    """The cells that `Saver.save` wrote last.

    None if there is no file, or if it was written with other rules or by another version. A sentence with the reason if
    the file cannot be read.
    """
    path = state / FILE
    if rules.oracle.tables:
        # Rows of tables are in the facts alone.
        return None
    try:
        content = path.read_bytes()
        body, sum_ = memoryview(content)[:-4], int.from_bytes(content[-4:], "big")
        if len(content) < 4 or zlib.crc32(body) != sum_:
            raise ValueError("its checksum does not match")
        return _saved(body, rules, time_rules)
    except FileNotFoundError:
        return None
    except _DAMAGED as error:
        return f"{path} cannot be read ({error}): the start reads all retained facts instead"


def _saved(body: memoryview, rules: Rules, time_rules: TimeRules) -> SavedCells | None:
    source = pa.BufferReader(pa.py_buffer(body))
    if source.read(len(_HEADER)) != _HEADER:
        raise ValueError("it has another format")
    table, starts, older = (_read(source) for _ in range(3))
    plain = json.loads((table.schema.metadata or {})[b"plain"])
    if plain["made_by"] != _made_by(rules, time_rules):
        return None
    cells = new_cells(rules.oracle)
    if not cells.fill(table):
        return None
    sample = FitSample.of(rules.oracle)
    sample.add_json(plain["sampled_ids"])
    cells.lateness = Lateness(*map(_reaches, plain["lateness"]))
    if cells.newest is not None:
        cells.newest.topics = plain["newest_topics"]
    return SavedCells(
        rules=rules,
        batch=plain["batch"],
        lookup_us=plain["lookup_us"],
        cells=cells,
        sample=sample,
        evicted=EvictedCells.from_tables(plain["settled"], starts, older),
        watermark_steps=[(mark_us, instant_us) for mark_us, instant_us in plain["passed"]],
        run_ends=[(instant_us, RunEnd(run_end)) for instant_us, run_end in plain["rests"]],
        horizon_us=plain["horizon_us"],
        replaced=frozenset(PartitionId(*partition) for partition in plain["replaced"]),
        cut_back=frozenset(PartitionId(*partition) for partition in plain["cut_back"]),
        faults_topics=frozenset(plain["faults_topics"]),
        former_ids=frozenset(plain["former_ids"]),
        outages=tuple((began, ended) for began, ended in plain["outages"]),
        differences=tuple(Difference(*found) for found in plain["differences"]),
        retired=Retired.from_mark(plain["retired"]),
        positions=Positions.from_json(plain["positions"]),
        rereads={topic: (batch, lookup_us) for topic, (batch, lookup_us) in plain["rereads"].items()},
        unexamined={PartitionId(*row[:2]): Unexamined(*row[2:]) for row in plain["unexamined"]},
    )


def _made_by(rules: Rules, time_rules: TimeRules) -> str:
    """The format, version and columns of the file, and the rules on which verdicts of settled cells depend."""
    columns = new_cells(rules.oracle).saved_names
    return f"{_FORMAT} {validator.__version__} {rules!r} {rules.oracle.reads!r} {time_rules!r} {columns}"


class _Summed(io.RawIOBase):
    """Writes to a file and computes the checksum (CRC-32) of the written bytes."""

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


def _plain_partitions(partitions: frozenset[PartitionId]) -> list[tuple[str, int]]:
    return sorted((partition.topic, partition.partition) for partition in partitions)


def _plain_reaches(reaches: Reaches) -> list[list[Any]]:
    return [[*partition, list(of_partition.items())] for partition, of_partition in reaches.items()]


def _reaches(plain: list[list[Any]]) -> Reaches:
    return {(topic, partition): dict(found) for topic, partition, found in plain}
