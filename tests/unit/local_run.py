"""`validate --once` on records in memory: only brokers and Spark are replaced; the sidecar's stage and core run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, cast

import pyarrow as pa

from tests.unit.fed_run import FedRun, _FedRunner
from tests.unit.memory_tables import MemoryTables
from validator.codecs.one_record import Record
from validator.codecs.plain_events import RECORD_SCHEMA
from validator.config.load import loads
from validator.model.coverage import RangeCount
from validator.model.progress import IngestProgress
from validator.model.schemas import NO_SCHEMAS, Schemas
from validator.model.snapshot import Snapshot
from validator.reconcile.facts import GROUPED
from validator.state.tables import StateTables
from validator.stream.batch import BatchRunner
from validator.stream.kafka_reading import Range
from validator.stream.workers import FactsRead

LATER_US = 1_798_761_600_000_000
"""2027: the events of the tests are older."""
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary()), ("size", pa.int32())]))
_COLUMNS = pa.schema(
    [("source", pa.int32()), *RECORD_SCHEMA, ("key", pa.binary()), ("key_size", pa.int32()), ("headers", _HEADERS)]
)


class _LocalRunner(_FedRunner):
    """The sidecar's runner, with a stage that reads from memory."""

    logs: Mapping[str, Sequence[Record]] = {}
    schemas: Schemas = NO_SCHEMAS

    @property
    def _schemas(self) -> Schemas:
        return self.schemas

    def _facts(self, ranges: Sequence[Range], progress: IngestProgress) -> FactsRead:
        return BatchRunner._facts(self, ranges, progress)

    def _read_ranges(self, ranges: Sequence[Range], progress: IngestProgress) -> FactsRead:
        stage = self._stage(progress, self._schemas)
        tables = [
            table
            for one in ranges
            for table in stage.facts(one.source, _batches(one.source, self.logs[one.topic][one.start : one.end]))
        ]
        facts = pa.concat_tables(tables) if tables else GROUPED.empty_table()
        return FactsRead(facts, tuple(RangeCount(one.topic, one.partition, 0) for one in ranges))


def _batches(source: int, records: Sequence[Record]) -> Iterator[pa.RecordBatch]:
    rows = [
        {
            "source": source,
            **{name: getattr(record, name) for name in ("value", "key", "partition", "offset")},
            "time_us": record.timestamp_us,
            "key_size": None if record.key is None else len(cast("bytes", record.key)),
            "headers": [
                {"key": name, "value": value, "size": len(cast("bytes", value))} for name, value in record.headers
            ],
        }
        for record in records
    ]
    yield pa.RecordBatch.from_pylist(rows, _COLUMNS)


@dataclass
class LocalRun(FedRun):
    """A run of the configuration ``text``."""

    runs: ClassVar[type[_FedRunner]] = _LocalRunner
    text: str = ""
    schemas: Schemas = field(default_factory=dict)

    def _configure(self) -> None:
        given = ["metrics.port=0", f"state.path={self.state}", *self.settings]
        self.config = loads(self.text, self.state, given, environment={})


def judged(
    text: str,
    logs: Mapping[str, Sequence[Record]],
    state: Path,
    schemas: Schemas = NO_SCHEMAS,
    tables: StateTables | None = None,
) -> Snapshot:
    """The report of a run with `--once` over topics of one partition each. ``tables``: where its rows go."""
    tables = tables or MemoryTables()
    run = LocalRun(state, text=text, schemas=schemas, now_us=LATER_US, tables=tables)
    runner = cast("_LocalRunner", run.runner)
    runner.logs, runner.schemas = logs, schemas
    run.logs.ends.update({topic: len(records) for topic, records in logs.items()})
    run.feed(())
    return run.end()
