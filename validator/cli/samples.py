"""Checks that librdkafka can read every topic, and decodes the newest records as the sidecar would.

The findings say how many records decode, and show one of them. An id or key that `publish` hashes is hidden: its hash
needs the secret of the state, and these checks need no state. The records are read once, in a process with limited
memory (`validator.stream.bounded`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from validator.cli.check_result import CheckResult, note, ok, problem
from validator.cli.comparison import compare
from validator.codecs.one_record import Event, Result, Undecodable
from validator.config.model import Config
from validator.model.kafka_options import OptionsRefused
from validator.model.kafka_refusals import Refusal
from validator.model.wording import plural
from validator.publish.redaction import HIDDEN
from validator.publish.times import rfc3339
from validator.stream import refused_fields, sampling
from validator.stream.bounded import Ended, bounded
from validator.stream.sampling import TopicAnswered, TopicStarted
from validator.stream.sources import sources_of

RECORDS_MAX: Final = 100
SECONDS_MAX: Final = 8.0
_IDS_SHOWN: Final = 3
_TEXT_SHOWN: Final = 60
_PARTITIONS_SHOWN: Final = 3
_FAR_US: Final = 10 * 365 * 24 * 3_600_000_000
"""A time further from now than this has a wrong unit, or is historic."""
_FACTORS: Final = (1_000, 1_000_000, 1_000_000_000)
"""Between any two units."""


@dataclass(frozen=True)
class SampledRecord:
    """A record as the sidecar decodes it.

    ``undecodable``: why it does not decode: every field that does not fit. ``content``: its content in words.
    ``instant_us``: its time, in microseconds. They are empty or None for a tombstone, and for a record of a topic that
    is not judged. ``has_no_id``: whether it is a result with an empty list of ids.
    ``decoded``: its events, or its result. ``time_us``: its broker time.
    """

    topic: str
    partition: int
    offset: int
    undecodable: tuple[Undecodable, ...] = ()
    content: str | None = None
    instant_us: int | None = None
    has_no_id: bool = False
    decoded: tuple[Event | Result, ...] = ()
    time_us: int = 0


@dataclass
class _Topic:
    """The records read of a topic. ``left``: partition -> next offset. ``ends``: partition -> end of the reading.
    ``is_whole``: every record of the topic is read."""

    left: dict[int, int]
    ends: dict[int, int]
    is_whole: bool = False
    count: int = 0
    bad: list[SampledRecord] = field(default_factory=list)
    good: list[SampledRecord] = field(default_factory=list)
    too_large: Ended | None = None

    def add(self, record: SampledRecord) -> None:
        """Add the next record."""
        self.left[record.partition] = record.offset + 1
        self.count += 1
        if record.undecodable:
            self.bad.append(record)
        elif record.content is not None:
            self.good.append(record)


def check(config: Config, partitions: Mapping[str, Sequence[int]]) -> Iterator[CheckResult]:
    """A finding for the client, then findings for each existing topic of the pipeline.

    ``partitions``: existing topic -> its partitions.
    """
    topics: dict[str, _Topic] = {}
    refusal: Refusal | None = None
    left = dict(partitions)
    while left:
        under_way: str | None = None
        try:
            for item in bounded(SECONDS_MAX * (len(left) + 1), _read, config, left):
                if isinstance(item, TopicStarted):
                    under_way = item.topic
                    topics[under_way] = _Topic(item.starts, item.ends, item.is_whole)
                elif isinstance(item, SampledRecord):
                    topics[item.topic].add(item)
                elif item.refusal is not None:
                    topics.pop(item.topic, None)
                    refusal = refusal or item.refusal
            break
        except Ended as error:
            if under_way is None or not error.by_memory:
                refusal = refusal or Refusal("", f"a record of {' or '.join(left)} {error}", "run doctor again")
                break
            # The remaining topics are read in a new process.
            topics[under_way].too_large = error
            names = list(left)
            left = {name: left[name] for name in names[names.index(under_way) + 1 :]}
    if refusal is not None:
        yield problem("python client", refusal.problem, refusal.fix)
    else:
        yield ok("python client", f"reads {', '.join(partitions)}" if partitions else "there is no topic to read yet")
    for source in sources_of(config):
        if source.topic in topics:
            yield from _topic_findings(config, config.entry_of(source.topic), source.topic, topics[source.topic])
    compared = [entry.topic for entry in (*config.inputs, *config.outputs)]
    records = (
        (it.topic, it.partition, it.offset, it.time_us, one)
        for name in compared
        for it in (topics[name].good if name in topics else ())
        for one in it.decoded
    )
    yield from compare(config, records, whole={name: topics[name].is_whole for name in topics})


def _read(
    config: Config, partitions: Mapping[str, Sequence[int]]
) -> Iterator[TopicStarted | TopicAnswered | SampledRecord]:
    """Read the topics. Runs in a separate process."""
    judged = {source.topic for source in sources_of(config)}
    most = {topic: RECORDS_MAX if topic in judged else 1 for topic in partitions}
    decoders = {topic: sampling.SingleDecoder(config, topic) for topic in judged}
    try:
        for item in sampling.newest(config, partitions, most, SECONDS_MAX):
            if not isinstance(item, tuple):
                yield item
                continue
            topic, record = item
            sampled = SampledRecord(topic, record.partition, record.offset)
            found = decoders[topic].decode_all(record) if topic in judged else ()
            decoded = found[0] if found else None
            if isinstance(decoded, Undecodable):
                sampled = replace(sampled, undecodable=decoders[topic].problems(record))
            elif isinstance(decoded, (Event, Result)):
                instant = decoded.event_time_us if isinstance(decoded, Event) else decoded.window_start_us
                no_id = isinstance(decoded, Result) and decoded.stated_count is None and not any(decoded.ids)
                sampled = replace(
                    sampled,
                    content=_understood(config, decoded),
                    instant_us=instant,
                    has_no_id=no_id,
                    decoded=tuple(one for one in found if isinstance(one, (Event, Result))),
                    time_us=record.timestamp_us,
                )
            yield sampled
    except OptionsRefused as error:
        yield TopicAnswered("", Refusal("", f"kafka.options: {error.problem}", error.fix))


def _topic_findings(config: Config, place: str, name: str, topic: _Topic) -> Iterator[CheckResult]:
    subject = f"records of {name}"
    if topic.too_large is not None:
        yield note(subject, _too_large(name, topic))
    elif not topic.count:
        record = "committed " if config.kafka.isolation_level == "read_committed" else ""
        yield note(subject, f"no {record}record is visible, so the fields of {place} could not be checked")
    if topic.bad:
        last = topic.bad[-1]
        what = refused_fields.said(last.undecodable, config.publish)
        of_them = f"of the newest {topic.count}"
        do = "does" if len(topic.bad) == 1 else "do"
        share = f"{len(topic.bad)} {of_them} {do} not decode" if topic.good else f"none {of_them} decodes"
        sentence = f"{share}: at {name}-{last.partition} offset {last.offset}, {what}"
        step = refused_fields.next_step(place, last.undecodable)
        if topic.good:
            yield note(subject, f"{sentence}; {step}")
        else:
            yield problem(subject, sentence, f"check {refused_fields.settings(place, last.undecodable)}")
    if not topic.good:
        return
    last = topic.good[-1]
    at = f"{name}-{last.partition} offset {last.offset}"
    decode = "decodes" if len(topic.good) == 1 else "decode"
    yield ok(subject, f"{len(topic.good)} of the newest {topic.count} {decode}; {at} is {last.content}")
    if all(record.has_no_id for record in topic.good):
        empty = "its list of ids is" if len(topic.good) == 1 else "their lists of ids are all"
        yield note(subject, f"{empty} empty: unless the results use no event, {place}.fields.ids names another field")
    if last.instant_us is not None:
        field_name: str = (config.oracle.result_time if place.startswith("outputs") else None) or "event_time"
        role, _, position = place.removesuffix("]").partition("[")
        fields = getattr(config, role)[int(position)].fields
        if field_name == "window_start" and fields.window_start is None:
            field_name = "window_end"
        field = getattr(fields, field_name, None)
        factors = _FACTORS if field is not None and field.unit is not None else ()
        yield from _time_findings(subject, f"{place}.fields.{field_name}", last.instant_us, factors)


def _time_findings(subject: str, setting: str, instant_us: int, factors: Sequence[int]) -> Iterator[CheckResult]:
    """A problem if a time is near now in another unit (by one of ``factors``), else a note if it is far from now."""
    now_us = time.time_ns() // 1000
    if abs(instant_us - now_us) <= _FAR_US:
        return
    for factor in factors:
        for other_us in (instant_us * factor, instant_us // factor):
            if abs(other_us - now_us) <= _FAR_US:
                is_larger = "larger" if other_us > instant_us else "smaller"
                text = f"the unit of {setting} gives {_time(instant_us)}; one {factor:,} times {is_larger} gives "
                yield problem(subject, f"{text}{_time(other_us)}", f"correct {setting}.unit")
                return
    yield note(
        subject,
        f"{_time(instant_us)} is more than 10 years before or after now: unless it is historical, the unit of "
        f"{setting} is wrong",
    )


def _too_large(name: str, topic: _Topic) -> str:
    places = [
        f"{name}-{number} at or after offset {offset}"
        for number, offset in sorted(topic.left.items())
        if offset < topic.ends[number]
    ]
    some = ", ".join(places[:_PARTITIONS_SHOWN])
    left = len(places) - _PARTITIONS_SHOWN
    one_of = "one of " if len(places) > 1 else ""
    more = f" and {plural(left, 'more partition')}" if left > 0 else ""
    return (
        f"one of the newest records {topic.too_large}: it is in {one_of}{some}{more}. The sidecar skips a record that "
        "does not fit into its memory, and the verdict is then unknown"
    )


def _understood(config: Config, one: Event | Result) -> str:
    """The content of a record in words, without what `publish` does not show in plain form."""
    key = _shown(one.key) if config.publish.keys == "plain" else HIDDEN
    shows_ids = config.publish.ids == "plain"
    if isinstance(one, Event):
        has_ids = config.inputs[0].fields.id is not None
        name = f"event {_shown(one.id) if shows_ids else HIDDEN}" if has_ids else "an event"
        event = f"{name} of key {key} at {_time(one.event_time_us)}"
        if not config.oracle.has_windows:
            return f"{event}, in the {config.oracle.noun}"
        starts = config.oracle.assigned(np.array([one.event_time_us], dtype=np.int64)).starts.tolist()
        noun = config.oracle.noun
        cells = noun if len(starts) == 1 else f"{len(starts)} {noun.replace('window', 'windows')}"
        if one.is_skipped:
            return f"{event}, which has no key and is skipped"
        if not one.is_owed:
            return f"{event}, for which the condition of the oracle does not hold"
        return f"{event}, in the {cells} {_time(min(starts))}"
    ids = [item for found in one.ids for item in found]
    some = ", ".join(_shown(item) for item in ids[:_IDS_SHOWN]) + (", ..." if len(ids) > _IDS_SHOWN else "")
    counted = "event" if config.oracle.pair_rule is None else "pair"
    count = plural(len(ids), "id") if one.stated_count is None else plural(one.stated_count, counted)
    where = ""
    if one.window_start_us is not None:
        of_what = "the window from" if config.oracle.result_time == "window_start" else "an event at"
        where = f"{of_what} {_time(one.window_start_us)} and "
    sentence = f"a result for {where}key {key} with {count}"
    return f"{sentence} ({some})" if ids and shows_ids else sentence


def _shown(value: int | str) -> str:
    text = str(value)
    return text if len(text) <= _TEXT_SHOWN else f"{text[:_TEXT_SHOWN]}... ({len(text)} characters)"


def _time(instant_us: int) -> str:
    return rfc3339(instant_us) or f"{instant_us // 1_000_000} s after 1970, outside the years 1 to 9999"
