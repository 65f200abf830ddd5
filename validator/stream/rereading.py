"""Corrected fields: a topic of which no record ever decoded is read again from its start (SEMANTICS 4.25).

All facts of such a topic are undecodable rows. One commit moves the frontiers back to the start of the topic and marks
these rows as void. The new identity (`validator.state.identity`) is written afterwards. If the sidecar is killed in
between, the next start finds an unread topic. With the new fields it repeats the procedure. With the old ones it reads
the topic as before.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa
import pyarrow.dataset as ds

from validator.config.model import Config
from validator.model.frontier import Frontier
from validator.model.progress import IngestProgress
from validator.reconcile.cells import Cells
from validator.reconcile.evidence.kinds import evidence_of
from validator.reconcile.judge import VIOLATIONS
from validator.state import identity
from validator.state.positions import reread_mark
from validator.state.recorded_violations import growth_of
from validator.state.tables import StateTables, Table
from validator.stream.commit_rows import frontier_rows, mark_row
from validator.stream.recovery import Recovered, recover, rows_of_derived, time_rules_of
from validator.stream.retention import Violation


def adopt(tables: StateTables, config: Config) -> tuple[str, ...]:
    """Adapt the state to ``config``. Returns the topics that are read again.

    Raises `StateMismatch` and `StateDamaged`.
    """
    changed = identity.check_or_write(tables.state, config)
    if not changed:
        return ()
    found = _recovered(tables, config)
    progress = found.progress
    again = _refused_or_read(progress, tables, config, changed)
    if again:
        began = {
            partition: _from_start(frontier, progress.lookup_us) if partition.topic in again else frontier
            for partition, frontier in progress.frontiers.items()
        }
        after = replace(progress, batch=progress.batch + 1, frontiers=began)
        retention = config.state.retention_us
        # Suspected violations of retired cells may be explained by the topic's records, but are not judged again.
        retired = found.retired.with_proven(_confirmed_of_retired(tables, found.cells))
        marks = [reread_mark(again), *([retired.to_mark()] if retired != found.retired else [])]
        rows = [
            frontier_rows(after, progress.watermark_us, retention),
            *(mark_row(after, mark, retention) for mark in marks),
        ]
        tables.append(pa.concat_tables(rows), Table.FACTS, writer="reread", version=after.batch)
    identity.write(tables.state, config)
    return again


def would_adopt(tables: StateTables, config: Config) -> tuple[str, ...]:
    """The topics that `adopt` would read again. Writes nothing; raises as `adopt` does."""
    changed = identity.changed_fields(tables.state, config)
    return _refused_or_read(_recovered(tables, config).progress, tables, config, changed) if changed else ()


def _recovered(tables: StateTables, config: Config) -> Recovered:
    return recover(tables, time_rules_of(config), config.oracle)


def _confirmed_of_retired(tables: StateTables, cells: Cells) -> dict[Violation, int]:
    """Violation of a retired cell -> confirmed contributions, if any."""
    found: dict[Violation, int] = {}
    columns = ("class", "window_start_us", "key", "lookup_us", "confirmed", "retracted")
    column_of = {evidence_of(cells.oracle).class_of(name): name for name in VIOLATIONS}
    for part in tables.scan(Table.VIOLATIONS, columns, ds.field("class").isin(list(column_of))):
        grown = growth_of(part).tolist()
        named = zip(*(part[name].to_pylist() for name in columns[:3]), strict=True)
        for row, (of_class, window, key), growth in zip(
            rows_of_derived(cells, part).tolist(), named, grown, strict=True
        ):
            violation = (column_of[of_class], window, key)
            if row < 0:
                found[violation] = found.get(violation, 0) + growth
    return {violation: count for violation, count in found.items() if count > 0}


def _refused_or_read(
    progress: IngestProgress, tables: StateTables, config: Config, changed: Iterable[str]
) -> tuple[str, ...]:
    """The changed topics that were read. Raises `StateMismatch` if a record of one of them decoded."""
    found = []
    for topic in sorted(changed):
        frontiers = [frontier for partition, frontier in progress.frontiers.items() if partition.topic == topic]
        read = sum(frontier.records - frontier.tombstones for frontier in frontiers)
        decoded = read - sum(frontier.undecodable for frontier in frontiers)
        if decoded:
            raise identity.mismatch(
                tables.state, config, f"the previous fields decoded {decoded} of {read} records of topic {topic}"
            )
        if frontiers:
            found.append(topic)
    return tuple(found)


def _from_start(frontier: Frontier, lookup_us: int) -> Frontier:
    """The frontier of a partition before its first record was read.

    If the topic was recreated, the records of the earlier topic cannot be read again.
    """
    start = max(0, frontier.first_offset)
    return Frontier(
        side=frontier.side,
        topic=frontier.topic,
        partition=frontier.partition,
        topic_id=frontier.topic_id,
        first_offset=frontier.first_offset,
        next_offset=start,
        log_start_offset=frontier.log_start_offset,
        high_watermark=frontier.high_watermark,
        last_stable_offset=frontier.last_stable_offset,
        last_data_us=lookup_us,
        expired=start - frontier.first_offset,
        hidden_start=frontier.hidden_start,
        unread_since_us=frontier.unread_since_us,
        unprovable_below=frontier.unprovable_below,
        cleanup_policy=frontier.cleanup_policy,
        compacted_below=frontier.compacted_below,
    )
