"""Whether the engine drops late events: the sampled events in no result are late by the events before them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from validator.cli.comparison import Read
from validator.cli.proposal.columns import TopicSample
from validator.cli.proposal.matches import FEW
from validator.codecs.one_record import Event, Result
from validator.config.model import Config
from validator.model.arrays import Bools, Ints
from validator.model.wording import plural
from validator.settings.formats.guesses import ENOUGH

_FEW_NAMED: Final = 1 - ENOUGH
"""Share of the events in results that may be late, too: records have no exact order across partitions."""


class _Sampled(NamedTuple):
    """Events: their record's time, their own time, the end of their last window, whether a result names them, and
    whether its window is one whose result is surely in the sample."""

    appended: Ints
    times: Ints
    ends: Ints
    named: Bools
    counts: Bools
    places: Sequence[tuple[str, int]]


def lateness_of(
    document: Mapping[str, Any], reads: Sequence[Read], samples: Mapping[str, TopicSample]
) -> tuple[dict[str, Any], list[str]]:
    """Return what to add to `timing`, and doubts. ``reads``: the decoded records. ``samples``: those of all topics."""
    config = Config.model_validate(document, context={"folder": Path()})
    oracle = config.oracle
    has_late_topic = "late" in document or "rejected" in document
    is_windowed = oracle.result_time == "window_start" and oracle.merging_gap_us is None
    if not oracle.reads.names_ids or has_late_topic or not is_windowed or oracle.spaces(config.inputs):
        return {}, []
    found = _sampled(config, reads, whole=all(samples[entry.topic].is_whole for entry in config.outputs))
    rest = found.counts & ~found.named
    if rest.sum() < FEW:
        return {}, []
    late = _late(found, config.timing.max_disorder_us)
    if late[rest].mean() >= ENOUGH and late[found.named].mean() <= _FEW_NAMED:
        doubt = (
            f"{plural(int(rest.sum()), 'event')} of the sample are in no result, and their windows end before times "
            "that the engine may have read earlier: the file says that it drops late events. If it must not, remove "
            "timing.late_policy."
        )
        return {"late_policy": "drop"}, [doubt]
    return {}, list(_of_partitions(found, rest))


def _sampled(config: Config, reads: Sequence[Read], *, whole: bool) -> _Sampled:
    events = [
        (topic, partition, time_us, one)
        for topic, partition, _, time_us, one in reads
        if isinstance(one, Event) and one.is_owed
    ]
    results = [one for *_, one in reads if isinstance(one, Result)]
    ids = {id_ for one in results for of in one.ids for id_ in of}
    stated = [one.window_start_us for one in results if one.window_start_us is not None]
    times = np.array([one.event_time_us for *_, one in events], dtype=np.int64)
    rows, starts = config.oracle.assigned(times)
    last = np.full(len(events), np.iinfo(np.int64).min)
    np.maximum.at(last, np.arange(len(events)) if rows is None else rows, starts)
    bounds = config.oracle.starts_of_results(np.array([min(stated), max(stated)], dtype=np.int64))
    # Earlier results may be older than the sample, later ones are to come.
    counts = (last <= bounds[1]) & ((last >= bounds[0]) | whole)
    return _Sampled(
        np.array([time_us for _, _, time_us, _ in events], dtype=np.int64),
        times,
        config.oracle.ends_us(last),
        np.array([one.id in ids for *_, one in events], dtype=np.bool_),
        counts,
        [(topic, partition) for topic, partition, _, _ in events],
    )


def _late(found: _Sampled, disorder_us: int) -> Bools:
    """Which windows end before the times of earlier records: those of any partition, since the engine may use one
    clock for all."""
    rows = {place: np.flatnonzero([it == place for it in found.places]) for place in dict.fromkeys(found.places)}
    newest = np.full(len(found.times), np.iinfo(np.int64).min)
    for of in rows.values():
        times, appended = np.maximum.accumulate(found.times[of]), np.maximum.accumulate(found.appended[of])
        for others in rows.values():
            # In its own partition a record has an order, in others the time of its record.
            before = (
                np.arange(len(of)) if others is of else np.searchsorted(appended, found.appended[others], "right") - 1
            )
            some = before >= 0
            newest[others[some]] = np.maximum(newest[others[some]], times[before[some]])
    late: Bools = found.ends <= newest - disorder_us
    return late


def _of_partitions(found: _Sampled, rest: Bools) -> Sequence[str]:
    """Doubts about partitions none of whose events is in a result."""
    named = {place for place, is_named in zip(found.places, found.named.tolist(), strict=True) if is_named}
    silent = {place for place, is_rest in zip(found.places, rest.tolist(), strict=True) if is_rest} - named
    return [f"No event of partition {partition} of {topic} is in a result." for topic, partition in sorted(silent)]
