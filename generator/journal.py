r"""The journal: the outcome of every send in send order, in a format that is compact enough to keep up with the
sender.

A file is ``SPJ1\\n``, one line of JSON (the header), then blocks. A block is ``<4sIII``: a tag (``ROWS`` or ``TOTL``),
the number of rows, the length of the payload and its CRC-32, followed by the payload. The payload of ``ROWS`` is zlib
of the columns in order, little endian; 64-bit columns are stored as differences. The payload of ``TOTL`` is JSON; it
ends a complete journal. If it is missing, the producer was killed, and sends after the last block are unknown.

Columns: ``number`` int64 (of the id), ``time_ms`` int64 (event time since the epoch), ``offset`` int64 (-1 if not
acknowledged), ``key`` uint32 (index into the header's ``keys``, or the number in its ``key_form``), ``partition``
uint16, ``kind`` uint8 (``generator.sends.KIND_NAMES``), ``outcome`` uint8 (``OUTCOME_NAMES``).
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

MAGIC: Final = b"SPJ1\n"
SUFFIX: Final = ".journal"
OUTCOME_NAMES: Final = ("acknowledged", "rejected", "indeterminate")
ACKNOWLEDGED: Final = 0
REJECTED: Final = 1
"""The record is certainly not in the topic."""
INDETERMINATE: Final = 2
"""The record may be in the topic: there was no report by the deadline, or the report does not say."""

_BLOCK: Final = struct.Struct("<4sIII")
_COLUMNS: Final = (
    ("number", "<i8"),
    ("time_ms", "<i8"),
    ("offset", "<i8"),
    ("key", "<u4"),
    ("partition", "<u2"),
    ("kind", "<u1"),
    ("outcome", "<u1"),
)


class JournalError(Exception):
    """The file is not a journal, or one of its blocks is damaged."""


@dataclass(frozen=True)
class Rows:
    """Consecutive sends of one producer, as columns of equal length."""

    number: npt.NDArray[np.int64]
    time_ms: npt.NDArray[np.int64]
    offset: npt.NDArray[np.int64]
    key: npt.NDArray[np.uint32]
    partition: npt.NDArray[np.uint16]
    kind: npt.NDArray[np.uint8]
    outcome: npt.NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.number)


@dataclass(frozen=True)
class Send:
    """One send, with the id and key as the record carries them."""

    id: int | str
    key: tuple[str, ...]
    time_ms: int
    kind: int
    outcome: str
    topic: str
    partition: int
    offset: int | None


class JournalWriter:
    """Writes one producer's journal. Use it as a context manager and call `finish` to complete the journal."""

    def __init__(self, path: Path, header: Mapping[str, object]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("wb")
        self._file.write(MAGIC + json.dumps(header, separators=(",", ":")).encode() + b"\n")
        self._file.flush()

    def write(self, **columns: Sequence[int]) -> None:
        """Append a block with all columns of the module docstring, which must have equal length."""
        rows = len(columns["number"])
        if rows == 0:
            return
        parts = []
        for name, kind in _COLUMNS:
            values = np.asarray(columns[name], dtype=kind)
            assert len(values) == rows, name
            # Differences of ids, times and offsets are small and regular, so they compress to a tenth of the size.
            parts.append(np.diff(values, prepend=0).astype(kind).tobytes() if kind == "<i8" else values.tobytes())
        self._block(b"ROWS", rows, zlib.compress(b"".join(parts), 1))

    def finish(self, totals: Mapping[str, object]) -> None:
        """Write the totals, which mark the journal as complete."""
        self._block(b"TOTL", 0, json.dumps(totals, separators=(",", ":")).encode())

    def _block(self, tag: bytes, rows: int, payload: bytes) -> None:
        self._file.write(_BLOCK.pack(tag, rows, len(payload), zlib.crc32(payload)) + payload)
        self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


class JournalReader:
    """Reads one producer's journal. Raises JournalError if the file is not a journal."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise JournalError(f"{path}: not a journal of streamproof generate.")
            self.header: dict[str, Any] = json.loads(file.readline())
            self._blocks_from = file.tell()

    def blocks(self) -> Iterator[Rows]:
        """The sends in order. A block that was cut short by a kill ends the iteration; a damaged block raises
        JournalError.
        """
        for tag, rows, payload in self._raw():
            if tag == b"ROWS":
                yield _columns(rows, zlib.decompress(payload))

    def totals(self) -> dict[str, Any] | None:
        """The producer's totals; None if the producer was killed before it wrote them."""
        for tag, _, payload in self._raw():
            if tag == b"TOTL":
                totals: dict[str, Any] = json.loads(payload)
                return totals
        return None

    def sends(self) -> Iterator[Send]:
        """The sends as single values, for tests and small journals."""
        prefix, topic = self.header["id_prefix"], self.header["topic"]
        all_keys, form = [tuple(key) for key in self.header["keys"]], self.header.get("key_form", "")
        for rows in self.blocks():
            for i in range(len(rows)):
                number, offset = int(rows.number[i]), int(rows.offset[i])
                yield Send(
                    id=number if prefix is None else f"{prefix}{number}",
                    key=(form % rows.key[i],) if form else all_keys[rows.key[i]],
                    time_ms=int(rows.time_ms[i]),
                    kind=int(rows.kind[i]),
                    outcome=OUTCOME_NAMES[rows.outcome[i]],
                    topic=topic,
                    partition=int(rows.partition[i]),
                    offset=None if offset < 0 else offset,
                )

    def _raw(self) -> Iterator[tuple[bytes, int, bytes]]:
        with self.path.open("rb") as file:
            file.seek(self._blocks_from)
            while len(head := file.read(_BLOCK.size)) == _BLOCK.size:
                tag, rows, length, check = _BLOCK.unpack(head)
                payload = file.read(length)
                if len(payload) < length:
                    return
                if zlib.crc32(payload) != check:
                    raise JournalError(f"{self.path}: the block that ends at byte {file.tell()} is damaged.")
                yield tag, rows, payload


def journals(path: Path) -> list[JournalReader]:
    """The journals in the folder ``path``, or the journal at ``path``, sorted by name."""
    files = sorted(path.glob("*" + SUFFIX)) if path.is_dir() else [path]
    return [JournalReader(file) for file in files]


def read(path: Path) -> Iterator[Send]:
    """Every send of the journal folder or file at ``path``, one producer after the other."""
    for journal in journals(path):
        yield from journal.sends()


def _columns(rows: int, data: bytes) -> Rows:
    columns: dict[str, npt.NDArray[Any]] = {}
    at = 0
    for name, kind in _COLUMNS:
        values = np.frombuffer(data, dtype=kind, count=rows, offset=at)
        at += values.nbytes
        columns[name] = np.cumsum(values) if kind == "<i8" else values
    return Rows(**columns)
