"""`streamproof doctor` compares the newest results with the newest events, by the rules of the sidecar (SEMANTICS 4.28
and 4.29)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import numpy as np

from validator.cli.check_result import CheckResult, note, ok, problem
from validator.codecs.one_record import Event, Result
from validator.config.model import Config
from validator.core.fit import FEW, Answered, Fit, answered, fit_of
from validator.core.fit_sample import Expected, FitSample, Named, rank_of
from validator.model.arrays import ABSENT
from validator.model.wording import plural
from validator.stream.doubt_sentences import example_clause, growth_sentence, mismatch_sentence

_EVERY: Final = 1 << 40
"""More ids and rows than a sample of the newest records has."""

Read = tuple[str, int, int, int, Event | Result]
"""Topic, partition, offset, broker time in microseconds, and the decoded record."""


def compare(config: Config, records: Iterable[Read], *, whole: Mapping[str, bool]) -> Iterator[CheckResult]:
    """A finding if the newest results and the newest events have an id in common, or should have one.

    ``records``: decoded events and results. ``whole``: topic -> whether it was read from its start.
    """
    sample = FitSample(_EVERY, _EVERY)
    if config.oracle.reads.states_values:
        # SEMANTICS 4.27: results that state a count name no event.
        return
    for topic, partition, offset, time_us, decoded in records:
        if isinstance(decoded, Event):
            _add_event(config, sample, topic, decoded)
        else:
            _add_result(config, sample, Named(topic, partition, offset, ABSENT, None, time_us, 0), decoded)
    outputs, inputs = ([entry.topic for entry in entries] for entries in (config.outputs, config.inputs))
    if not all(whole.get(topic) for topic in outputs):
        _leave_out_earlier_windows(sample)
    events = answered(sample)
    fit = fit_of(sample, config.oracle, _results(events))
    right = sum(one.is_right for one in events)
    named, known = (sum(bool(rows) for rows in of) for of in _rows(sample))
    if fit.mismatch is not None:
        text = mismatch_sentence(fit.mismatch) + example_clause(config, fit)
        yield problem("results", text, _check(fit))
    elif len(events) >= FEW and not right:
        text = f"none of {plural(len(events), 'event')} is in a result for its window and key"
        yield problem("results", text + example_clause(config, fit), "check the fields of key and time and their units")
    elif named and known and not events and all(whole.get(topic) for topic in (*inputs, *outputs)):
        text = "no id of a result is the id of an event" + example_clause(config, fit)
        yield problem("results", text, "check inputs[].fields.id and outputs[].fields.ids")
    elif events:
        said = "is in a result for its window and key" if right == 1 else "are in results for their windows and keys"
        text = f"{right:,} of {plural(len(events), 'event')} that the newest results name {said}"
        yield ok("results", text) if right == len(events) else note("results", text + example_clause(config, fit))
    if fit.growth is not None:
        yield problem("emission", growth_sentence(config, fit.growth), "check outputs[].emission")


def _check(fit: Fit) -> str:
    parameter = fit.mismatch.parameter if fit.mismatch is not None else None
    return f"check {parameter or 'the parameters of the oracle, and the fields of key and time'}"


def _add_event(config: Config, sample: FitSample, topic: str, event: Event) -> None:
    if not event.is_owed:
        return
    oracle = config.oracle
    starts = oracle.assigned(np.array([event.event_time_us], dtype=np.int64)).starts.tolist()
    key = _key(config, event.key, event.id)
    space = f"{topic}/" if oracle.spaces(config.inputs) else ""
    sample.put(_name(space, event.id), (Expected(topic, start, key) for start in starts))


def _add_result(config: Config, sample: FitSample, at: Named, result: Result) -> None:
    entry = next(entry for entry in config.outputs if entry.topic == at.topic)
    spaces = [f"{path.input}/" if path.input is not None else "" for path in entry.fields.ids or ()] or [""]
    start = ABSENT
    if result.window_start_us is not None:
        start = int(config.oracle.starts_of_results(np.array([result.window_start_us], dtype=np.int64))[0])
    size = sum(map(len, result.ids))
    for space, ids in zip(spaces, result.ids, strict=True):
        for id_ in ids:
            named = at._replace(start_us=start, key=_key(config, result.key, id_), size=size)
            sample.put(_name(space, id_), named=[named])


def _name(space: str, id_: int | str) -> tuple[int, str]:
    return rank_of(f"{space}{id_}" if space else id_)


def _key(config: Config, key: str, id_: int | str) -> str:
    return json.dumps([key, str(id_)], ensure_ascii=False) if config.oracle.by_id else key


def _leave_out_earlier_windows(sample: FitSample) -> None:
    """Leave out the windows of an event that no result names: their results may be older than those that were read."""
    for one in sample.found.values():
        named = {(it.start_us, it.key) for it in one.named}
        both = {it for it in one.expected if (it.start_us, it.key) in named}
        one.expected = both or one.expected


def _rows(sample: FitSample) -> tuple[list[set[Named]], list[set[Expected]]]:
    return [one.named for one in sample.found.values()], [one.expected for one in sample.found.values()]


def _results(events: Iterable[Answered]) -> dict[str, int]:
    """The number of results with a misplaced id, and of the others with the id of an event."""
    found: dict[tuple[str, int, int], bool] = {}
    for one in events:
        cells = {(it.start_us, it.key) for it in one.expected}
        for it in one.named:
            place = it.topic, it.partition, it.offset
            found[place] = found.get(place, False) or (it.start_us, it.key) not in cells
    misplaced = sum(found.values())
    return {"misplaced_results": misplaced, "correct": len(found) - misplaced}
