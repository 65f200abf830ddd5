"""Flink SQL: any statements, on the cluster of `flink`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from testbed.engines.flink import FlinkEngine
from testbed.engines.jvm import HERE, SOURCES
from testbed.engines.real import RealEngineSettings
from validator.stream.jars import resolve

_MEMORY: Final = {"taskmanager.memory.managed.size": "64m"}
"""The aggregates of windows buffer their input outside the heap."""


class FlinkSqlEngine(FlinkEngine):
    """A cluster whose job is the last of ``statements``; the ones before it declare its tables.

    Topics, guarantee and times of the settings have no effect on statements: those of `source` and `sink` have them.
    """

    name = "flink_sql"
    lock = HERE / "flink_sql.lock"
    sources = (SOURCES / "FlinkSqlJob.java",)

    def __init__(self, settings: RealEngineSettings, folder: Path, statements: Sequence[str]) -> None:
        """Raises EngineRefused."""
        super().__init__(settings.model_copy(update={"options": {**_MEMORY, **settings.options}}), folder)
        self._job = folder / "job.sql"
        self._job.write_text("".join(f"{statement};\n" for statement in statements), encoding="utf-8")

    @classmethod
    def engine_jars(cls) -> list[Path]:
        """Return the jars of Flink, and those of its SQL."""
        return [*FlinkEngine.engine_jars(), *resolve(cls.lock)]


def source(table: str, columns: str, settings: RealEngineSettings) -> str:
    """Return the statement that declares the settings' input topic, with JSON values, as a table."""
    options = _connector(settings, settings.input) | {
        "connector": "kafka",
        "properties.group.id": settings.group,
        "properties.isolation.level": "read_committed",
        "scan.startup.mode": "earliest-offset",
        "format": "json",
        "json.timestamp-format.standard": "ISO-8601",
    }
    return _table(table, columns, options)


def sink(table: str, columns: str, settings: RealEngineSettings, *, key: Sequence[str] = ()) -> str:
    """Return the statement that declares the settings' output topic as a table of appended rows, or with a primary
    ``key`` as one of upserted rows."""
    options = _connector(settings, settings.output) | {
        "sink.delivery-guarantee": settings.guarantee.replace("_", "-"),
        "sink.transactional-id-prefix": settings.group,
        "properties.transaction.timeout.ms": str(round(settings.timeouts.transaction_timeout_seconds * 1000)),
    }
    if not key:
        return _table(table, columns, options | {"connector": "kafka", "format": "json"})
    columns = f"{columns}, PRIMARY KEY ({', '.join(key)}) NOT ENFORCED"
    return _table(table, columns, options | {"connector": "upsert-kafka", "key.format": "json", "value.format": "json"})


def _connector(settings: RealEngineSettings, topic: str) -> dict[str, str]:
    return {"topic": topic, "properties.bootstrap.servers": settings.bootstrap_servers}


def _table(table: str, columns: str, options: Mapping[str, str]) -> str:
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
    return f"CREATE TABLE {table} ({columns}) WITH ({listed})"
