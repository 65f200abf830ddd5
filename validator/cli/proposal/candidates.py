"""Configurations that the sample suggests, the likeliest first. `validator.cli.proposal.proof` decides between them."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, product
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from validator.cli.proposal.columns import Columns
from validator.cli.proposal.conditions import common_part, conditions_of_sides
from validator.cli.proposal.further import numbers_of, values_alone
from validator.cli.proposal.intervals import intervals_of
from validator.cli.proposal.matches import (
    FEW,
    KeyField,
    Link,
    Named,
    chosen_key,
    key_fields,
    key_fields_by_values,
    keys_of_lists,
    looks_like_id,
    named_alone,
    named_by_content,
    named_in_lists,
    named_of_one_input,
    with_ids_of_fields,
    words_of_text,
)
from validator.cli.proposal.proof import Linked, Place, place_of
from validator.cli.proposal.times import Time
from validator.model.envelopes import EVENTS
from validator.model.wording import plural
from validator.oracles.guesses import (
    DAY,
    USUAL,
    Claim,
    Guess,
    begins_with_an_event,
    copying,
    have_several_events,
    joined,
    of_claims,
    of_starts,
    of_starts_on_a_clock,
    on_wall_clock,
    running,
    size_after_last,
    size_named,
    sizes_before,
    spread,
    step_of,
)
from validator.settings.aggregates import Aggregate
from validator.settings.durations import format_duration
from validator.settings.formats.guesses import ENOUGH

Document = dict[str, Any]
_PAIRS_MOST: Final = 4
_COUNTS_MOST: Final = 4
_WINDOWS_MOST: Final = 6
"""Windows of each kind in which aggregates without a count are looked for: it takes long."""
_EVENTS_MOST: Final = 2_000
"""Events that results name whose links are compared."""
_WORDS_MOST: Final = 4
"""Ways to split a text that are tried."""
_VALUES_MOST: Final = 20
"""Values that a condition lists."""
_DISORDER_MOST: Final = DAY
_UNJOINED: Final = (
    "Events with a partner in their window are in no result: the pipeline may join some events only. Write their "
    "condition as oracle.where."
)
_CONDITIONS: Final = "The condition is what the results of the sample show: compare it with the pipeline."
_WHOLE: Final = re.compile("[0-9]{1,19}")
_COUNT_NAMES: Final = ("count", "cnt", "num", "total", "n", "events", "clicks")


@dataclass(frozen=True)
class Candidate:
    """A configuration, without what does not depend on the sample.

    ``label``: what distinguishes it from the others, for people. ``claim``: what its proof shows. ``comments``: field
    -> why it is there. ``linked``: input topic -> partitions and offsets of the events that results name; None: all
    count.
    """

    document: Document
    label: str
    claim: str
    comments: Mapping[str, str] = field(default_factory=dict)
    doubts: tuple[str, ...] = ()
    linked: Linked | None = None
    refuted: str | None = None
    """Why it would accuse the pipeline, as a sentence, although its proof holds."""
    has_unequal_key: bool = False
    """Whether some results have another key than their event."""

    @property
    def is_by_ids(self) -> bool:
        """Whether results list the ids of their events."""
        return all("ids" in output["fields"] for output in self.document["outputs"])


def aggregates() -> tuple[str, ...]:
    """The aggregates without a field that this version judges."""
    found = []
    for name in ("count",):
        try:
            found.append(TypeAdapter(Aggregate).validate_python(name))
        except ValidationError:
            continue
    return tuple(found)


def candidates(
    inputs: Sequence[Columns], outputs: Sequence[Columns], settings: Mapping[str, Any]
) -> Iterator[list[Candidate]]:
    """Yield groups of configurations: those with ids come before those with counts, which prove less. ``settings``: the
    parts of the file that do not depend on the samples."""
    # The outputs are shards of one output: what is found in the largest one holds for all.
    output = max(outputs, key=lambda one: len(one.records))
    inputs = [with_ids_of_fields(one, output) for one in inputs]
    topics = _Topics(inputs, outputs, output, settings)
    for named in named_in_lists(inputs, output):
        yield list(_of_ids(topics, named))
    for named in named_alone(inputs, output):
        yield list(_of_one_id(topics, named))
    if len(inputs) == 2:
        for left, named in named_of_one_input(inputs, output):
            yield list(_of_semi_join(topics, named, left))
    for named in named_by_content(inputs, output):
        yield list(_of_one_id(topics, named))
    yield from _of_counts(topics)


@dataclass(frozen=True)
class _Topics:
    inputs: Sequence[Columns]
    outputs: Sequence[Columns]
    output: Columns
    settings: Mapping[str, Any]

    def document(
        self,
        keys: Sequence[KeyField],
        times: Sequence[Time],
        ids: Sequence[str],
        fields: Mapping[str, Any],
        evidence: str,
        oracle: Mapping[str, Any],
    ) -> Document:
        """The parts of a configuration that depend on the topics."""
        found: Document = {"inputs": [], "outputs": [], "oracle": dict(oracle)}
        for number, one in enumerate(self.inputs):
            at: dict[str, Any] = {"id": _one_or_many(ids[number].split(","))} if ids else {}
            at |= {"key": _one_or_many([key.events[number] for key in keys]), "event_time": times[number].setting}
            found["inputs"].append({"topic": one.topic, **_formats(one, at), **envelope_of(one), "fields": at})
        for one in self.outputs:
            at = {"key": _one_or_many([key.result for key in keys]), **fields}
            stated = {} if evidence == "ids" else {"evidence": evidence}
            if one.changes is not None:
                stated |= {"envelope": one.changes.kind, "emission": "cumulative"}
            found["outputs"].append({"topic": one.topic, **_formats(one, at), **stated, "fields": at})
        return found


def _one_or_many(paths: Sequence[str]) -> Any:
    return paths[0] if len(paths) == 1 else list(paths)


def _formats(one: Columns, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The formats of a topic, as far as they are not the default and its fields need them."""
    found = {} if one.format in ("json", None) else {"format": one.format}
    if one.key_format not in ("text", None) and "$key" in str(fields):
        found["key_format"] = one.key_format
    return found


def envelope_of(one: Columns) -> dict[str, Any]:
    """The envelope of an input, and the operations that are events."""
    if one.changes is None:
        return {}
    events = one.changes.events
    return {"envelope": one.changes.kind, **({} if events == EVENTS else {"operations": list(events)})}


def _of_ids(topics: _Topics, named: Named) -> Iterator[Candidate]:
    """Results with lists of ids."""
    inputs, output = topics.inputs, topics.output
    some = _some(named)
    keys = chosen_key([key for key, _ in keys_of_lists(inputs, output, some)], inputs)
    linked: Linked | None = _linked(topics, some)
    if not keys:
        narrowed = next(_narrowed(topics, named), None)
        if narrowed is None:
            return
        # All events of an id decide where it is expected.
        (some, key), linked = narrowed, None
        keys = (key,)
    ids = [{"path": path, "input": inputs[owner].topic} for path, owner in zip(named.paths, named.owners, strict=False)]
    fields: dict[str, Any] = {"ids": ids or _one_or_many(named.paths)}
    comments = {"ids": _id_comment(some), "key": _key_comment(keys)}
    claim = "{right} of {of} events that the newest results name are in results for their windows and keys"
    if named.owners and linked is not None:
        yield from _of_intervals(topics, named, keys, fields, comments)
    has_windows = False
    for times in _sized_windows(topics, some):
        at, start, end = times.at, times.start, times.end
        claims = _claims(at, start, end, some)
        guesses = list(of_claims(claims)) if claims else []
        if not guesses and not start.has_zone:
            guesses = list(on_wall_clock(claims))
        for windows in guesses:
            guess = _join(topics, named, windows) if named.owners else windows
            document = topics.document(keys, at, named.ids, {**fields, **times.fields(guess)}, "ids", guess.oracle)
            refuted, where, size = None, None, windows.adjacent_us
            if guess.oracle.get("join") == "inner" and "time_zone" not in guess.oracle and size is not None:
                where = conditions_of_sides(inputs, named, keys, at, start, size)
                refuted = _UNJOINED if where is None else None
            if where:
                document["oracle"]["where"] = where
            if linked is None:
                _settle_shared(topics, some, document)
            else:
                _settle_repeats(topics, some, guess, document)
            _settle_disorder(topics, at, linked, document)
            has_windows = True
            rest = [] if named.owners else _not_named(topics, named)
            doubts = (*guess.doubts, *_doubts(topics, keys, at, start), *_settle_rest(topics, keys, rest, document))
            doubts += (_CONDITIONS,) if where else ()
            yield Candidate(document, guess.label, claim, comments, doubts, linked, refuted)
    if not has_windows:
        yield from _running(topics, named, keys, fields, "ids", comments, linked)


def _of_intervals(
    topics: _Topics, named: Named, keys: Sequence[KeyField], fields: Mapping[str, Any], comments: Mapping[str, str]
) -> Iterator[Candidate]:
    """Results that name one pair of events, and the time of its left event."""
    linked = _linked(topics, _some(named))
    claim = "{right} of {of} events that the newest results name are in results for their pairs and keys"
    for at in _event_times(topics):
        for found in intervals_of(topics.inputs, topics.output, named, keys, at):
            stated = {**fields, "event_time": found.time.setting}
            document = topics.document(keys, at, named.ids, stated, "ids", found.guess.oracle)
            _settle_disorder(topics, at, linked, document)
            doubts = (*found.guess.doubts, *_doubts(topics, keys, at, found.time))
            yield Candidate(document, found.guess.label, claim, comments, doubts, linked, found.refuted)


def _narrowed(topics: _Topics, named: Named) -> Iterator[tuple[Named, KeyField]]:
    """Yield the links of results with events of their key and window, if events share their ids: those of users, for
    example. The windows are as long as the distance of their starts."""
    inputs, output = topics.inputs, topics.output
    times = [time.path for time in output.times]
    ids = [inputs[source].texts[path] for source, path in enumerate(named.ids)]
    every = {(link.result, ids[link.source][link.event]) for link in named.links}
    for key in key_fields_by_values(inputs, output, (*named.paths, *times)):
        columns = [inputs[source].texts[path] for source, path in enumerate(key.events)]
        of_result = output.texts[key.result]
        same = [it for it in named.links if columns[it.source][it.event] == of_result[it.result]]
        for at, start in product(_event_times(topics), output.times):
            step = step_of([it for it in start.instants if it is not None])
            kept = [link for link in same if _is_within(at[link.source].instants[link.event], start, link, step)]
            found = {(link.result, ids[link.source][link.event]) for link in kept}
            if len(found) >= ENOUGH * len(every):
                yield replace(named, links=tuple(kept)), key


def _is_within(at: int | None, start: Time, link: Link, step: int) -> bool:
    begins = start.instants[link.result]
    return at is not None and begins is not None and 0 <= at - begins < step


def _running(
    topics: _Topics,
    named: Named,
    keys: Sequence[KeyField],
    fields: Mapping[str, Any],
    evidence: str,
    comments: Mapping[str, str],
    linked: Linked | None,
) -> Iterator[Candidate]:
    """A running aggregate: results without a time."""
    at = tuple(one.times[0] for one in topics.inputs if one.times)
    if len(at) == len(topics.inputs) and not named.owners:
        guess = running()
        document = topics.document(keys, at, named.ids, fields, evidence, guess.oracle)
        _settle_disorder(topics, at, linked, document)
        claim = "{right} of {of} events that the newest results name are in results of their keys"
        doubts = (*guess.doubts, *_doubts(topics, keys, at, None))
        yield Candidate(document, guess.label, claim, comments, doubts, linked)


def _of_one_id(topics: _Topics, named: Named) -> Iterator[Candidate]:
    """Results that carry the id of one event."""
    inputs, output = topics.inputs, topics.output
    some = _some(named)
    links = some.links
    fields = [key for key, _ in key_fields(inputs, output, links, named.ids, named.paths)]
    rest = _not_named(topics, named)
    where = _condition(topics, named, rest)
    if where is None and len(rest) > len({(link.source, link.event) for link in named.links}):
        # A minimum or a last value is that of an event, too.
        return
    unlike = _nearly_equal(topics, named)
    in_time = list(_equal_times(topics, named))
    names = [text for text in output.texts[named.paths[0]] if text is not None]
    if not in_time and (len(set(names)) < ENOUGH * len(names) or not any(key.values > 1 for key in fields)):
        # A minimum so far is that of an event, too, and stays the same.
        return
    content = tuple(KeyField(path, (path,) * len(inputs), len(links)) for path in named.content)
    key = _key_of_copies(topics, fields, named)
    # An engine that damages the key must not be judged by another one, with which all is right.
    unequal = None if content or key is not None else max(unlike, key=lambda it: unlike[it], default=None)
    keys = content or (key or unequal or KeyField(named.paths[0], named.ids, len(named.links)),)
    linked = _linked(topics, some)
    comments = {"id": _id_comment(named), "key": _key_comment(keys)}
    claim = "{right} of {of} events that the newest results name are in results for their times and keys"
    for at, time in in_time:
        is_copy = all(
            inputs[link.source].records[link.event].value == output.records[link.result].value for link in links[:100]
        )
        doubts = list(_doubts(topics, keys, at, time))
        doubts += [_of_unequal(one, 1 - share, is_key=one == unequal) for one, share in unlike.items()]
        if named.content:
            said = " and ".join(named.content)
            doubts.append(f"No field identifies an event, so {said} do together: equal events are only counted.")
        elif named.paths[0] in {one.path for one in output.times}:
            doubts.append(f"The id {named.paths[0]} is a time: events of the same time are only counted.")
        guess = copying(where, is_changed=not is_copy)
        if where is not None:
            doubts.append(
                f"The condition on {where['path']} is what distinguishes the {plural(len(rest), 'event')} without a "
                "result: compare it with the pipeline. A bound is a value of the sample."
            )
        else:
            doubts.extend(_lost(rest))
        stated = {"event_time": time.setting, "id": named.paths[0]}
        document = topics.document(keys, at, named.ids, stated, "id", guess.oracle)
        _settle_repeats(topics, named, guess, document)
        _settle_disorder(topics, at, linked, document)
        is_unequal = unequal is not None
        yield Candidate(document, guess.label, claim, comments, tuple(doubts), linked, has_unequal_key=is_unequal)
    if not in_time:
        yield from _running(topics, named, keys, {"id": named.paths[0]}, "id", comments, linked)


def _of_semi_join(topics: _Topics, named: Named, left: int) -> Iterator[Candidate]:
    """Results that name one event of the input ``left``, in windows in which this event has a partner."""
    one, other = topics.inputs[left], topics.inputs[1 - left]
    claim = "{right} of {of} events that the newest results name are in results for their windows and keys"
    doubt = (
        f"Results name events of {one.topic} only. That these need an event of {other.topic} in the same window is a "
        "guess."
    )
    for times in _sized_windows(topics, named):
        at, start = times.at, times.start
        claims = _claims(at, start, None, named)
        for windows in of_claims(claims) if claims else ():
            if windows.adjacent_us is None:
                continue
            key = _key_of_partners(topics, named, left, start, at[1 - left], windows.adjacent_us)
            if key is None:
                continue
            guess = joined(windows, one.topic, other.topic, join="semi")
            stated = {"id": named.paths[0], **times.fields(guess)}
            document = topics.document([key], at, named.ids, stated, "id", guess.oracle)
            _settle_disorder(topics, at, None, document)
            comments = {"id": _id_comment(named), "key": _key_comment([key])}
            doubts = (*guess.doubts, *_doubts(topics, [key], at, start), doubt)
            yield Candidate(document, guess.label, claim, comments, doubts, _linked(topics, named))


def _key_of_partners(topics: _Topics, named: Named, left: int, start: Time, at: Time, size: int) -> KeyField | None:
    """The field of results and of events of ``left`` that a field of the other input equals in the window of each
    result. ``at``: the time of the other input."""
    output, other = topics.output, topics.inputs[1 - left]
    times = [time.path for time in output.times]
    links = [link._replace(source=0) for link in named.links]
    instants = {link.result: start.instants[link.result] for link in links}
    first = next(instant for instant in instants.values() if instant is not None)
    best: tuple[float, KeyField] | None = None
    for path, texts in other.texts.items():
        cells = {
            (instant - (instant - first) % size, text)
            for instant, text in zip(at.instants, texts, strict=True)
            if instant is not None
        }
        for key, _ in key_fields([topics.inputs[left]], output, links, [""], times):
            share = sum((instant, output.texts[key.result][row]) in cells for row, instant in instants.items())
            if share >= ENOUGH * len(instants) and (best is None or share > best[0]):
                paths = (key.events[0], path) if left == 0 else (path, key.events[0])
                best = share, KeyField(key.result, paths, key.values)
    return None if best is None else best[1]


def _of_counts(topics: _Topics) -> Iterator[list[Candidate]]:
    """Results that state how many events they used."""
    inputs, output = topics.inputs, topics.output
    times = {time.path for time in output.times}
    events = sum(len(one.records) for one in inputs)
    found_counts = [path for path in output.texts if _may_be_count(output, path, times)]
    counts = sorted(found_counts, key=lambda path: (_is_above(output, path, events), *_count_rank(path)))
    for count in counts[:_COUNTS_MOST]:
        found = key_fields_by_values(inputs, output, (*times, count))
        whole = chosen_key(found, inputs)
        choices = [whole, *((key,) for key in whole if len(whole) > 1)] if whole else []
        # Beside an extreme value, which is that of an event, the key may be the same in all results.
        choices += [(key,) for key in found if key.values == 1 and key not in whole][:1]
        group: list[Candidate] = []
        for keys in choices:
            for windows in _sized_windows(topics, None):
                group += _counting(topics, keys, windows, count)
        if not group:
            group = [one for keys in choices for one in _counting_so_far(topics, keys, count)]
        if group:
            yield group
    for count in counts[:_COUNTS_MOST]:
        yield list(_counting_words(topics, count))
    if numbers_of(output):
        yield list(_of_values(topics))


def _of_values(topics: _Topics) -> Iterator[Candidate]:
    """Results that state an aggregate of a field, and no count."""
    inputs, output = topics.inputs, topics.output
    found = key_fields_by_values(inputs, output, [time.path for time in output.times])
    whole = chosen_key(found, inputs)
    # Beside an extreme value, which is that of an event.
    choices = [whole, *((key,) for key in whole if len(whole) > 1)] if whole else []
    for windows in islice(_sized_windows(topics, None), _WINDOWS_MOST):
        found_in = [one for keys in choices[:_PAIRS_MOST] for one in _aggregating(topics, keys, windows)]
        if found_in:
            yield from found_in
            return
    at = next(iter(_event_times(topics)), None)
    if at is not None:
        for keys in choices:
            yield from _of_guess(topics, keys, at, running(), {}, None)


def _aggregating(topics: _Topics, keys: Sequence[KeyField], windows: _Windows) -> Iterator[Candidate]:
    for guess in islice(_guesses(windows), _WINDOWS_MOST):
        yield from _of_guess(topics, keys, windows.at, guess, windows.fields(guess), windows.start)


def _of_guess(
    topics: _Topics, keys: Sequence[KeyField], at: tuple[Time, ...], guess: Guess, named: Document, start: Time | None
) -> Iterator[Candidate]:
    """The first aggregate that results may state of these windows. ``named``: how they name them."""
    output = topics.output
    key_paths = {key.result for key in keys}
    path = next((path for path in numbers_of(output) if path not in key_paths), None)
    any_number = next(iter(numbers_of(topics.inputs[0])), None)
    if path is None or any_number is None:
        return

    instants = [] if start is None else start.instants
    cells = [(instant, *(output.texts[key.result][row] for key in keys)) for row, instant in enumerate(instants)]
    is_updated = start is None or output.changes is not None or len(set(cells)) < len(cells)
    emission = "cumulative" if is_updated else "final"

    def of(name: str, stated: Any, aggregate: str) -> Document:
        oracle = {**guess.oracle, "values": {name: aggregate}}
        found = topics.document(keys, at, (), {**named, "values": {name: stated}}, "values", oracle)
        if is_updated:
            found["outputs"] = [_with_emission(one, emission) for one in found["outputs"]]
        return found

    said = " and ".join(key.events[0] for key in keys)
    try:
        whole = {**topics.settings, **of("value", path, f"sum({any_number})")}
        found = next(values_alone(topics.inputs, output, whole), None)
    except ValidationError:
        return
    if found is None:
        return
    name, path, aggregate, tolerance = found
    for stated in (path, {"path": path, "tolerance": tolerance}):
        document = of(name if name.isidentifier() else "value", stated, aggregate)
        _settle_disorder(topics, at, None, document)
        claim = f"{_SUMMED[emission]}{path} is {aggregate} of the events per {said}"
        claim += "" if start is None else f" and {guess.said}"
        yield Candidate(
            document,
            f"{guess.label}, emission {emission}, key {said}, {aggregate}",
            f"{claim}, in {{right}} of {{of}} {'keys' if start is None else 'windows'}",
            {"evidence": "a result states an aggregate of its events", "key": _key_comment(keys)},
            (*guess.doubts, *_doubts(topics, keys, at, start)),
        )


def _guesses(windows: _Windows) -> Iterator[Guess]:
    """The windows that results without ids may be of."""
    start, end = windows.start, windows.end
    starts = [instant for instant in start.instants if instant is not None]
    ends = [None if end is None else end.instants[row] for row, it in enumerate(start.instants) if it is not None]
    events = [instant for time in windows.at for instant in time.instants if instant is not None]
    if not starts or not events:
        return iter(())
    if start.has_zone:
        return of_starts(starts, ends)
    return of_starts_on_a_clock(starts, ends, min(events), max(events))


def _counting(topics: _Topics, keys: Sequence[KeyField], windows: _Windows, count: str) -> Iterator[Candidate]:
    output, at, start = topics.output, windows.at, windows.start
    cells = Counter(
        (it, *(output.texts[key.result][row] for key in keys))
        for row, it in enumerate(start.instants)
        if it is not None
    )
    emissions = ("cumulative", "incremental") if any(n > 1 for n in cells.values()) else ("final",)
    if output.changes is not None:
        emissions = ("cumulative",)
    said = " and ".join(key.events[0] for key in keys)
    for guess in _guesses(windows):
        for emission, aggregate in product(emissions, aggregates()):
            name = _value_name(count)
            oracle = {**guess.oracle, "values": {name: aggregate}}
            stated = {**windows.fields(guess), "values": {name: count}}
            document = topics.document(keys, at, (), stated, "values", oracle)
            if emission != "final":
                document["outputs"] = [_with_emission(one, emission) for one in document["outputs"]]
            _settle_disorder(topics, at, None, document)
            claim = f"{_SUMMED[emission]}{count} equals the number of events per {said} and {guess.said}"
            yield Candidate(
                document,
                f"{guess.label}, emission {emission}, key {said}",
                f"{claim} in {{right}} of {{of}} windows",
                {"evidence": "a result states how many events it used", "key": _key_comment(keys)},
                (*guess.doubts, *_doubts(topics, keys, at, start)),
            )


def _counting_so_far(topics: _Topics, keys: Sequence[KeyField], count: str) -> Iterator[Candidate]:
    """Results without a time that state how many events of their key there are so far, or how many rows a table has."""
    guess, said, name = running(), " and ".join(key.events[0] for key in keys), _value_name(count)
    may_be_table = all(one.changes is not None for one in topics.inputs)
    at = next(iter(_event_times(topics)), None)
    if at is None:
        return
    # A table without an update or a deletion yet counts like insertions. A file for insertions would then fail later.
    for is_table, aggregate in product((True, False) if may_be_table else (False,), aggregates()):
        of = _beside_null_values(topics.output, keys, may_come=is_table)
        oracle = {**guess.oracle, "values": {name: aggregate}}
        document = topics.document(of, at, (), {"values": {name: count}}, "values", oracle)
        document["outputs"] = [_with_emission(one, "cumulative") for one in document["outputs"]]
        _settle_disorder(topics, at, None, document)
        if is_table:
            document["inputs"] = [_as_table(entry) for entry in document["inputs"]]
        yield Candidate(
            document,
            f"{'rows of a table' if is_table else guess.label}, key {said}",
            f"the newest {count} equals the number of {'rows' if is_table else 'events'} per {said} in {{right}} of "
            "{of} keys",
            {"evidence": "a result states how many events it used", "key": _key_comment(of)},
            (*guess.doubts, *_doubts(topics, of, at, None)),
        )


def _beside_null_values(output: Columns, keys: Sequence[KeyField], *, may_come: bool) -> Sequence[KeyField]:
    """The same key, in the records' keys if a null value withdraws a result, or may: it has no other field."""
    if not may_come and all(record.value is not None for record in output.sample.records):
        return keys
    of_keys = [path for path in output.texts if path.startswith("$key")]
    same = (next((it for it in of_keys if output.texts[it] == output.texts[key.result]), key.result) for key in keys)
    return [replace(key, result=path) for key, path in zip(keys, same, strict=True)]


def _as_table(entry: Document) -> Document:
    """An input whose changes also remove the rows before them."""
    return _before_fields({name: it for name, it in entry.items() if name != "operations"}, "table", True)


def _counting_words(topics: _Topics, count: str) -> Iterator[Candidate]:
    """Results that state how often each word of a text occurred so far."""
    for key, words in words_of_text(topics.inputs, topics.output, count)[:_WORDS_MOST]:
        explode = words.model_dump()
        case = ", in lower case" if words.case == "lower" else ""
        said = f"the words of {key.events[0]}, split at {words.at}{case}"
        for one in _counting_so_far(topics, (key,), count):
            inputs = [_before_fields(entry, "explode", explode) for entry in one.document["inputs"]]
            yield replace(
                one,
                document={**one.document, "inputs": inputs},
                label=said,
                claim=f"the newest {count} equals the number of {said}, in {{right}} of {{of}} keys",
                comments={**one.comments, "key": f"{key.result} of a result is a word of {key.events[0]}"},
            )


_SUMMED: Final = {"cumulative": "the newest ", "incremental": "the sum of ", "final": ""}


def _with_emission(output: Document, emission: str) -> Document:
    return _before_fields(output, "emission", emission)


def _before_fields(entry: Document, name: str, value: Any) -> Document:
    return {key: it for key, it in entry.items() if key != "fields"} | {name: value, "fields": entry["fields"]}


def with_emission(candidate: Candidate, emission: str) -> Candidate:
    """The same configuration with another emission."""
    outputs = [_with_emission(one, emission) for one in candidate.document["outputs"]]
    label = f"{candidate.label}, emission {emission}"
    return replace(candidate, document={**candidate.document, "outputs": outputs}, label=label)


def _some(named: Named) -> Named:
    """The links of some of the events, evenly spread: a result may name very many."""
    events = sorted({(link.source, link.event) for link in named.links})
    if len(events) <= _EVENTS_MOST:
        return named
    chosen = set(events[:: -(-len(events) // _EVENTS_MOST)])
    return replace(named, links=tuple(link for link in named.links if (link.source, link.event) in chosen))


def _linked(topics: _Topics, named: Named) -> Linked:
    rows: dict[str, set[Place]] = {one.topic: set() for one in topics.inputs}
    for link in named.links:
        one = topics.inputs[link.source]
        rows[one.topic].add(place_of(one.records[link.event]))
    return {topic: frozenset(of) for topic, of in rows.items()}


def _claims(at: tuple[Time, ...], start: Time, end: Time | None, named: Named) -> list[Claim]:
    found = []
    for link in named.links:
        instant, begins = at[link.source].instants[link.event], start.instants[link.result]
        if instant is not None and begins is not None:
            ends = None if end is None else end.instants[link.result]
            found.append(Claim((link.source, link.event), instant, begins, ends, link.result))
    return found


@dataclass(frozen=True)
class _Windows:
    """The times of the events, and the starts and ends of windows. ``names_end``: results name only the end."""

    at: tuple[Time, ...]
    start: Time
    end: Time | None
    names_end: bool = False

    def fields(self, guess: Guess) -> dict[str, Any]:
        """The fields of results that name their windows."""
        found = {} if self.names_end else {"window_start": self.start.setting}
        # The start of windows of one size follows from their end.
        if self.end is not None and (guess.uses_end or self.names_end):
            found["window_end"] = self.end.setting
        return found

    def of_size(self, size: int) -> _Windows:
        """Windows of this size that end at the times that are named as starts."""
        starts = [None if it is None else it - size for it in self.start.instants]
        return _Windows(self.at, replace(self.start, instants=starts), self.start, names_end=True)


def _sized_windows(topics: _Topics, named: Named | None) -> Iterator[_Windows]:
    """Yield the times that may belong together. If results name no start, those of several sizes."""
    for windows in _window_times(topics, named):
        if not windows.names_end:
            yield windows
            continue
        claims = [] if named is None else _claims(windows.at, windows.start, None, named)
        ends = [instant for instant in windows.start.instants if instant is not None]
        yield from map(windows.of_size, sizes_before(claims, ends))


def _window_times(topics: _Topics, named: Named | None) -> Iterator[_Windows]:
    """Yield the times of the events, and the starts and ends of windows, that may belong together."""
    found: list[tuple[Any, _Windows]] = []
    for at in _event_times(topics):
        for start in topics.output.times:
            if named is not None and start.path in (*named.paths, "$timestamp"):
                continue
            if named is None and start.path == "$timestamp":
                continue
            claims = [] if named is None else _claims(at, start, None, named)
            if named is not None and not claims:
                continue
            least, most = spread(claims) if claims else (0, 0)
            is_start = "start" in start.path.lower() or start.path.lower().endswith(("ws", "window"))
            is_end = "end" in start.path.lower()
            rank = (at[0].path == "$timestamp", least < 0, is_end, not is_start, most, at[0].form != start.form)
            end = _end_of(topics.output, start) or _end_of_session(topics, at, start, named)
            found.append((rank, _Windows(at, start, end)))
            is_only_time = len({time.path for time in topics.output.times} - {"$timestamp"}) == 1
            if most < 0 or (named is None and end is None and (is_end or is_only_time)):
                # A clock ahead of UTC also writes starts that are later than their events.
                found.append(((rank[0], least < 0, not is_end, *rank[3:]), _Windows(at, start, None, names_end=True)))
    yield from (windows for _, windows in sorted(found, key=lambda it: it[0])[:_PAIRS_MOST])


def _event_times(topics: _Topics) -> Iterator[tuple[Time, ...]]:
    first, *others = topics.inputs
    for time in first.times:
        matching = [next((it for it in one.times if it.path == time.path), None) for one in others]
        own = [it or (one.times[0] if one.times else None) for it, one in zip(matching, others, strict=True)]
        if all(it is not None for it in own):
            yield (time, *(it for it in own if it is not None))


def _end_of(output: Columns, start: Time) -> Time | None:
    """The field that lies a constant time after the start of a window, or that is named as its end."""
    for time in output.times:
        if time.path in (start.path, "$timestamp"):
            continue
        pairs = [(a, b) for a, b in zip(start.instants, time.instants, strict=True) if a is not None]
        spans = [None if end is None else end - begin for begin, end in pairs]
        is_named = "end" in time.path.lower() and all(span is not None and span >= 0 for span in spans)
        if size_named(spans) is not None or is_named:
            return time
    return None


def _end_of_session(topics: _Topics, at: tuple[Time, ...], start: Time, named: Named | None) -> Time | None:
    """The field that lies a constant time after the last event of each result, if each begins with its first event."""
    if named is None:
        return None
    for time in topics.output.times:
        if time.path not in (start.path, "$timestamp"):
            claims = _claims(at, start, time, named)
            if have_several_events(claims) and begins_with_an_event(claims) and size_after_last(claims) is not None:
                return time
    return None


def _join(topics: _Topics, named: Named, windows: Guess) -> Guess:
    """The join in these windows. Its left side has the more events."""
    sizes = {one.topic: len(one.records) for one in topics.inputs}
    left, right = sorted(sizes, key=lambda topic: -sizes[topic])
    list_of = {topics.inputs[owner].topic: path for path, owner in zip(named.paths, named.owners, strict=True)}
    alone = {
        topic: any(not of for of in topics.output.lists[list_of[other]] if of is not None)
        for topic, other in ((left, right), (right, left))
    }
    if alone[right] and not alone[left]:
        left, right = right, left
    return joined(windows, left, right, join="left" if alone[left] else "inner")


def _settle_repeats(topics: _Topics, named: Named, guess: Guess, document: Document) -> None:
    """Write `collapse` if events that were sent twice are named once."""
    if not guess.may_collapse:
        return
    times_named: dict[tuple[int, str], Counter[int]] = defaultdict(Counter)
    copies: dict[tuple[int, str], set[int]] = defaultdict(set)
    for link in named.links:
        text = topics.inputs[link.source].texts[named.ids[link.source]][link.event]
        assert text is not None, "a link is an id"
        copies[link.source, text].add(link.event)
        times_named[link.source, text][link.result] = 1
    repeated = [id_ for id_, rows in copies.items() if len(rows) > 1]
    once = sum(len(times_named[id_]) < len(copies[id_]) for id_ in repeated)
    if len(repeated) >= FEW and once >= ENOUGH * len(repeated):
        for one in document["inputs"]:
            one["duplicates"] = "collapse"


def _settle_shared(topics: _Topics, named: Named, document: Document) -> None:
    """Write `collapse` if a window names the id of several of its events once."""
    texts = [topics.inputs[source].texts[path] for source, path in enumerate(named.ids)]
    sent = Counter((link.result, texts[link.source][link.event]) for link in named.links)
    items = {row: Counter(topics.output.lists[named.paths[0]][row] or ()) for row, _ in sent}
    repeated = [(row, text, times) for (row, text), times in sent.items() if times > 1]
    once = sum(items[row][text or ""] < times for row, text, times in repeated)
    if len(repeated) >= FEW and once >= ENOUGH * len(repeated):
        for one in document["inputs"]:
            one["duplicates"] = "collapse"


def _settle_disorder(topics: _Topics, at: tuple[Time, ...], linked: Linked | None, document: Document) -> None:
    """Write the disorder of the sampled events that have a result, rounded up."""
    longest = 0
    for one, time in zip(topics.inputs, at, strict=True):
        newest: dict[int, int] = {}
        for record, instant in zip(one.records, time.instants, strict=True):
            if instant is not None and (linked is None or place_of(record) in linked[one.topic]):
                newest[record.partition] = max(instant, newest.get(record.partition, instant))
                longest = max(longest, newest[record.partition] - instant)
    if 0 < longest <= _DISORDER_MOST:
        rounded = next((size for size in USUAL if size >= longest), _DISORDER_MOST)
        document["timing"] = {"max_disorder": format_duration(rounded)}


def _equal_times(topics: _Topics, named: Named) -> Iterator[tuple[tuple[Time, ...], Time]]:
    """Yield the times of events that results repeat."""
    found = []
    for at in _event_times(topics):
        for time in topics.output.times:
            pairs = [(at[it.source].instants[it.event], time.instants[it.result]) for it in named.links]
            equal = sum(a is not None and b is not None and a - a % 1_000_000 <= b <= a for a, b in pairs)
            if pairs and equal >= ENOUGH * len(pairs):
                alike = at[0].path == time.path
                found.append(((at[0].path == "$timestamp", not alike, len(at[0].path)), at, time))
    yield from ((at, time) for _, at, time in sorted(found, key=lambda it: it[0])[:2])


def _key_of_copies(topics: _Topics, fields: Sequence[KeyField], named: Named) -> KeyField | None:
    """The key of a pipeline that copies events: the Kafka key, or another field that they have in common."""
    inputs, output = topics.inputs, topics.output
    times = {time.path for one in (*inputs, output) for time in one.times}
    usable = [key for key in fields if key.result not in times and key.values > 1 and not _is_measure(topics, key)]
    # Not one that only some kinds of events have.
    usable = [key for key in usable if all(map(_is_as_frequent, inputs, key.events, named.ids))]
    as_kafka = [key for key in usable if all(map(_is_kafka_key, inputs, key.events))]
    named_as_id = [key for key in usable if looks_like_id(key.result) or looks_like_id(key.events[0])]
    texts = [key for key in usable if all(type(it) is str or it is None for it in output.scalars[key.result])]
    chosen = next((chosen_key(of, inputs) for of in (as_kafka, named_as_id, texts, usable) if of), ())
    return max(chosen, key=lambda key: key.values, default=None)


def _is_as_frequent(one: Columns, path: str, other: str) -> bool:
    return one.share(path) >= one.share(other)


def _nearly_equal(topics: _Topics, named: Named) -> dict[KeyField, float]:
    """Fields of the same name that differ in some results -> the share in which they are equal."""
    times = {time.path for time in topics.output.times}
    found = key_fields(topics.inputs, topics.output, named.links, named.ids, (*named.paths, *times), least=0.5)
    named_alike = {key: share for key, share in found if share < ENOUGH and set(key.events) == {key.result}}
    return {key: share for key, share in named_alike.items() if key.values > 1 and not _is_measure(topics, key)}


def _of_unequal(key: KeyField, share: float, *, is_key: bool) -> str:
    differs = f"{key.result} of a result differs from that of its event in {share:.0%}"
    if is_key:
        return f"{differs}. The file takes it for the key: if the pipeline changes it, name another field."
    return f"{differs}, so it is not the key."


def _is_kafka_key(one: Columns, path: str) -> bool:
    return path.startswith("$key") or one.texts[path] == one.texts.get("$key")


def _is_measure(topics: _Topics, key: KeyField) -> bool:
    """Whether the field has numbers with a fraction."""
    column = topics.output.texts[key.result]
    return any(text is not None and "." in text and text.replace(".", "").isdigit() for text in column)


def _not_named(topics: _Topics, named: Named) -> list[tuple[int, int]]:
    """Events between the first and the last named event of their partition that no result names."""
    seen = {(link.source, link.event) for link in named.links}
    found = []
    for source, one in enumerate(topics.inputs):
        rows: dict[int, list[int]] = defaultdict(list)
        for row, record in enumerate(one.records):
            rows[record.partition].append(row)
        for of in rows.values():
            places = [place for place, row in enumerate(of) if (source, row) in seen]
            inside = of[places[0] : places[-1] + 1] if places else []
            found += [(source, row) for row in inside if (source, row) not in seen]
    return found


def _condition(topics: _Topics, named: Named, rest: Sequence[tuple[int, int]]) -> dict[str, Any] | None:
    """A field whose values distinguish the events with a result from the ``rest``."""
    if len(rest) < FEW or len(topics.inputs) > 1:
        return None
    [one] = topics.inputs
    passed = {link.event for link in named.links}
    others = {row for _, row in rest}
    for path, column in one.texts.items():
        if path in named.ids:
            continue
        these, those = {column[row] for row in passed}, {column[row] for row in others}
        if None in these or None in those or these & those:
            continue
        if len(these) <= _VALUES_MOST and len(these) * 2 <= len(passed):
            return {"path": path, "one_of": sorted(text for text in these if text is not None)}
        if (bounds := _bounds(one, path, passed, others)) is not None:
            return {"path": path, **bounds}
        if (part := common_part([text or "" for text in these], [text or "" for text in those])) is not None:
            return {"path": path, "matches": re.escape(part)}
    return None


def _bounds(one: Columns, path: str, passed: set[int], others: set[int]) -> dict[str, Any] | None:
    numbers = one.scalars[path]
    try:
        these, those = [float(str(numbers[row])) for row in passed], [float(str(numbers[row])) for row in others]
    except ValueError:
        return None
    if min(these) > max(those):
        return {"at_least": _shortest(min(these))}
    return {"below": _shortest(min(those))} if max(these) < min(those) else None


def _shortest(number: float) -> float:
    return int(number) if number == int(number) else number


def _settle_rest(
    topics: _Topics, keys: Sequence[KeyField], rest: Sequence[tuple[int, int]], document: Document
) -> Iterator[str]:
    """Write `missing_key: skip` if events without a key have no result. Yields doubts about events without a result."""
    keyless = {
        (source, row)
        for source, row in rest
        if any(topics.inputs[source].texts[key.events[source]][row] is None for key in keys)
    }
    for source in sorted({source for source, _ in keyless}):
        document["inputs"][source]["missing_key"] = "skip"
    if keyless:
        verb = "has no key and is" if len(keyless) == 1 else "have no key and are"
        yield (
            f"{plural(len(keyless), 'event')} of the sample {verb} in no result: the file says that the pipeline skips "
            "such events. If it must not, remove missing_key."
        )
    yield from _lost([one for one in rest if one not in keyless])


def _lost(rest: Sequence[tuple[int, int]]) -> Iterator[str]:
    if rest:
        yield (
            f"{plural(len(rest), 'event')} of the sample {'is' if len(rest) == 1 else 'are'} in no result, although "
            "events before and after are. No field distinguishes them: they may be late, rejected or lost, or skipped "
            "by design."
        )


def _may_be_count(output: Columns, path: str, times: set[str]) -> bool:
    column = [value for value in output.scalars[path] if value is not None]
    is_whole = all(type(value) is int or (isinstance(value, str) and _WHOLE.fullmatch(value)) for value in column)
    return path not in times and not path.startswith("$header.") and is_whole and output.share(path) >= ENOUGH


def _is_above(output: Columns, path: str, events: int) -> bool:
    """Whether most numbers of a field are larger than the number of sampled ``events``: a sum, for example."""
    numbers = [int(str(value)) for value in output.scalars[path] if value is not None]
    return 2 * sum(number > events for number in numbers) > len(numbers)


def _count_rank(path: str) -> tuple[bool, str]:
    name = path.rpartition(".")[2].lower()
    return not any(name == one or one in name for one in _COUNT_NAMES[:4]) and name not in _COUNT_NAMES, path


def _value_name(path: str) -> str:
    name = path.rpartition(".")[2]
    return name if name.isidentifier() else "count"


def _id_comment(named: Named) -> str:
    results = len({link.result for link in named.links})
    return f"{plural(len(named.links), 'id')} of {plural(results, 'result')} are those of sampled events"


def _key_comment(keys: Sequence[KeyField]) -> str:
    return " and ".join(f"{key.result} of a result is {key.events[0]} of its events" for key in keys)


def _doubts(topics: _Topics, keys: Sequence[KeyField], at: tuple[Time, ...], start: Time | None) -> Iterator[str]:
    """What the sample leaves open about key and time."""
    if all(key.values <= 1 for key in keys):
        said = ", ".join(key.result for key in keys)
        yield f"All sampled results have the same {said}, so it may not be the key."
    for one, time in zip(topics.inputs, at, strict=True):
        if time.path == "$timestamp":
            others = list(dict.fromkeys(it.path for it in one.times if it.path != time.path))
            least = (
                f"{' and '.join(others)} of {one.topic} fit less well" if others else f"{one.topic} has no other time"
            )
            yield f"The event time is the record's timestamp: {least}."
    of_patterns: dict[str, list[Time]] = defaultdict(list)
    for time in (*at, *(() if start is None else (start,))):
        of_patterns[time.form.get("pattern", "")].append(time)
    for pattern, times in of_patterns.items():
        said = " and ".join(dict.fromkeys(time.path for time in times))
        if pattern:
            yield f"The pattern {pattern} fits all sampled texts of {said}; day and month may be exchanged."
        if "HH" in pattern and not any(_after_noon(it) for time in times for it in time.instants):
            yield f"No hour of {said} is above 12: if the clock has 12 hours, write hh."


def _after_noon(instant_us: int | None) -> bool:
    hour_us = 3_600_000_000
    return instant_us is not None and not 1 <= instant_us % DAY // hour_us <= 12
