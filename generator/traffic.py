"""OSPBench's traffic: how many cars pass the lanes of roads, and how fast, measured once a second.

Source: OSPBench replays an extract of the Dutch NDW, which has 12 measurement points with 19 lanes: 38 observations a
second, of a flow and of a speed for each lane. Their time is rounded to the second, half up. For volume, all of them
are repeated under other measurement ids (``clones``).

Here the values are drawn, a second is a window of the load, and an observation has an ``id``. Both kinds of
observations of a lane have neighbouring places on the grid, so they have the same time unless it is rounded
differently.
"""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np

from generator import seed
from generator.grid import GridPlan
from generator.nexmark import InTurn
from generator.sections import Count
from generator.sends import SendBatch
from generator.wire import json_bytes
from generator.workloads.seam import Events, Keyed, Load, NumberedWire, Numbers, Stream, Workload

LANES_OF_POINTS: Final = (2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1)
"""Lanes of each of the 12 measurement points."""
LANES: Final = [(point, lane) for point, lanes in enumerate(LANES_OF_POINTS) for lane in range(1, lanes + 1)]
OBSERVATIONS: Final = 2 * len(LANES)
"""Events in a second, for each clone."""
_FIELDS: Final = {"id": "id", "key": "laneId", "event_time": "timestamp"}
FLOW: Final = Stream("flow", _FIELDS, time_unit="ms", late="lateFlows")
FLOW_OF_POINT: Final = Stream("flow", {**_FIELDS, "key": "measurementId"}, time_unit="ms", late="lateFlows")
SPEED: Final = Stream("speed", _FIELDS, time_unit="ms", late="lateSpeeds")
_OBSERVED: Final = (
    b'{"id":%d,"measurementId":"%b","internalId":"lane%d","laneId":"%b/lane%d","timestamp":%d,'
    b'"lat":%b,"long":%b,%b:%d,"accuracy":95,"num_lanes":%d}'
)
_MEASURED: Final = {FLOW.name: b'"period":60,"flow"', SPEED.name: b'"speed"'}


class Observations(InTurn):
    """A flow and a speed of each lane in turn, with times that are rounded to ``period_ms``."""

    def __init__(self, plan: GridPlan, clones: int, period_ms: int) -> None:
        super().__init__(plan, (1, 1), (1, 1), [lambda numbers: places_of(numbers, clones)] * 2)
        self._period_ms = period_ms

    def split(self, batch: SendBatch) -> tuple[SendBatch, ...]:
        """See `Events`."""
        period_ms = self._period_ms
        batch.times_ms = [(ms + period_ms // 2) // period_ms * period_ms for ms in batch.times_ms]
        return super().split(batch)


class ObservationWire(NumberedWire):
    """A flow or a speed. Its key is its place among the lanes of all clones."""

    def __init__(self, seed_: int, clones: int, field: str) -> None:
        self._seed, self._clones, self._field = seed_, clones, field

    def keys_of(self, numbers: Numbers) -> Numbers:
        """The places of the lanes."""
        return places_of(numbers, self._clones)

    def kafka_key(self, key: int) -> bytes:
        """The measurement id, as JSON: all lanes of a point are in one partition."""
        return json_bytes(_measurement(key)[0])

    def render(self, numbers: list[int], keys: list[int], times_ms: list[int], created_ms: int) -> list[bytes]:
        """See `Wire`."""
        del created_ms
        most = 40 if self._field == FLOW.name else 130
        values = (seed.draws(self._seed, self._field, np.array(numbers, np.int64)) * most).astype(np.int64).tolist()
        return [
            self._observed(number, key, ms, value)
            for number, key, ms, value in zip(numbers, keys, times_ms, values, strict=True)
        ]

    def number_in(self, value: bytes) -> int:
        """See `Wire`."""
        return int(value[6 : value.index(b",")])

    def _observed(self, number: int, key: int, time_ms: int, value: int) -> bytes:
        name, point, lane = _measurement(key)
        place = (b"52.%04d" % (1000 + point), b"4.%04d" % (5000 + point))
        of = name.encode()
        measured = (_MEASURED[self._field], value, LANES_OF_POINTS[point])
        return _OBSERVED % (number, of, lane, of, lane, time_ms, *place, *measured)


class OnFlows(Workload):
    """A stage that reads flows alone, of each lane in turn, whose times are not rounded."""

    streams: ClassVar[tuple[Stream, ...]] = (FLOW_OF_POINT,)
    clones: Count = 1
    """How often the 12 measurement points exist."""

    def events(self, load: Load) -> Events:
        """The flows of all lanes in turn."""
        return Keyed(load.plan, lambda numbers: places_of(numbers, self.clones))

    def wire(self, stream: Stream, load: Load) -> ObservationWire:
        """A flow."""
        return ObservationWire(load.plan.seed, self.clones, stream.name)


def places_of(numbers: Numbers, clones: int) -> Numbers:
    """The places of the lanes of observations with these ids."""
    return (numbers - 1) % (clones * len(LANES))


def clones_for(events_per_period: int) -> int:
    """The clones with which no lane is observed twice in a period."""
    return -(-events_per_period // OBSERVATIONS)


def _measurement(key: int) -> tuple[str, int, int]:
    """The measurement id, the point and the lane."""
    clone, place = divmod(key, len(LANES))
    point, lane = LANES[place]
    return f"{clone}-RWS01_{point:02d}", point, lane
