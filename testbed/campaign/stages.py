"""The stages of a recovery, from the series of a run: the engine noticed the fault, all of its tasks run again, the
first output after the outage, the latency as before the fault, and the backlog drained. All are seconds from the
injection (OSPBench and CheckMate: the latency returns; Vogel et al.: the lag, too). And what the engine does without
the worker that a fault has ended (StreamBench).

Latency and lag are as before once they stay within the band of the control phase for some windows, counted from then or
from the healing, whichever is later. A stage that the load did not last for is None, and so is one of which the control
phase has no value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from statistics import fmean, median
from typing import Any, Final

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from testbed.campaign import inputs, reach
from testbed.campaign.counters import Row
from testbed.campaign.sampler import GROUP, Sample
from testbed.engines.flink import RUNNING_TASKS

BAND: Final = 0.15
"""How far a value that counts as before may be above the largest one of the control phase, as a share of it, or of a
second and of a second's load if it is smaller: a lag that was always 0 has no band of its own. The share is that of
Vogel et al., whose band is around the mean, which a lag that grows until the next commit leaves in each interval."""
_SILENCE_SECONDS: Final = 2.0
"""Longer than the longest silence of the control phase by this: an outage, and no jitter."""
_REBALANCES: Final = "rebalance-total"
"""Of an instance of Kafka Streams: they rise when the group has noticed a fault."""
_KILL: Final = "process_kill"
"""The kind of faults that keep a process down until the healing begins."""
Points = Sequence[tuple[float, float]]
"""(second, value), in order."""


class Stages(BaseModel):
    """The stages of one fault, and the longest silence of each partition less that of the control phase."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    outage: bool | None = None
    """Whether there was a silence longer than before the fault; None: unknown."""
    first_output_seconds: float | None = None
    latency_recovery_seconds: float | None = None
    lag_recovery_seconds: float | None = None
    partition_downtimes_seconds: tuple[float | None, ...] = ()
    """None: no output ended the silence."""
    noticed_seconds: float | None = None
    """Until the engine noticed the fault, to the second; None: not before the fault was being healed, or unknown."""
    peak_latency_p99_seconds: float | None = None
    """The highest p99 of the results of a second, until the next fault or the end of the load."""
    restarted_seconds: float | None = None
    """Until as many of Flink's tasks run as before the fault, to the second; None: unknown, or none was lost."""
    degraded_throughput_per_second: float | None = None
    """Contributions while a killed process is down, once every partition has output again; None: that took too long."""
    degraded_latency_p50_seconds: float | None = None
    """Of the results at that time."""
    hit_input_per_second: float | None = None
    """Records that the workers which the fault hit read, until the healing began; None: not counted."""
    others_input_per_second: float | None = None
    """The same of the other workers."""
    output_before_restart: bool | None = None
    """Whether every partition had output before the healing of a kill began; None: no kill."""
    connect_p50_seconds: float | None = None
    connect_p99_seconds: float | None = None
    """Until the broker accepted a connection, until the healing began."""
    unreachable_ratio: float | None = None
    """Share of the connections that it did not accept in time."""


@dataclass(frozen=True)
class Span:
    """A time, in seconds since the epoch."""

    start: float
    end: float

    def of(self, points: Points) -> Points:
        """The points in it."""
        return [point for point in points if self.start <= point[0] < self.end]


def stages(
    faults: Sequence[Mapping[str, Any]], latencies: pa.Table, samples: Sequence[Sample], stable_seconds: float,
    counted: Sequence[Row] = (),
) -> list[Stages]:  # fmt: skip
    """The stages of each fault of a report, until the next one or the end of the load. ``latencies``: those of
    `testbed.campaign.latencies`. ``samples``: without those of the load, its end is not known, and the last fault has
    no stages. ``stable_seconds``: how long a value must stay as before. ``counted``: the engine's counters."""
    group = [sample for sample in samples if sample.process == GROUP]
    load_end = max((sample.time_us / 1e6 for sample in group if sample.produced_events), default=None)
    load = [(sample.time_us / 1e6, float(sample.produced_events or 0)) for sample in group]
    lag = [(sample.time_us / 1e6, float(sample.lag_events)) for sample in group if sample.lag_events is not None]
    at = [us / 1e6 for us in latencies["time"].cast(pa.int64()).to_pylist()]
    sizes = latencies["contributions"].to_pylist()
    read = list(inputs.reads(counted))
    outputs: dict[int, list[float]] = {}
    latency: dict[int, list[tuple[float, float]]] = {}
    parts, values = (latencies[name].to_pylist() for name in ("partition", "window_close_seconds"))
    for second, partition, value in zip(at, parts, values, strict=True):
        outputs.setdefault(partition, []).append(second)
        if value is not None:
            latency.setdefault(partition, []).append((second, value))
    starts = [_seconds(fault["start"]) for fault in faults]
    found: list[Stages] = []
    for number, fault in enumerate(faults):
        start, control, healed = starts[number], _control(fault), _seconds(fault["healed"])
        end = next((later for later in starts[number + 1 :] if later is not None), load_end)
        if start is None or control is None or healed is None or end is None:
            found.append(Stages())
            continue
        after, heals = Span(start, end), _seconds(fault.get("heal_started")) or healed
        is_kill = fault["kind"] == _KILL
        down = _degraded(outputs, control, after, heals) if is_kill else None
        goes_on = down is not None if is_kill else None
        if down is not None and down.end - down.start < stable_seconds:
            down = None  # of bursts of results, fewer give no rate
        of_down = [] if down is None else down.of([point for of in latency.values() for point in of])
        of_hit, of_others = inputs.rates(read, inputs.hit([fault]), _us(start), _us(heals))
        connect_p50, connect_p99, unreachable = reach.during(counted, _us(start), _us(heals))
        found.append(
            Stages(
                outage=_is_outage(at, control, after),
                first_output_seconds=_first_output(at, control, after),
                # Of a partial outage, the partitions that no fault hit would hide it.
                latency_recovery_seconds=_last(
                    [_returned(of, 1.0, control, after, healed, stable_seconds) for of in latency.values()]
                ),
                lag_recovery_seconds=_returned(lag, _second_of(load, control), control, after, healed, stable_seconds),
                partition_downtimes_seconds=tuple(
                    _downtime(seconds, control, after) for _, seconds in sorted(outputs.items())
                ),
                noticed_seconds=_noticed(counted, Span(start, heals)),
                peak_latency_p99_seconds=_peak([point for of in latency.values() for point in after.of(of)]),
                restarted_seconds=_restarted(counted, after),
                degraded_throughput_per_second=None if down is None else _rate(list(zip(at, sizes, strict=True)), down),
                degraded_latency_p50_seconds=median([value for _, value in of_down]) if of_down else None,
                hit_input_per_second=of_hit,
                others_input_per_second=of_others,
                output_before_restart=goes_on,
                connect_p50_seconds=connect_p50,
                connect_p99_seconds=connect_p99,
                unreachable_ratio=unreachable,
            )
        )
    return found


def _second_of(load: Points, control: Span) -> float:
    """Events that the load appends in a second of the control phase."""
    return fmean([events for _, events in control.of(load)] or [0.0])


def _returned(
    points: Points, least: float, control: Span, after: Span, healed: float, stable_seconds: float
) -> float | None:
    """Seconds from the injection until the values stay as before; 0 if they never left. ``least``: of what the band is
    at least a share."""
    before = [value for _, value in control.of(points)]
    seen = after.of(points)
    if not before or not seen:
        return None
    most = max(before) + BAND * max(*before, least)
    back: float | None = after.start
    usual, last = _longest([second for second, _ in points], control)[0], after.start
    for second, value in [*seen, (after.end, most)]:
        if second - last > usual + _SILENCE_SECONDS:
            back = None  # without output there is no latency, which is not as before
        if back is not None and second > max(back, healed) + stable_seconds:
            break
        if value > most:
            back = None
        elif back is None:
            back = second
        last = second
    is_known = back is not None and max(back, healed) + stable_seconds <= after.end
    return back - after.start if back is not None and is_known else None


def _noticed(counted: Sequence[Row], fault: Span) -> float | None:
    """Seconds from the injection to the first change of a counter that shows that the engine has noticed the fault. A
    worker that starts again counts from 0."""
    before: dict[tuple[str, str], float] = {}
    for at_us, part, name, value in counted:
        if name not in (_REBALANCES, RUNNING_TASKS) or at_us / 1e6 >= fault.end:
            continue
        if at_us / 1e6 < fault.start:
            before[part, name] = value
        elif (usual := before.get((part, name))) is not None and (
            value > usual if name == _REBALANCES else value < usual
        ):
            return at_us / 1e6 - fault.start
    return None


def _restarted(counted: Sequence[Row], after: Span) -> float | None:
    """Seconds from the injection until as many tasks run as before it, once fewer did."""
    usual: float | None = None
    fewer = False
    for at_us, _, name, value in counted:
        if name != RUNNING_TASKS or at_us / 1e6 >= after.end:
            continue
        if at_us / 1e6 < after.start:
            usual = value
        elif usual is not None and value < usual:
            fewer = True
        elif fewer:
            return at_us / 1e6 - after.start
    return None


def _degraded(outputs: Mapping[int, Sequence[float]], control: Span, after: Span, heals: float) -> Span | None:
    """The time from the end of the last partition's outage until the healing begins."""
    begin, until = after.start, Span(after.start, min(heals, after.end))
    for at in outputs.values():
        silence, end = _longest(at, until)
        if silence > _longest(at, control)[0] + _SILENCE_SECONDS:
            begin = max(begin, end)
    return Span(begin, until.end) if begin < until.end else None


def _rate(points: Points, span: Span) -> float:
    return sum(value for _, value in span.of(points)) / (span.end - span.start)


def _us(second: float) -> int:
    return round(second * 1e6)


def _peak(points: Points) -> float | None:
    of: dict[int, list[float]] = {}
    for second, value in points:
        of.setdefault(int(second), []).append(value)
    return max((sorted(values)[-(-99 * len(values) // 100) - 1] for values in of.values()), default=None)


def _last(times: Sequence[float | None]) -> float | None:
    known = [time for time in times if time is not None]
    return max(known) if known and len(known) == len(times) else None


def _first_output(at: Sequence[float], control: Span, after: Span) -> float | None:
    """Seconds from the injection to the end of the longest silence; None if it is no outage, or no output ended it."""
    end = _longest(at, after)[1]
    return end - after.start if _is_outage(at, control, after) and end < after.end else None


def _is_outage(at: Sequence[float], control: Span, after: Span) -> bool:
    return _longest(at, after)[0] > _longest(at, control)[0] + _SILENCE_SECONDS


def _downtime(at: Sequence[float], control: Span, after: Span) -> float | None:
    """The longest silence less the longest one of the control phase; None if no output ended an outage."""
    longest, end = _longest(at, after)
    is_open = end == after.end and _is_outage(at, control, after)
    return None if is_open else max(0.0, longest - _longest(at, control)[0])


def _longest(at: Sequence[float], span: Span) -> tuple[float, float]:
    """The longest silence within a span, and its end. A silence that begins earlier counts from the begin."""
    inside = [span.start, *(second for second in at if span.start <= second < span.end), span.end]
    return max(((later - earlier, later) for earlier, later in pairwise(inside)))


def _control(fault: Mapping[str, Any]) -> Span | None:
    start, end = _seconds(fault["control_start"]), _seconds(fault["control_end"])
    return None if start is None or end is None else Span(start, end)


def _seconds(instant: str | None) -> float | None:
    return None if instant is None else datetime.fromisoformat(instant).timestamp()
