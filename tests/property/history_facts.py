"""The facts of histories, computed from decoded records by the code of a batch's stage.

All histories share one table. The key of a cell begins with its history's number (`17/a`), and ids carry the number
too. Partition p of step s of history h is (h * `STEPS` + s) * `PARTITIONS` + p. Topics are unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tests.property.history import InputEvent, LateRecord, Record, ResultRecord, TableRow, Tombstone
from tests.property.join_reference import LEFT, RIGHT
from tests.property.spark_histories import SOURCES, Case, expires
from validator.codecs.batches import EVENTS, RESULTS, exploded
from validator.codecs.columns import DECODED, REMOVED, TOMBSTONE, UNDECODABLE, UNOWED
from validator.model.arrays import Ints, ints
from validator.oracles.rule_match import Matches, RuleMatch
from validator.oracles.seam import Oracle
from validator.reconcile.facts import Side, completed
from validator.reconcile.grouping import facts_of_events, facts_of_results, facts_of_rows
from validator.reconcile.lateness import with_newest_before, with_possible_reaches

PARTITIONS: Final = 8
"""Above the number of partitions of any history."""
STEPS: Final = 32
"""Above the number of steps of any history."""
IDS: Final = 1000
"""Above the integer ids of any history."""
_SOURCE_OF: Final = {topic: number for number, (_, topic) in enumerate(SOURCES)}
_TASKS: Final = 2
"""Number of tasks that group a partition's records in every second history; the other histories have one task."""


def facts(cases: Sequence[Case]) -> list[list[pa.Table]]:
    """The fact rows of every history, by step; the column `batch` is the step."""
    table = completed(pa.concat_tables(_grouped(cases)), SOURCES, batch=0, lookup_us=0, epoch=0)
    at = ints(table["partition"]) // PARTITIONS
    keys = pc.replace_substring_regex(table["key"], "^[0-9]+/", "").to_pylist()
    for row in np.flatnonzero(np.array([case.oracle.by_id for case in cases])[at // STEPS]):
        keys[row] = _own_texts(given) if (given := table["key"][row].as_py()) is not None else None
    table = table.set_column(table.schema.get_field_index("key"), "key", pa.array(keys, pa.string()))
    order = np.argsort(at, kind="stable")
    table, at = table.take(pa.array(order)), at[order]
    found = []
    for number, case in enumerate(cases):
        steps = []
        newest: dict[tuple[str, int], int] = {}
        for step, known in enumerate(case.history.steps):
            first, last = np.searchsorted(at, [number * STEPS + step, number * STEPS + step + 1])
            facts = _of_step(table.slice(first, last - first), step, known.lookup_us)
            facts = with_newest_before(facts, newest)
            _note_newest(facts, newest)
            steps.append(with_possible_reaches(facts, reach_at(case, step), partial(latest_reach_at, case)))
        found.append(steps)
    return found


def _note_newest(facts: pa.Table, newest: dict[tuple[str, int], int]) -> None:
    """Note the newest event time of each input partition after a step."""
    for row in facts.filter(pc.equal(facts["side"], Side.INPUT.value)).to_pylist():
        if row["newest_event_time_us"] is not None:
            place = (row["topic"], row["partition"])
            newest[place] = max(row["newest_event_time_us"], newest.get(place, row["newest_event_time_us"]))


def reach_at(case: Case, step: int) -> int:
    """The largest window end that the watermark would pass if a step read the newest event allowed."""
    timing = case.history.timing
    newest_us = case.history.steps[step].lookup_us + timing.max_ahead_us
    return case.oracle.reach_at(newest_us, timing.max_disorder_us + timing.allowed_lateness_us)


def latest_reach_at(case: Case, starts: Ints) -> Ints:
    """Per window: the largest window end that the watermark would pass after the window's last possible event."""
    timing = case.history.timing
    return case.oracle.latest_reaches_us(starts, timing.max_disorder_us + timing.allowed_lateness_us)


def _of_step(rows: pa.Table, step: int, lookup_us: int) -> pa.Table:
    values = {
        "batch": np.full(rows.num_rows, step),
        "lookup_us": np.full(rows.num_rows, lookup_us),
        "partition": ints(rows["partition"]) % PARTITIONS,
    }
    for name, column in values.items():
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, rows.schema.field(at), pa.array(column).cast(rows.schema.field(at).type))
    return rows


def _grouped(cases: Sequence[Case]) -> Iterator[pa.Table]:
    """The fact rows that each task computes from the records of all histories."""
    tasks: dict[tuple[int, int, str], tuple[Oracle, list[dict[str, Any]]]] = {}
    for number, case in enumerate(cases):
        for at, step in enumerate(case.history.steps):
            for record in step.records:
                task = record.offset % _TASKS if number % 2 else 0
                is_event = not isinstance(record, ResultRecord | Tombstone)
                if (case.oracle.by_key and is_event) or (not case.oracle.reads.names_ids and may_be_excused(case)):
                    # SEMANTICS 2.23: an excuse of one event is one of its whole row; here each has a row of its own.
                    task = record.offset
                side = RIGHT if not isinstance(record, ResultRecord) and _is_of_right(record) else LEFT
                place = (_SOURCE_OF[record.topic], task, f"{case.oracle!r} {case.oracle.reads!r} {side}")
                tasks.setdefault(place, (case.oracle.seen_from(side), []))[1].append(_row(case, number, at, record))
    for (source, _, _), (oracle, rows) in sorted(tasks.items(), key=lambda item: item[0][:2]):
        if SOURCES[source][0] is Side.TABLE:
            yield facts_of_rows(pa.Table.from_pylist(rows, EVENTS), source, oracle.seen_from("rows"))
            continue
        if SOURCES[source][0] is Side.OUTPUT:
            yield facts_of_results(pa.Table.from_pylist(rows, RESULTS), source, oracle)
            continue
        events = pa.Table.from_pylist(rows, EVENTS)
        if isinstance(oracle, RuleMatch):
            words = Matches(oracle.matched, oracle.prefix)
            events = exploded(events, _Numbered(words))
            by_place = {(row["partition"], row["offset"]): row for row in rows}
            places = zip(events["partition"].to_pylist(), events["offset"].to_pylist(), strict=True)
            rows = [by_place[place] for place in places]  # noqa: PLW2901 - one for each row of the events

        def column(name: str, rows: list[dict[str, Any]] = rows) -> Any:
            return np.array([row[name] for row in rows], dtype=np.int64)

        # Disorder and time limits come from each record's own history.
        yield facts_of_events(
            events,
            source,
            oracle,
            column("slack_us"),
            column("limit_us"),
            with_first_event=True,
        )


@dataclass(frozen=True)
class _Numbered:
    """The words of keys that begin with the number of their history."""

    of: Matches

    def words(self, text: str) -> list[str]:
        """The words of a key."""
        number, _, own = text.partition("/")
        return [f"{number}/{word}" for word in self.of.words(own)]

    def lists(self, texts: pa.Array) -> pa.Array:
        """The words of many keys."""
        given = [text.partition("/") for text in texts.to_pylist()]
        found = self.of.lists(pa.array([own for *_, own in given], pa.string())).to_pylist()
        named = [[f"{number}/{word}" for word in words] for (number, *_), words in zip(given, found, strict=True)]
        return pa.array(named, pa.list_(pa.string()))


def _is_of_right(record: Record) -> bool:
    """Whether a record is one of a join's right input."""
    id_ = record.id if isinstance(record, InputEvent | LateRecord) else ""
    return record.topic == RIGHT or id_.startswith(f"{RIGHT}/")


def may_be_excused(case: Case) -> bool:
    """Whether a contribution may be outstanding with an excuse (SEMANTICS 2.3)."""
    is_cut = any(expires(step) or any(state.compacted for state in step.partitions) for step in case.history.steps)
    return case.grouped or case.history.timing.late_policy == "drop" or is_cut


def _row(case: Case, number: int, step: int, record: Record) -> dict[str, Any]:
    """A decoded record as a row of `EVENTS` or `RESULTS`, with the timing of its history."""
    timing, lookup_us = case.history.timing, case.history.steps[step].lookup_us
    row: dict[str, Any] = {
        "status": DECODED,
        "partition": (number * STEPS + step) * PARTITIONS + record.partition,
        "offset": record.offset,
        "time_us": record.broker_time_us,
        "slack_us": timing.max_disorder_us + timing.allowed_lateness_us,
        "limit_us": lookup_us + timing.max_ahead_us,
        "ids": [],
        "text_ids": [],
        "values": case.values_of(record),
    }
    states_values = not case.oracle.reads.names_ids
    match record:
        case InputEvent() | LateRecord():
            id_ = case.id_of(record) if states_values else _id(number, record.id)
            owes = not isinstance(record, InputEvent) or timing.owes(record)
            row["status"] = REMOVED if case.is_removed(record) else DECODED if owes else UNOWED
            name = "id" if isinstance(id_, int) else "text_id"
            return row | {"key": f"{number}/{record.key}", name: id_, "event_time_us": record.event_time_us}
        case ResultRecord():
            ids = [] if states_values else [_id(number, plain) for plain in record.ids]
            return row | {
                "count": len(record.ids) if case.oracle.stated.show_number else None,
                "key": f"{number}/{record.key}",
                "window_start_us": None if case.oracle.by_key else record.window_start_us,
                "ids": [id_ for id_ in ids if isinstance(id_, int)],
                "text_ids": [id_ for id_ in ids if isinstance(id_, str)],
            }
        case TableRow():
            return row | {"key": f"{number}/{record.key}", "event_time_us": record.event_time_us}
        case Tombstone():
            key = None if record.key is None else f"{number}/{record.key}"
            return row | {"status": TOMBSTONE, "key": key}
        case _:
            return row | {"status": UNDECODABLE}


def _own_texts(key: str) -> str:
    """A cell key that is a JSON array of a key and perhaps an id, without the number of its history."""
    own, *ids = json.loads(key)
    plain = [id_.partition("/")[2] if "/" in id_ else str(int(id_) % IDS) for id_ in ids]
    return json.dumps([own.partition("/")[2], *plain], separators=(",", ":"))


def _id(number: int, plain: str) -> int | str:
    """An id that is unique among all histories: text for a third of the numbers, else an integer."""
    if plain.startswith(RIGHT):
        # Ids of a join's right input begin with its topic.
        return f"{RIGHT}/{number}/{plain}"
    if plain.isdecimal() and int(plain) % 3:
        return number * IDS + int(plain)
    return f"{number}/{plain}"
