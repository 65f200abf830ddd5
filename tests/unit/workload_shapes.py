"""The records of a workload: the generator's events, and what the reference engine makes of them, without a broker."""

from __future__ import annotations

from typing import Any, Final

import pytest
from pydantic import TypeAdapter

from generator.workloads.kinds import AnyWorkload
from generator.workloads.seam import Workload
from testbed.engines import wire
from testbed.engines.core import BEGINNING_MS, LateEvent, PartitionProgress
from testbed.engines.job import Job, core_of
from testbed.engines.settings import EngineSettings
from testbed.engines.sinks import Output
from tests.unit.pipeline_shapes import START_MS, Shape, log, one
from tests.unit.sent_records import sent

WINDOW_MS: Final = 10_000
LONGER: Final = {"nexmark_q3": 6_000, "statistics": 2_400, "distinct_count": 4_000}
"""Number of events where few are joined or repeated, or there are many keys."""
PARAMETERS: Final[dict[str, dict[str, Any]]] = {"shufflebench": {"rules": 40}}
"""Those without which a sample has one record of most keys."""
_LATE: Final = {"lateness": {"share": 0.02, "beyond": "10s"}}


class _Loop(Job):
    """The reference engine's loop with topics of one partition in memory."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings, self._core, self._decoders = settings, core_of(settings), {}
        for topic in settings.inputs:
            self._core.assign((topic, 0), PartitionProgress(0, 0, BEGINNING_MS))
            self._decoders[topic, 0] = self._decoder(topic)

    def outputs(self, values: dict[str, list[bytes]]) -> list[Output]:
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
            for answer in answers
            for output in ([self._late(answer)] if isinstance(answer, LateEvent) else self._results(answer))
        ]


def workload_shape(kind: str, monkeypatch: pytest.MonkeyPatch) -> Shape:
    """The records of the workload ``kind``, and the same without one result."""
    described = {"kind": kind, **PARAMETERS.get(kind, {})}
    of = TypeAdapter[Workload](AnyWorkload).validate_python(described)
    topics = [stream.name for stream in of.streams]
    has_late = not of.operator(WINDOW_MS) and not of.aggregates
    load: dict[str, Any] = {
        "window": f"{WINDOW_MS}ms", "events_per_window": 40, "limit": {"events": LONGER.get(kind, 1_200)},
        "flush_windows": True, "seed": 7, "workload": described, "topic": topics[0], "update_topic": topics[-1],
        **(_LATE if has_late else {}),
        **of.settings(WINDOW_MS, 40),
    }  # fmt: skip
    values: dict[str, list[bytes]] = {topic: [] for topic in topics}
    inputs: dict[str, list[Any]] = {topic: [] for topic in topics}
    for client in sent(monkeypatch, load, partitions=1):
        for record in client:
            values[record.topic].append(record.value)
            inputs[record.topic].append(one(record.value, record.key, START_MS + len(inputs[record.topic])))
    written = _Loop(_settings(of, topics)).outputs(values)
    results = [one(it.value, it.key, START_MS) for it in written if it.topic == "output"]
    # The newest result of a running aggregate replaces the others.
    lost = len(results) - 1 if of.aggregates else len(results) // 2
    late = {
        stream.late: log(one(it.value, it.key, START_MS) for it in written if it.topic == stream.late)
        for stream in of.streams
        if has_late
    }
    return Shape(
        {topic: log(records) for topic, records in inputs.items()},
        {"output": log(results)},
        {"output": log(results[:lost] + results[lost + 1 :])},
        late,
    )


def _settings(of: Workload, topics: list[str]) -> EngineSettings:
    return EngineSettings(
        bootstrap_servers="b:1",
        workload=of,
        inputs=tuple(topics),
        output="output",
        late=of.streams[0].late,
        late_updates=of.streams[-1].late,
        window_ms=WINDOW_MS,
        **of.operator(WINDOW_MS),
    )
