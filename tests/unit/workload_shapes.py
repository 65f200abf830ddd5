"""The records of a workload: the generator's events, and what the reference engine makes of them, without a broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from generator.workloads.kinds import named
from generator.workloads.seam import Workload
from testbed.engines import wire
from testbed.engines.core import BEGINNING_MS, LateEvent, PartitionProgress
from testbed.engines.job import Job, OutputPlanner, core_of
from testbed.engines.reference import honest
from testbed.engines.settings import EngineSettings
from testbed.engines.sinks import Output
from testbed.run_files import SidecarFile, Topics
from tests.unit.local_run import judged
from tests.unit.memory_tables import MemoryTables
from tests.unit.pipeline_shapes import START_MS, Shape, log, one
from tests.unit.sent_records import Sent, sent
from tests.workload_count import Cell, violations
from validator.codecs.one_record import Record
from validator.model.snapshot import Snapshot

Logs = Mapping[str, Sequence[Record]]
WINDOW_MS: Final = 10_000
LONGER: Final = {"nexmark_q3": 6_000, "statistics": 2_400}
"""Number of events where few are joined or repeated, or there are many keys."""
PARAMETERS: Final[dict[str, dict[str, Any]]] = {"shufflebench": {"rules": 40}}
"""Those without which a sample has one record of most keys."""
_LATE: Final = {"lateness": {"share": 0.02, "beyond": "10s"}}


class _Loop(Job):
    """The reference engine's loop with topics of one partition in memory."""

    def __init__(self, settings: EngineSettings, plan: OutputPlanner) -> None:
        self._settings, self._core, self._decoders = settings, core_of(settings, self._own_end), {}
        self._plan = plan
        for topic in settings.inputs:
            self._core.assign((topic, 0), PartitionProgress(0, 0, BEGINNING_MS))
            self._decoders[topic, 0] = self._decoder(topic)

    def outputs(self, values: Mapping[str, Sequence[bytes]]) -> list[Output]:
        """What the engine writes after it has read all topics."""
        found: list[Output] = []
        for topic, of in values.items():
            for offset, value in enumerate(of):
                records = self._decoders[topic, 0].records(offset, value)
                assert records is not None, value
                if not isinstance(records, wire.FilteredOut):
                    self._core.process((topic, 0), records)
                found += self._taken()
        self._core.close_all()
        return found + self._taken()

    def _taken(self) -> list[Output]:
        answers = self._core.take()
        return [
            output
            for planned in (self._plan(answers) if answers else ())
            for output in ([self._late(planned)] if isinstance(planned, LateEvent) else self._results(planned.result))
        ]


def written(
    topics: Topics,
    inputs: Mapping[str, Sequence[Record]],
    plan: OutputPlanner = honest,
    window_ms: int = WINDOW_MS,
) -> list[Output]:
    """What the reference engine writes in one stage: to its topics of results and of late events."""
    return _Loop(topics.engine("b:1", window_ms), plan).outputs(
        {topic: [bytes(record.value or b"") for record in records] for topic, records in inputs.items()}
    )


def logged(outputs: Iterable[Output], topic: str) -> list[Record]:
    """The records of a topic."""
    return log(one(it.value, it.key, START_MS) for it in outputs if it.topic == topic)


def reported(topics: Topics, logs: Logs, folder: Path) -> tuple[Snapshot, dict[tuple[str, Cell], int]]:
    """The report of the sidecar of one stage, and the violations that it has on record."""
    folder.mkdir()
    file = SidecarFile(
        pipeline="stage", guarantee="exactly_once", engine="reference", window_ms=WINDOW_MS,
        overdue_after_ms=1_000, missing_after_ms=2_000, topics=topics,
    ).write("b:1", folder)  # fmt: skip
    tables = MemoryTables()
    return judged(file.read_text(), logs, folder / "state", tables=tables), violations(tables)


def load_of(workload: Workload) -> dict[str, Any]:
    """The load of the first stage of a workload."""
    first = workload.stages[0]
    has_late = not first.operator(WINDOW_MS) and not first.aggregates
    events = LONGER.get(workload.kind, LONGER.get(first.kind, 1_200))
    return {
        "window": f"{WINDOW_MS}ms", "events_per_window": 40, "limit": {"events": events},
        "flush_windows": True, "seed": 7, "topic": first.streams[0].name,
        "workload": {"kind": first.kind, **PARAMETERS.get(first.kind, {})},
        "update_topic": first.streams[-1].name,
        **(_LATE if has_late else {}),
        **first.settings(WINDOW_MS, 40),
    }  # fmt: skip


def events_of(load: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Record]]:
    """The generator's records of a load, by topic."""
    found: dict[str, list[Sent]] = {}
    for client in sent(monkeypatch, load, partitions=1):
        for record in client:
            found.setdefault(record.topic, []).append(record)
    return {
        topic: log(one(record.value, record.key, START_MS + n) for n, record in enumerate(records))
        for topic, records in found.items()
    }


def workload_shape(kind: str, monkeypatch: pytest.MonkeyPatch) -> Shape:
    """The records of the workload ``kind``, and the same without one result."""
    of = named(kind).model_copy(update=PARAMETERS.get(kind, {}))
    inputs = events_of(load_of(of), monkeypatch)
    *before, topics = Topics(of).stages
    for stage in before:
        inputs = {stage.output: logged(written(stage, inputs), stage.output)}
    outputs = written(topics, inputs)
    results = logged(outputs, topics.output)
    # The newest result of a running aggregate replaces the others.
    is_running = of.operator(WINDOW_MS).get("operator") == "running_aggregate"
    lost = len(results) - 1 if of.aggregates and is_running else len(results) // 2
    return Shape(
        inputs,
        {topics.output: results},
        {topics.output: log(results[:lost] + results[lost + 1 :])},
        {topic: logged(outputs, topic) for topic in topics.late if "lateness" in load_of(of)},
    )
