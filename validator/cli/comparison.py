"""`streamproof doctor` compares the newest results with the newest events, by the rules of the sidecar (SEMANTICS 4.28
and 4.29)."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache
from typing import Final

import numpy as np

from validator.cli.check_result import CheckResult, note, ok, problem
from validator.codecs.one_record import Event, Result
from validator.config.model import Config
from validator.core import fit as core_fit
from validator.core.fit import FEW, Fit, Growth, answered, fit_of, updating
from validator.core.fit_sample import Expected, FitSample, Named, rank_of
from validator.model.arrays import ABSENT
from validator.model.pair_rules import NUMBERS
from validator.model.wording import plural, plural_of
from validator.oracles.seam import Oracle
from validator.publish.redaction import HIDDEN
from validator.publish.times import rfc3339
from validator.reconcile.joined_values import OfPairs
from validator.reconcile.values import Aggregate, Answered, wrong_value
from validator.stream.doubt_sentences import example_clause, growth_sentence, mismatch_sentence

_EVERY: Final = 1 << 40
"""More ids and rows than a sample of the newest records has."""

Read = tuple[str, int, int, int, Event | Result]
"""Topic, partition, offset, broker time in microseconds, and the decoded record."""
_Place = tuple[str, int]
"""Topic and partition."""


def compare(config: Config, records: Iterable[Read], *, whole: Mapping[str, bool]) -> Iterator[CheckResult]:
    """A finding if the newest results and the newest events have an id in common, or should have one.

    ``records``: decoded events and results. ``whole``: topic -> whether it was read from its start.
    """
    if config.oracle.reads.upserts:
        # Without the rows of older records, what a record replaces is not known.
        return
    if not config.oracle.reads.names_ids:
        yield from _counts(config, counted(config, list(records), whole=whole))
        return
    sample = sampled(config, records, whole=whole)
    outputs, inputs = ([entry.topic for entry in entries] for entries in (config.outputs, config.inputs))
    events = answered(sample, in_every_cell=config.oracle.in_every_cell)
    fit = fit_of(sample, config.oracle, _results(events))
    right = sum(one.is_right for one in events)
    named, known = (sum(bool(rows) for rows in of) for of in _rows(sample))
    cell, cells = _cell(config.oracle, 1), _cell(config.oracle, 2)
    if fit.mismatch is not None:
        text = mismatch_sentence(config.oracle, fit.mismatch) + example_clause(config, fit)
        yield problem("results", text, _check(fit))
    elif len(events) >= FEW and not right:
        text = f"none of {plural(len(events), 'event')} is in a result for its {cell}"
        yield problem("results", text + example_clause(config, fit), "check the fields of key and time and their units")
    elif found := [topic for topic in inputs if len(inputs) > 1 and _none_is_right(events, topic)]:
        many = sum(one.expected[0].topic == found[0] for one in events)
        text = f"none of {plural(many, 'event')} of {found[0]} is in a result for its {cell}"
        place = config.entry_of(found[0])
        yield problem(
            "results", text + example_clause(config, fit, found[0]), f"check the key and the time in {place}.fields"
        )
    elif named and known and not events and all(whole.get(topic) for topic in (*inputs, *outputs)):
        text = "no id of a result is the id of an event" + example_clause(config, fit)
        yield problem("results", text, "check inputs[].fields.id and outputs[].fields.ids")
    elif events:
        said = f"is in a result for its {cell}" if right == 1 else f"are in results for their {cells}"
        text = f"{right:,} of {plural(len(events), 'event')} that the newest results name {said}"
        yield ok("results", text) if right == len(events) else note("results", text + example_clause(config, fit))
    if fit.growth is not None:
        yield problem("emission", growth_sentence(config, fit.growth), "check outputs[].emission")


def _cell(oracle: Oracle, count: int) -> str:
    """What names a cell, or several, in words."""
    time, key = (oracle.cell_noun, "key") if count == 1 else (plural_of(oracle.cell_noun), "keys")
    return f"{time} and {key}" if oracle.has_windows else key


def _none_is_right(events: Sequence[core_fit.Answered], topic: str) -> bool:
    """Whether results name a few events of the input, and none of them where it belongs."""
    mine = [one.is_right for one in events if one.expected[0].topic == topic]
    return len(mine) >= FEW and not any(mine)


def sampled(config: Config, records: Iterable[Read], *, whole: Mapping[str, bool]) -> FitSample:
    """Return all events and results as a sample. Arguments as in `compare`."""
    sample = FitSample(_EVERY, _EVERY)
    events: list[tuple[str, Event]] = []
    for topic, partition, offset, time_us, decoded in records:
        if isinstance(decoded, Event):
            events.append((topic, decoded))
        else:
            _add_result(config, sample, Named(topic, partition, offset, ABSENT, None, time_us, 0), decoded)
    for (topic, event), starts in zip(events, _starts(config, events), strict=True):
        _add_event(config, sample, topic, event, starts)
    if not all(whole.get(entry.topic) for entry in config.outputs):
        _leave_out_earlier_windows(sample)
    return sample


def _starts(config: Config, events: Sequence[tuple[str, Event]]) -> list[list[int]]:
    """The starts of the cells of each event. A session that merged begins with its first event."""
    oracle, gap_us = config.oracle, config.oracle.merging_gap_us
    times = np.array([event.event_time_us for _, event in events], dtype=np.int64)
    if gap_us is not None:
        last: dict[str, tuple[int, int]] = {}
        for at, (_, event) in sorted(enumerate(events), key=lambda it: it[1][1].event_time_us):
            time_us = event.event_time_us
            before_us, first_us = last.get(event.key, (time_us - gap_us - 1, time_us))
            first_us = first_us if time_us - before_us <= gap_us else time_us
            last[event.key] = time_us, first_us
            times[at] = first_us
    found: list[list[int]] = [[] for _ in events]
    topics = np.array([topic for topic, _ in events])
    for topic in dict.fromkeys(topics.tolist()):
        mine = np.flatnonzero(topics == topic)
        rows, starts = oracle.seen_from(topic).assigned(times[mine])
        rows = mine if rows is None else mine[rows]
        for row, start in zip(rows.tolist(), starts.tolist(), strict=True):
            found[row].append(start)
    return found


@dataclass(frozen=True)
class Counted:
    """Windows, or keys without windows, whose events are all in the sample.

    In ``right`` of ``of`` windows the results state the right values. ``wrong``: an example of the others: its start,
    its key, and what is wrong, as a clause. ``growth``: whether the results are updates, although each one counts."""

    right: int
    of: int
    wrong: tuple[int, str, str] | None = None
    growth: Growth | None = None


def counted(config: Config, records: Sequence[Read], *, whole: Mapping[str, bool]) -> Counted:
    """Compare the values that results state with their events (SEMANTICS 2.23, 2.29). Arguments as in `compare`.

    Left out are windows that begin before the first sampled event of a partition, since earlier events may belong to
    them, and windows that are still open and do not agree. Keys without windows begin before all events.
    """
    explode = {one.topic: it for one in config.inputs if (it := config.oracle.words_of(one)) is not None}
    events = [
        (topic, partition, one._replace(key=key))
        for topic, partition, _, _, one in records
        if isinstance(one, Event)
        for key in (explode[topic].words(one.key) if topic in explode else [one.key])
    ]
    if not events:
        return Counted(0, 0)
    times = np.array([one.event_time_us for *_, one in events], dtype=np.int64)
    rows, starts = config.oracle.assigned(times)
    rows = np.arange(len(events)) if rows is None else rows
    expected: dict[tuple[int, str], list[tuple[str, Event]]] = defaultdict(list)
    for row, start in zip(rows.tolist(), starts.tolist(), strict=True):
        topic, _, event = events[row]
        if event.is_owed:
            expected[start, event.key].append((topic, event))
    first: dict[tuple[str, int], int] = {}
    for topic, partition, one in events:
        if not whole.get(topic):
            first.setdefault((topic, partition), one.event_time_us + config.timing.max_disorder_us)
    from_us, newest_us = max(first.values(), default=ABSENT), int(times.max())
    stated = _stated(config, records)
    ends = config.oracle.ends_us(np.array([start for start, _ in stated], dtype=np.int64)).tolist()
    right = of = 0
    wrong, updates = None, _Updates()
    for (cell, found), end in zip(stated.items(), ends, strict=True):
        owed, results = expected.get(cell, []), [one for _, one in found]
        if config.oracle.reads.collapses:
            # SEMANTICS 2.4: a repeat counts with the event that it repeats.
            owed = list({event.id: (topic, event) for topic, event in owed}.values())
        number = sum(one.stated_count or 0 for one in results)
        of_cell = _number(config, owed)
        if config.oracle.reads.signed and of_cell <= 0:
            # A null value, which is no result here, withdraws that of a key without rows.
            continue
        if config.oracle.stated.show_number and number != of_cell:
            nouns = "events" if config.oracle.pair_rule is None else "pairs of events"
            clause: str | None = f"states {number:,} {nouns}, and the sample has {of_cell:,}"
        else:
            clause = _wrong_clause(config, owed, results)
        if cell[0] >= from_us:
            updates.add(cell, found, of_cell, is_open=end > newest_us)
            if clause is None or end <= newest_us:
                right, of = right + (clause is None), of + 1
                wrong = wrong or (None if clause is None else (*cell, clause))
    is_judged = config.oracle.has_windows and not config.oracle.answers_events and config.oracle.stated.show_number
    return Counted(right, of, wrong, updates.growth if is_judged else None)


@dataclass
class _Updates:
    """What shows that results are updates of their windows: the arguments of `updating`, and an example."""

    cells: int = 0
    of: int = 0
    updates: int = 0
    results: int = 0
    example: Expected | None = None

    def add(self, cell: tuple[int, str], found: Sequence[tuple[_Place, Result]], owed: int, *, is_open: bool) -> None:
        """Add the results of a window, in the order of each partition. ``owed``: the number of its events."""
        numbers: dict[_Place, list[int]] = defaultdict(list)
        for place, one in found:
            numbers[place].append(one.stated_count or 0)
        every = [number for of in numbers.values() for number in of]
        self.results += len(every)
        # SEMANTICS 4.29: results that are not too large together show nothing while their window is open.
        if len(every) < 2 or owed < 2 or (is_open and sum(every) <= owed):
            return
        self.of += 1
        # SEMANTICS 4.29: too large together, rising in each partition, and the last one right.
        rises = all(of == sorted(of) for of in numbers.values()) and min(every) < max(every)
        if rises and sum(every) > owed and (max(every) == owed or (is_open and max(every) < owed)):
            self.cells, self.updates = self.cells + 1, self.updates + len(every) - 1
            self.example = self.example or Expected("", *cell)

    @property
    def growth(self) -> Growth | None:
        """As `updating` returns it, with the example."""
        found = updating(self.cells, self.of, self.updates, self.results)
        return None if found is None else replace(found, example=self.example)


def _stated(config: Config, records: Iterable[Read]) -> dict[tuple[int, str], list[tuple[_Place, Result]]]:
    """The results of each cell with their partitions, or with emission `cumulative` the newest."""
    found: dict[tuple[int, str], list[tuple[_Place, Result]]] = defaultdict(list)
    for topic, partition, _, _, one in records:
        if isinstance(one, Result) and (one.window_start_us is not None or config.oracle.by_key):
            named = ABSENT if one.window_start_us is None else one.window_start_us
            start = int(config.oracle.starts_of_results(np.array([named], dtype=np.int64))[0])
            of_cell = found[start, one.key]
            if config.oracle.reads.replaces:
                of_cell.clear()
            of_cell.append(((topic, partition), one))
    return found


def _number(config: Config, events: Sequence[tuple[str, Event]]) -> int:
    """The number of events of a cell, or of their pairs, which its results state. ``events``: with their topics."""
    if (rule := config.oracle.pair_rule) is None:
        return sum(-1 if event.is_removed else 1 for _, event in events)
    lefts, rights = ([topic for topic, _ in events if rule.number_of(topic) == side] for side in NUMBERS.values())
    return int(rule.pairs(np.array(len(lefts)), np.array(len(rights))))


def _wrong_clause(config: Config, events: Sequence[tuple[str, Event]], results: Sequence[Result]) -> str | None:
    """Which wrong aggregate of a field the results of a cell state, as a clause (SEMANTICS 2.29); None: none."""
    tolerances, rule = dict(config.oracle.reads.tolerances), config.oracle.pair_rule
    for i, one in enumerate(config.oracle.stated.stated):
        mine, at = [event for _, event in events], one.place
        if rule is not None:
            side, at = config.oracle.stated.place_in_side(one.place)
            mine = [event for topic, event in events if rule.number_of(topic) == NUMBERS[side]]
        signed = [(-1 if event.is_removed else 1, it) for event in mine if (it := event.addends[at]) is not None]
        numbers, size = [it for _, it in signed], sum(sign for sign, _ in signed)
        total = sum((sign * it for sign, it in signed), Decimal(0)) if size > 0 else None
        hashes = frozenset(map(int, numbers)) if one.place in config.oracle.stated.hashed else frozenset[int]()
        least, most = min(numbers, default=None), max(numbers, default=None)
        of = Aggregate(len(mine), size, total, *((least, most) if size > 0 else (None, None)), hashes)
        answered = Answered([of], [], [], all_used=True)
        if rule is not None:
            others = len(events) - len(mine)
            answered = OfPairs([of], [], [], True, *rule.partners(others, others))
        tolerance = tolerances.get(one.name)
        if clause := wrong_value(one, answered, [it.values[i] for it in results], tolerance):
            return f"is wrong: {clause}"
    return None


def _counts(config: Config, found: Counted) -> Iterator[CheckResult]:
    if not found.of:
        return
    noun = "key" if config.oracle.by_key else config.oracle.cell_noun
    text = (
        f"the results of {found.right:,} of {plural(found.of, noun, plural_of(noun))} state the values of their events"
    )
    if found.right == found.of:
        yield ok("results", text)
        return
    if found.wrong is not None:
        start, key, clause = found.wrong
        shown = f"{HIDDEN if config.publish.keys != 'plain' else key}"
        since = "" if config.oracle.by_key else f" from {rfc3339(start)}"
        text += f"; that of key {shown}{since} {clause}"
    if found.growth is not None:
        yield note("results", text)
        yield problem("emission", growth_sentence(config, found.growth), "check outputs[].emission")
    elif found.of >= FEW and not found.right:
        yield problem("results", text, "check the fields of key and time, their units, and the oracle")
    else:
        yield note("results", text)


def _check(fit: Fit) -> str:
    parameter = fit.mismatch.parameter if fit.mismatch is not None else None
    return f"check {parameter or 'the parameters of the oracle, and the fields of key and time'}"


def _add_event(config: Config, sample: FitSample, topic: str, event: Event, starts: Sequence[int]) -> None:
    if not event.is_owed:
        return
    key = _key(config, event.key, event.id)
    space = f"{topic}/" if config.oracle.spaces(config.inputs) else ""
    sample.put(_name(space, event.id), (Expected(topic, start, key) for start in starts))


def _add_result(config: Config, sample: FitSample, at: Named, result: Result) -> None:
    entry = next(entry for entry in config.outputs if entry.topic == at.topic)
    spaces = [f"{path.input}/" if path.input is not None else "" for path in entry.fields.ids or ()] or [""]
    if entry.fields.id is not None and config.oracle.spaces(config.inputs):
        spaces = [f"{one.topic}/" for one in config.oracle.named_inputs(config.inputs)]
    start = ABSENT
    if result.window_start_us is not None:
        start = int(config.oracle.starts_of_results(np.array([result.window_start_us], dtype=np.int64))[0])
    size = sum(map(len, result.ids))
    for space, ids in zip(spaces, result.ids, strict=True):
        for id_ in ids:
            named = at._replace(start_us=start, key=_key(config, result.key, id_), size=size)
            sample.put(_name(space, id_), named=[named])


def _name(space: str, id_: int | str) -> tuple[int, str]:
    return _ranked(f"{space}{id_}" if space else id_)


_ranked: Final = lru_cache(maxsize=65_536)(rank_of)


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


def _results(events: Iterable[core_fit.Answered]) -> dict[str, int]:
    """The number of results with a misplaced id, and of the others with the id of an event."""
    found: dict[tuple[str, int, int], bool] = {}
    for one in events:
        cells = {(it.start_us, it.key) for it in one.expected}
        for it in one.named:
            place = it.topic, it.partition, it.offset
            found[place] = found.get(place, False) or (it.start_us, it.key) not in cells
    misplaced = sum(found.values())
    return {"misplaced_results": misplaced, "correct": len(found) - misplaced}
