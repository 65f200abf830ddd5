"""The ground truth file of the mutant: one JSON line per applied mutation, written before its output is produced.

``{"mutation": "drop", "window_start_ms": 0, "key": ["/help"], "page": "/help", "id": 7, "class": "missing",
"transient_class": null, "count": 1}``

A mutant that was killed and restarted repeats lines exactly; repeated lines count once. A line ``{"anew": true}``
cancels all lines before it: cumulative results replace the earlier ones. ``class`` null: the sidecar must report no
violation. ``transient_class``: a violation that may be reported and must be retracted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from testbed.engines.mutations import AppliedMutation, Mutation

_ANEW: Final = b'{"anew":true}'


class TruthWriter:
    """Appends mutations to the file. ``write`` returns when the kernel has the lines, so that a kill loses none."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        _end_last_line(path)
        self._file = path.open("ab", buffering=0)

    def write(self, applied: Iterable[AppliedMutation]) -> None:
        """Append ``applied`` in one write."""
        text = "".join(_line(deed) for deed in applied)
        if text:
            self._file.write(text.encode())

    def replace_all(self, applied: Iterable[AppliedMutation]) -> None:
        """Replace all earlier mutations by ``applied``, in one write."""
        self._file.write(_ANEW + b"\n" + "".join(_line(deed) for deed in applied).encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def read(path: Path) -> Iterator[AppliedMutation]:
    """Yield the mutations in ``path`` (a file, or a folder with one file per instance), each once.

    A truncated line is skipped: its output was not produced.
    """
    lines: dict[bytes, None] = {}
    for file in sorted(path.glob("*.jsonl")) if path.is_dir() else [path]:
        _, _, newest = (_ANEW + b"\n" + file.read_bytes()).rpartition(_ANEW + b"\n")
        lines |= dict.fromkeys(newest.splitlines())
    for line in lines:
        try:
            data = json.loads(line)
        except ValueError:
            continue
        yield AppliedMutation(
            Mutation(data["mutation"]),
            data["window_start_ms"],
            tuple(data["key"]),
            data["id"],
            data["class"],
            data["transient_class"],
            data["count"],
        )


def summarise(path: Path) -> dict[str, int]:
    """Return final class -> number of (cell, id) that the sidecar must report once all is settled."""
    counts: Counter[str] = Counter()
    for deed in read(path):
        if deed.violation_class is not None:
            counts[deed.violation_class] += deed.count
    return dict(counts)


def summarise_transient(path: Path) -> dict[str, int]:
    """Return class -> number of (cell, id) that the sidecar may report for a time, and must retract."""
    counts: Counter[str] = Counter()
    for deed in read(path):
        if deed.transient_class is not None:
            counts[deed.transient_class] += deed.count
    return dict(counts)


def _line(deed: AppliedMutation) -> str:
    data = {
        "mutation": deed.mutation,
        "window_start_ms": deed.window_start_ms,
        "key": list(deed.key),
        "page": deed.key[0],
        "id": deed.id,
        "class": deed.violation_class,
        "transient_class": deed.transient_class,
        "count": deed.count,
    }
    return json.dumps(data, separators=(",", ":")) + "\n"


def _end_last_line(path: Path) -> None:
    """A kill during a write can truncate the last line; the next line must not be appended to it."""
    if path.exists() and path.stat().st_size and not path.read_bytes().endswith(b"\n"):
        with path.open("ab") as file:
            file.write(b"\n")
