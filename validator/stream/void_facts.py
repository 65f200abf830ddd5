"""Void facts: the facts of a topic before the decision to read it again from its start (SEMANTICS 4.25)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from validator.reconcile.facts import Kind
from validator.state.positions import reread_topics
from validator.state.tables import StateTables, Table

Rereads = Mapping[str, tuple[int, int]]
"""Topic -> batch and instant of the newest decision to read it again."""


def marks_of(tables: StateTables, after_batch: int = -1) -> Iterator[tuple[str, int, int]]:
    """(mark, batch, lookup instant) of every mark in batches after ``after_batch``."""
    columns = ("mark", "batch", "lookup_us")
    where = (ds.field("kind") == Kind.MARK.value) & (ds.field("batch") > after_batch)
    for part in tables.scan(Table.FACTS, columns, where):
        yield from zip(*(part[name].to_pylist() for name in columns), strict=True)


def rereads_of(tables: StateTables) -> Rereads:
    """The decisions in the facts table."""
    found: dict[str, tuple[int, int]] = {}
    for mark, batch, lookup_us in marks_of(tables):
        for topic in reread_topics(mark) or ():
            found[topic] = max((batch, lookup_us), found.get(topic, (-1, 0)))
    return found


def without_void(facts: pa.Table, rereads: Rereads) -> pa.Table:
    """``facts`` without the void rows of topics that are read again.

    Rows of expired offsets stay, since expired records cannot be read again. Such a row has no records and no
    ``last_offset``.
    """
    for topic, (batch, _) in rereads.items():
        is_of_records = pc.or_(pc.greater(facts["records"], 0), pc.is_valid(facts["last_offset"]))
        void = pc.and_(pc.equal(facts["topic"], topic), pc.less(facts["batch"], batch))
        # A mark row has no topic and is never void.
        facts = facts.filter(pc.invert(pc.fill_null(pc.and_kleene(void, is_of_records), False)))
    return facts
