"""The history of one event or one cell, from the tables of a state: the records that were read, and the verdicts.

`run` only reads the state, so the sidecar may run at the same time.
"""

from __future__ import annotations

import hashlib
import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from validator.codecs.columns import UNOWED, VERSION
from validator.model.arrays import Bools, Ints, field, listed, one_array
from validator.model.cut import full_text_of, shorten
from validator.model.stated_values import Values
from validator.model.terminal import plain
from validator.model.wording import plural
from validator.publish.redaction import HASHED, SECRET_FILE, hashed, secret_of
from validator.publish.times import parse_rfc3339, rfc3339
from validator.reconcile.facts import Kind, Side
from validator.reconcile.judge import CONTRIBUTIONS
from validator.state.identity import stated_values
from validator.state.tables import StateTables, Table

_SIDE_PHRASES = {
    Side.INPUT.value: "read as an input event from",
    Side.OUTPUT.value: "carried by a result in",
    Side.LATE.value: "set aside as late in",
    Side.REJECTED.value: "rejected in",
}
_ROWS_MAX: Final = 200
_IDS: Final = ("ids", "text_ids")
"""Columns with the ids of events, and fields with the ids of results: integers and texts."""
_PLACE: Final = ("batch", "lookup_us", "side", "topic", "partition", "status", "window_start_us", "key")
_IS_FACT: Final = ds.field("kind") == Kind.FACT.value

_Row = Mapping[str, Any]
_Cell = tuple[int | None, str]
"""Window start and key."""
_Texts = Callable[[pa.Table], Iterator[pa.Array]]
"""The texts of some rows of the facts in which a published text is searched: ids or keys."""
NO_WINDOW = "-"
"""Stands for the window of a cell without a window."""


def run(state: Path, wanted: str | tuple[str, ...]) -> int:
    """Print the history of the id ``wanted``, or of the cell ``(window start, key)``.

    The window start is RFC 3339, microseconds or `NO_WINDOW`. Returns the exit status: 0, or 3 if the state has no
    record of it.
    """
    tables = StateTables(state)
    if isinstance(wanted, str):
        story = _of_id(tables, _unhashed(tables, wanted, (*_IDS, "results"), _ids))
    else:
        story = _of_cell(tables, wanted[0], _unhashed(tables, wanted[1], ("key",), _keys))
    for line in story:
        print(plain(line))
    if not story:
        what = f"with id {wanted}" if isinstance(wanted, str) else f"of cell {' '.join(wanted)}"
        print(plain(f"{state}: no record {what} was read (or the state's retention dropped it)"), file=sys.stderr)
        return 3
    return 0


def _unhashed(tables: StateTables, text: str, columns: Sequence[str], texts: _Texts) -> str:
    """Return the text whose hash is ``text``; ``text`` itself if it is not a hash, or if no fact has such a text."""
    if HASHED.fullmatch(text) is None or not (tables.state / SECRET_FILE).exists():
        return text
    secret = secret_of(tables.state)
    for part in tables.scan(Table.FACTS, columns, _IS_FACT):
        for column in texts(part):
            for given in pc.unique(column).cast(pa.string()).to_pylist():
                if given is not None and hashed(secret, shorten(given)) == text:
                    return str(given)
    return text


def _ids(facts: pa.Table) -> Iterator[pa.Array]:
    _, results = listed(facts["results"])
    for name in _IDS:
        yield field(listed(facts[name])[1], "id")
        yield listed(field(results, name))[1]


def _keys(facts: pa.Table) -> Iterator[pa.Array]:
    yield one_array(facts["key"])


@dataclass(frozen=True)
class _Id:
    """An id that is searched: an integer, or a text, which may be the shortened form of a longer one."""

    text: str
    number: int | None

    @classmethod
    def of(cls, text: str) -> _Id:
        is_number = text.lstrip("-").isdigit() and str(int(text)) == text and -(2**63) <= int(text) < 2**63
        return cls(text, int(text) if is_number else None)

    @property
    def column(self) -> str:
        """The one of `_IDS` that can have it."""
        return "text_ids" if self.number is None else "ids"

    @property
    def where(self) -> ds.Expression:
        """Facts that may have it. The bounds of an id are stored for events only."""
        if self.number is None:
            return _IS_FACT
        of_events = (ds.field("min_id") <= self.number) & (ds.field("max_id") >= self.number)
        return _IS_FACT & ((ds.field("side") == Side.OUTPUT.value) | of_events)

    def among(self, ids: pa.Array) -> Bools:
        """Which of ``ids`` are it."""
        return _are(ids, self.text) if self.number is None else _bools(pc.equal(ids, self.number))


def _of_id(tables: StateTables, text: str) -> list[str]:
    found = _occurrences(tables, _Id.of(text))
    if not found:
        return []
    lines = [f"Event {shorten(text)}", *[f"  {_sentence(row)}" for row in found]]
    if not any(row["side"] == Side.INPUT.value for row in found):
        lines.append("  no input event with this id was read")
    for cell_lines in _lines_of_cells(tables, sorted({(row["window_start_us"], row["key"]) for row in found})):
        lines += ["", *cell_lines]
    return lines


def _occurrences(tables: StateTables, wanted: _Id) -> list[_Row]:
    """The first records with the id, a row per record and cell. ``times``: how often the record has the id."""
    parts = []
    for facts in tables.scan(Table.FACTS, (*_PLACE, wanted.column, "results"), wanted.where):
        rows, events = listed(facts[wanted.column])
        chosen = wanted.among(field(events, "id"))
        parts.append(_chosen(facts, rows, events, chosen.astype(np.int64)))
        rows, results = listed(facts["results"])
        of_result, ids = listed(field(results, wanted.column))
        times = np.bincount(of_result[wanted.among(ids)], minlength=len(results))
        parts.append(_chosen(facts, rows, results, times))
    order = ("batch", "side", "topic", "partition", "offset", "window_start_us", "key")
    return _sorted(parts, order, _ROWS_MAX)


def _chosen(facts: pa.Table, rows: Ints, records: pa.Array, times: Ints) -> pa.Table:
    """Rows for the ``records`` whose ``times`` are above 0. ``rows``: the row of ``facts`` that has each record."""
    at = np.flatnonzero(times)
    chosen = facts.select(_PLACE).take(pa.array(rows[at]))
    return chosen.append_column("offset", field(records, "offset").take(pa.array(at))).append_column(
        "times", pa.array(times[at])
    )


@dataclass(frozen=True)
class CellFacts:
    """The fact rows of a cell, in the order in which they were committed. ``start_us``: None without a window."""

    start_us: int | None
    rows: Sequence[_Row]

    @classmethod
    def of(cls, state: Path, window: str, key: str) -> CellFacts:
        """Return all rows of a cell, which is named as in `run`."""
        tables = StateTables(state)
        return cls.read(tables, window, _unhashed(tables, key, ("key",), _keys))

    @classmethod
    def read(cls, tables: StateTables, window: str, key: str, most: int | None = None) -> CellFacts:
        """Return the first ``most`` rows of the cell with this key."""
        start_us = None
        if window != NO_WINDOW:
            start_us = int(window) if window.lstrip("-").isdigit() else parse_rfc3339(window)
        columns = (*_PLACE, "records", "contributions", "first_offset", "last_offset", "aggregates", "results")
        parts = tables.scan(Table.FACTS, columns, _IS_FACT & _starts(start_us))
        own = (part.filter(pa.array(_are(one_array(part["key"]), key))) for part in parts)
        return cls(start_us, _sorted(own, ("batch", "side", "topic", "partition", "first_offset"), most))


def _of_cell(tables: StateTables, window: str, key: str) -> list[str]:
    found = CellFacts.read(tables, window, key, _ROWS_MAX)
    start_us, rows = found.start_us, found.rows
    if not rows:
        return []
    (lines,) = _lines_of_cells(tables, [(start_us, rows[0]["key"])])
    values = stated_values(tables.state)
    # Fields of rows of a table are hashes, which say nothing to a person: violations name the possible rows.
    of_table = any(part.num_rows for part in tables.scan(Table.FACTS, ("status",), ds.field("status") == VERSION))
    for row in rows:
        first, last = row["first_offset"], row["last_offset"]
        offsets = f"offset {first}" if first == last else f"offsets {first} to {last}"
        lines.append(
            f"  {rfc3339(row['lookup_us'])} batch {row['batch']}: {plural(row['contributions'], 'contribution')} in "
            f"{plural(row['records'], row['side'] + ' record')} of {row['topic']}-{row['partition']}, {offsets}"
            f"{'' if of_table else _values(row, values)}"
        )
    return lines


def _values(row: _Row, values: Values) -> str:
    """What the records of a fact row say with evidence `values`, as a clause: the aggregates of fields, in the order in
    which `oracle.values` names the fields, or the values that results state. Hashes of fields say nothing."""
    parts = []
    for i, one in enumerate((row["aggregates"] or ())[:_ROWS_MAX]):
        if values.paths and i % len(values.paths) in {*values.repeated, *values.hashed}:
            continue
        if one["sum"] is not None and one["min"] is None:
            # The field of one event, beside its id.
            parts.append(one["sum"])
            continue
        numbers = plural(one["count"], "number")
        of_all = "" if one["sum"] is None else f" from {one['min']} to {one['max']} with sum {one['sum']}"
        parts.append(f"{numbers}{of_all}")
    for result in (row["results"] or ())[:_ROWS_MAX]:
        named = [value for i, value in enumerate(result["values"] or ()) if i not in values.repeated]
        # A result of one event states no number.
        number = None if values.repeated else result["count"]
        if stated := [str(value) for value in (number, *named) if value is not None]:
            parts.append("states " + ", ".join(stated))
    return f": {'; '.join(parts)}" if parts else ""


def _lines_of_cells(tables: StateTables, cells: Sequence[_Cell]) -> Iterator[list[str]]:
    """Return the verdicts and violations of each cell, oldest first."""
    verdicts = _rows_by_cell(tables, Table.VERDICTS, cells, ("batch",))
    violations = _rows_by_cell(tables, Table.VIOLATIONS, cells, ("batch", "class"))
    for cell in cells:
        start_us, key = cell
        window = "" if start_us is None else f", which starts at {rfc3339(start_us)}"
        judged = [f"  {_verdict(row)}" for row in verdicts.get(cell, ())[:_ROWS_MAX]]
        yield [
            f"Cell {shorten(key)}{window}",
            *(judged or ["  not judged yet: the cell is open, or closed too recently to be overdue"]),
            *[f"  {_violation(row)}" for row in violations.get(cell, ())[:_ROWS_MAX]],
        ]


def _rows_by_cell(
    tables: StateTables, table: Table, cells: Sequence[_Cell], order: Sequence[str]
) -> dict[_Cell, list[_Row]]:
    """Return the rows of each cell in ascending ``order``, and perhaps those of other cells."""
    keys = pa.array({key for _, key in cells}, pa.string())
    own = ds.field("key").isin(keys) & reduce(operator.or_, map(_starts, {start_us for start_us, _ in cells}))
    found: dict[_Cell, list[_Row]] = {}
    for row in _sorted(tables.scan(table, where=own), order):
        found.setdefault((row["window_start_us"], row["key"]), []).append(row)
    return found


def _starts(window_start_us: int | None) -> ds.Expression:
    start = ds.field("window_start_us")
    return start.is_null() if window_start_us is None else start == window_start_us


def _sorted(parts: Iterable[pa.Table], order: Sequence[str], most: int | None = None) -> list[_Row]:
    """Return the rows of ``parts`` in ascending ``order``, or only the ``most`` first ones."""
    tables = list(parts)
    if not tables:
        return []
    return list(pa.concat_tables(tables).sort_by([(name, "ascending") for name in order]).slice(0, most).to_pylist())


def _are(texts: pa.Array, text: str) -> Bools:
    """Return which of ``texts`` are ``text``, or have ``text`` as their shortened form."""
    found = _bools(pc.equal(texts, text))
    whole = full_text_of(text)
    if whole is not None:
        for at in np.flatnonzero(_bools(pc.equal(pc.utf8_length(texts), whole.length))):
            digest = hashlib.sha256(texts[at].as_py().encode()).hexdigest()
            found[at] |= digest.startswith(whole.digest)
    return found


def _bools(column: pa.Array) -> Bools:
    """Return a column of truth values, with false in place of null."""
    return np.array(pc.fill_null(column, False), dtype=np.bool_)


def _verdict(row: _Row) -> str:
    counts = ", ".join(f"{row[name]} {name}" for name in CONTRIBUTIONS if row[name])
    return f"{rfc3339(row['lookup_us'])} batch {row['batch']}: verdict: {counts or 'no contributions'}"


def _violation(row: _Row) -> str:
    control = "after the recovery from fault" if row["fault"] else "before any fault"
    during = {"control": control, "failure": "during fault", "recovery": "after fault"}[row["phase"]]
    fault = f" {row['fault']}" if row["fault"] else ""
    ids = f" (ids {_listed(row['ids'])})" if row["ids"] else ""
    return (
        f"{rfc3339(row['lookup_us'])} violation {row['violation']}: {row['class']} {row['state']}, {during}{fault}: "
        f"{row['explanation']}{ids}"
    )


def _listed(ids: Iterable[str]) -> str:
    return ", ".join(map(shorten, ids))


def _sentence(row: _Row) -> str:
    owing = (
        "; the condition of the oracle does not hold for this event, or it has no key: no result is expected"
        if row["status"] == UNOWED
        else ""
    )
    window = "" if row["window_start_us"] is None else f" of {rfc3339(row['window_start_us'])}"
    times = "" if row["times"] == 1 else f" (contains the id {row['times']} times)"
    return (
        f"{rfc3339(row['lookup_us'])} batch {row['batch']}: {_SIDE_PHRASES[row['side']]} "
        f"{row['topic']}-{row['partition']} at offset {row['offset']}{times}, "
        f"for cell {shorten(row['key'])}{window}{owing}"
    )
