"""A correct engine and one wrong parameter of the configuration: nothing is confirmed, and the reason and `doctor` name
the parameter (SEMANTICS 4.27 to 4.29). An engine with a defect stays accused.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.fed_run import Fed, FedRun
from tests.unit.fed_run import confirmed as confirmed_of
from tests.unit.memory_tables import MemoryTables
from tests.unit.read_through import read_through
from tests.unit.reconcile_rows import MINUTE_US, fact, facts
from tests.worlds import some
from validator.cli.check_result import CheckResult
from validator.cli.comparison import Read, compare
from validator.codecs.one_record import Event, Result
from validator.config.examples import EXAMPLES
from validator.config.load import loads
from validator.config.model import Config
from validator.core.differences import of_texts
from validator.core.fit import FEW
from validator.core.fit_sample import SAME_MOST, FitSample, merged
from validator.core.judging import Judging
from validator.core.suspicion import Suspicion
from validator.model.violation import Violation
from validator.oracles.seam import Oracle
from validator.oracles.tumbling_window import TumblingWindow
from validator.reconcile.judge import Rules
from validator.state.known_facts import KnownFacts
from validator.stream.doubt_sentences import configuration_doubts

SECOND_US = 1_000_000
BEGAN_US = 1_767_225_600 * SECOND_US
KEYS = "abc"

CONFIG = """
pipeline: fit
guarantee: exactly_once
kafka: {{bootstrap_servers: "localhost:9092"}}
inputs: {inputs}
outputs:
- topic: output
  fields: {{key: k, window_start: ws, ids: {ids}}}
oracle: {oracle}
state: {{path: ./state}}
metrics: {{port: 0}}
"""
ONE_INPUT = "[{topic: input, fields: {id: id, key: k, event_time: ts}}]"


def configured(oracle: str, folder: Path) -> Config:
    return loads(CONFIG.format(inputs=ONE_INPUT, ids="ids", oracle=oracle), folder, environment={})


@dataclass(frozen=True)
class Engine:
    """A correct engine. ``oracle``: what it computes. ``time``: event time -> the time that it reads. ``named``: the
    start of a window -> the instant that the sidecar reads. ``key``: (key, number of the event) -> the key by which it
    groups. ``written``: sorted ids of a window -> the lists of its results."""

    oracle: str
    time: Callable[[int], int] = lambda time_us: time_us
    named: Callable[[int], int] = lambda start_us: start_us
    key: Callable[[str, int], str] = lambda key, number: key
    written: Callable[[Sequence[int]], Iterator[Sequence[int]]] = lambda ids: iter([ids])


@dataclass
class Log:
    """The events, and the results of an engine."""

    events: list[tuple[int, str, int]] = field(default_factory=list)
    results: list[tuple[int, str, Sequence[int]]] = field(default_factory=list)


def run(engine: Engine, folder: Path, count: int = 600, every_us: int = 250_000) -> Log:
    """The log of a run: each key has an event every ``3 * every_us``."""
    oracle, log = configured(engine.oracle, folder).oracle, Log()
    cells: dict[tuple[int, str], list[int]] = defaultdict(list)
    for number in range(count):
        at_us, key = BEGAN_US + number * every_us, KEYS[number % 3]
        log.events.append((number, key, at_us))
        for start in oracle.assigned(np.array([engine.time(at_us)])).starts.tolist():
            cells[start, engine.key(key, number)].append(number)
    for (start, key), ids in sorted(cells.items()):
        log.results += [(engine.named(start), key, tuple(some)) for some in engine.written(ids)]
    return log


def judge(log: Log, config: Config) -> tuple[list[dict[str, Any]], list[str]]:
    """Let the core read the events, then the results. Returns the confirmed violations, and the reasons for doubt."""
    return judged([rows_of_events(log, config.oracle), rows_of_results(log, config.oracle)], config)


def judged(batches: Sequence[list[dict[str, Any]]], config: Config) -> tuple[list[Violation], list[str]]:
    rules = Rules(config.oracle, 1, 1, several_inputs=len(config.inputs) > 1)
    judging = Judging(KnownFacts(None, first_batch=0), rules)
    violations: dict[str, Violation] = {}
    for batch, rows in enumerate((*batches, []), 1):
        made = [{**row, "batch": batch, "lookup_us": batch, "hash_b": row["hash_b"] % 2**62} for row in rows]
        progress = read_through(batch if rows else 100)
        effects = judging.step(facts(*made) if made else None, progress, Suspicion())
        violations |= {one.id: one for one in effects.violations}
    doubts = configuration_doubts(config, read_through(100), judging.sums, {}, waits=False)
    return [one for one in violations.values() if one.confirmed_now], [one.sentence for one in doubts]


def rows_of_events(log: Log, oracle: Oracle) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for number, key, at_us in log.events:
        starts = oracle.assigned(np.array([at_us])).starts.tolist()
        found += [fact("input", [number], batch=0, lookup_us=0, window_us=start, key=key) for start in starts]
    return found


def rows_of_results(log: Log, oracle: Oracle) -> list[dict[str, Any]]:
    found = []
    for offset, (named, key, ids) in enumerate(log.results):
        start = int(oracle.starts_of_results(np.array([named]))[0])
        row = fact("output", ids, batch=0, lookup_us=0, window_us=start, key=key)
        results = [{**row["results"][0], "offset": offset, "time_us": 0}]
        found.append({**row, "first_offset": offset, "last_offset": offset, "results": results})
    return found


def doctor(log: Log, config: Config) -> list[CheckResult]:
    """What `doctor` says about the newest records, as it reads them."""
    records: list[Read] = [("input", 0, number, 0, Event(number, key, at_us)) for number, key, at_us in log.events]
    records += [
        ("output", 0, at, 0, Result(key, named, (list(ids),))) for at, (named, key, ids) in enumerate(log.results)
    ]
    return list(compare(config, records, whole={"input": True, "output": True}))


TEN = "{kind: tumbling_window, size: 10s}"
SLIDING = "{kind: sliding_window, size: 20s, slide: 5s}"
WRONG: dict[str, tuple[Engine, str, str]] = {
    **{
        f"size {size} of 10s": (
            Engine(TEN), f"{{kind: tumbling_window, size: {size}}}", f"oracle.size is {size}, but 10s")
        for size in ("1s", "5s", "15s", "20s", "7s", "1m")
    },
    "offset": (Engine(TEN), "{kind: tumbling_window, size: 10s, offset: 4s}", "oracle.offset is 4s, but 0s"),
    "size with an offset": (
        Engine("{kind: tumbling_window, size: 10s, offset: 3s}"), "{kind: tumbling_window, size: 5s, offset: 3s}",
        "oracle.size is 5s, but 10s"),
    "sliding, larger size": (
        Engine(SLIDING), "{kind: sliding_window, size: 25s, slide: 5s}", "oracle.size is 25s, but 20s"),
    "sliding, smaller size": (
        Engine(SLIDING), "{kind: sliding_window, size: 15s, slide: 5s}", "oracle.size is 15s, but 20s"),
    "sliding, one window in 20 more": (
        Engine("{kind: sliding_window, size: 20s, slide: 1s}"), "{kind: sliding_window, size: 21s, slide: 1s}",
        "oracle.size is 21s, but 20s"),
    "sliding, larger slide": (
        Engine(SLIDING), "{kind: sliding_window, size: 20s, slide: 10s}", "oracle.slide is 10s, but 5s"),
    "sliding, smaller slide": (
        Engine("{kind: sliding_window, size: 20s, slide: 10s}"), SLIDING, "oracle.slide is 5s, but 10s"),
    "tumbling of sliding": (Engine("{kind: sliding_window, size: 20s, slide: 10s}"), TEN, "parameter of the oracle"),
    "distinct": (Engine(TEN), "{kind: distinct, size: 5s}", "oracle.size is 5s, but 10s"),
    "seconds as milliseconds": (Engine(TEN, time=lambda us: us // 1000), TEN, "1,000 times too small"),
    "milliseconds as seconds": (Engine(TEN, time=lambda us: us * 1000), TEN, "1,000 times too large"),
    "unit of the window's start": (Engine(TEN, named=lambda us: us // 1000), TEN, "1,000 times too small"),
    "local time": (
        Engine(TEN, named=lambda us: us + 7_200 * SECOND_US), TEN, "2h later, as between local time and UTC"),
    "local time of whole days": (
        Engine("{kind: tumbling_window, size: 24h}"), "{kind: tumbling_window, size: 24h, offset: 22h}",
        "oracle.offset is 22h, but 0s"),
    "another key": (Engine(TEN, key=lambda key, number: f"other-{number % 3}"), TEN, "the keys differ"),
    "another key with few values": (
        Engine(TEN, key=lambda key, number: KEYS[number // 3 % 2]), TEN, "9_results"),
    "closed side": (
        Engine("{kind: tumbling_window, size: 1s, closed: right}"), "{kind: tumbling_window, size: 1s}",
        "oracle.closed is left, but right"),
    "a zone whose clock changes after two months": (
        Engine("{kind: tumbling_window, size: 24h, time_zone: Europe/London}"), "{kind: tumbling_window, size: 24h}",
        "oracle.time_zone is UTC, but Europe/London"),
    "windows that are read as sessions": (Engine(TEN), "{kind: session_window, gap: 300ms}", "9_results"),
}  # fmt: skip
"""The engine, the configured oracle, and a part of the reason."""


@pytest.mark.parametrize("name", some(WRONG))
def test_a_wrong_parameter_accuses_no_correct_engine_and_is_named(name: str, tmp_path: Path) -> None:
    engine, oracle, said = WRONG[name]
    said = "results have events of other " if said == "9_results" else said
    config = configured(oracle, tmp_path)
    hours = {"days": 1, "months": 4}
    every_us = next((many * 3_600 * SECOND_US for word, many in hours.items() if word in name), 250_000)
    every_us = 500_000 if "closed" in name else every_us
    log = run(engine, tmp_path, every_us=every_us)
    confirmed, reasons = judge(log, config)
    assert confirmed == []
    assert any("in doubt" in one and said in one for one in reasons), reasons
    found = [one for one in doctor(log, config) if one.status == "problem"]
    assert any(said in one.text for one in found), doctor(log, config)


def test_the_sentences_of_a_passthrough_have_no_windows(tmp_path: Path) -> None:
    fields = "{key: k, id: id, event_time: ts}"
    output = f"outputs.0={{topic: output, evidence: id, fields: {fields}}}"
    given = (output, "late=[]", "oracle={kind: passthrough, bucket: 10s}", "inputs.0.topic=input")
    config = loads(EXAMPLES["clickstream"], tmp_path, given, environment={})
    log = Log([(one, "abc"[one % 3], BEGAN_US + one * SECOND_US) for one in range(200)])
    for shift_us, wrong, status in ((3_600 * SECOND_US, 200, "problem"), (0, 0, "ok"), (3_600 * SECOND_US, 1, "note")):
        log.results = [(at_us + (shift_us if one < wrong else 0), key, (one,)) for one, key, at_us in log.events]
        [found] = doctor(log, config)
        assert (found.status, "window" in found.text, "bucket" in found.text) == (status, False, True), found.text


def damaged(log: Log, at: Sequence[int], how: Callable[[tuple[int, str, Sequence[int]]], Sequence[Any]]) -> Log:
    """The log with some results replaced."""
    results = [new for i, one in enumerate(log.results) for new in (how(one) if i in at else [one])]
    return Log(log.events, results)


def moved(by_us: int) -> Callable[[tuple[int, str, Sequence[int]]], Sequence[Any]]:
    return lambda one: [(one[0] + by_us, *one[1:])]


JOIN = "{{kind: windowed_join, join: {join}, left: {left}, right: {right}, size: {size}, offset: {offset}}}"
JOINED = "[{path: c, input: click}, {path: u, input: update}]"


def joining(join: str = "inner", left: str = "click", size: str = "10s", offset: str = "0s") -> str:
    right = "click" if left == "update" else "update"
    return JOIN.format(join=join, left=left, right=right, size=size, offset=offset)


@dataclass
class Sides:
    """The events of a join, by input, and the results of an engine: window, key, and the ids of both inputs."""

    events: list[tuple[str, int, str, int]] = field(default_factory=list)
    results: list[tuple[int, str, dict[str, list[int]]]] = field(default_factory=list)

    def rows(self, config: Config) -> list[list[dict[str, Any]]]:
        """The fact rows of the events and of the results."""
        oracle, spaces = config.oracle, config.oracle.spaces(config.inputs)
        found: list[list[dict[str, Any]]] = [[], []]
        for topic, id_, key, at_us in self.events:
            start = int(oracle.assigned(np.array([at_us])).starts[0])
            row = fact("input", [id_], batch=0, lookup_us=0, window_us=start, key=key) | {"topic": topic}
            text = spaces[topic].named(id_)
            if isinstance(text, str):
                row |= {"ids": [], "min_id": None, "max_id": None, "text_ids": [{"id": text, "offset": 0}]}
            found[0].append(row)
        for offset, (start, key, ids) in enumerate(self.results):
            named = [spaces[topic].named(id_) for topic, some in ids.items() for id_ in some]
            row = fact("output", [], batch=0, lookup_us=0, window_us=start, key=key)
            numbers, texts = ([it for it in named if isinstance(it, kind)] for kind in (int, str))
            result = {**row["results"][0], "ids": numbers, "text_ids": texts, "offset": offset, "time_us": 0}
            place = {"first_offset": offset, "last_offset": offset}
            found[1].append({**row, **place, "contributions": len(named), "hash_a": 1, "results": [result]})
        return found

    def doctor(self, config: Config) -> list[CheckResult]:
        """What `doctor` says about these records."""
        records: list[Read] = [(topic, 0, id_, 0, Event(id_, key, at_us)) for topic, id_, key, at_us in self.events]
        records += [
            ("output", 0, at, 0, Result(key, start, (ids["click"], ids["update"])))
            for at, (start, key, ids) in enumerate(self.results)
        ]
        return list(compare(config, records, whole={"click": True, "update": True, "output": True}))


def joined(oracle: str, folder: Path, read_key: Callable[[str, str], str], read_us: Callable[[str, int], int]) -> Sides:
    """A run of an engine: of four windows two have events of both inputs, and two of one input only. ``read_key``,
    ``read_us``: (input, key or time) -> what the sidecar reads."""
    of, found = two_inputs(oracle, folder).oracle, Sides()
    cells: dict[tuple[int, str], dict[str, list[int]]] = defaultdict(lambda: {"click": [], "update": []})
    for number in range(480):
        window, key, topic = number // 24, KEYS[number % 3], ("click", "update")[number // 3 % 2]
        at_us = BEGAN_US + (window * 10 + number % 24 // 3) * SECOND_US
        if (window + number % 3) % 4 != ("click", "update").index(topic):
            found.events.append((topic, number, read_key(topic, key), read_us(topic, at_us)))
            cells[int(of.assigned(np.array([at_us])).starts[0]), key][topic].append(number)
    alone = of.left if of.join == "left" else None
    for (start, key), ids in sorted(cells.items()):
        if all(ids.values()) or (alone and ids[alone]):
            found.results.append((start, key, ids))
    return found


def two_inputs(oracle: str, folder: Path) -> Config:
    fields = "fields: {id: id, key: k, event_time: ts}"
    inputs = f"[{{topic: click, {fields}}}, {{topic: update, {fields}}}]"
    return loads(CONFIG.format(inputs=inputs, ids=JOINED, oracle=oracle), folder, environment={})


def as_written(topic: str, value: Any) -> Any:
    del topic
    return value


def of_updates(change: Callable[[Any], Any]) -> Callable[[str, Any], Any]:
    return lambda topic, value: change(value) if topic == "update" else value


ELSEWHERE = "the key, the time or its unit in inputs[1].fields may be wrong"
WRONG_JOINS: dict[str, tuple[str, str, dict[str, Callable[[str, Any], Any]], str, str]] = {
    "size 5s": (joining(), joining(size="5s"), {}, "oracle.size is 5s, but 10s", ""),
    "size 20s": (joining(), joining(size="20s"), {}, "oracle.size is 20s, but 10s", ""),
    "size of a left join": (joining("left"), joining("left", size="5s"), {}, "oracle.size is 5s, but 10s", ""),
    "offset": (joining(), joining(offset="4s"), {}, "oracle.offset is 4s, but 0s", ""),
    "key of a side": (joining(), joining(), {"read_key": of_updates(lambda key: f"x{key}")}, "the keys differ", ""),
    "key of a side of a left join": (
        joining("left"), joining("left"), {"read_key": of_updates(lambda key: f"x{key}")}, ELSEWHERE,
        "none of 120 events of update is in a result for its window and key"),
    "unit of a side": (joining(), joining(), {"read_us": of_updates(lambda us: us * 1000)}, "1,000 times", ""),
}  # fmt: skip
"""The join of the engine, the configured one, what the sidecar reads, and parts of the reasons of `validate` and of
`doctor` (empty: the same)."""


@pytest.mark.parametrize("name", WRONG_JOINS)
def test_a_wrong_parameter_of_a_join_accuses_no_correct_engine_and_is_named(name: str, tmp_path: Path) -> None:
    engine, oracle, read, said, shown = WRONG_JOINS[name]
    log = joined(engine, tmp_path, **{"read_key": as_written, "read_us": as_written, **read})
    config = two_inputs(oracle, tmp_path)
    confirmed, reasons = judged(log.rows(config), config)
    assert confirmed == []
    assert any("in doubt" in one and said in one for one in reasons), reasons
    found = [one for one in log.doctor(config) if one.status == "problem"]
    assert any((shown or said) in one.text for one in found), log.doctor(config)


INDISTINCT: dict[str, tuple[str, str, set[str]]] = {
    "join inner": (joining("left"), joining(), {"misplaced"}),
    "join left": (joining(), joining("left"), {"missing"}),
    "sides": (joining("left"), joining("left", "update"), {"missing", "misplaced"}),
    "sides and join": (joining("left", "update"), joining(), {"misplaced"}),
}
"""The join of the engine, the configured one, and what is found."""


@pytest.mark.parametrize("name", INDISTINCT)
def test_another_join_or_left_cannot_be_distinguished_from_a_defect(name: str, tmp_path: Path) -> None:
    """SEMANTICS 4.28: the verdict is that of an engine which loses or adds results of events without a partner."""
    engine, oracle, classes = INDISTINCT[name]
    log, config = joined(engine, tmp_path, as_written, as_written), two_inputs(oracle, tmp_path)
    confirmed, reasons = judged(log.rows(config), config)
    assert ({one.violation_class for one in confirmed}, reasons) == (classes, [])
    assert judged(log.rows(other := two_inputs(engine, tmp_path)), other) == ([], [])


@pytest.mark.parametrize(
    ("engine", "oracle", "every_us"),
    [
        ("{kind: tumbling_window, size: 10s, closed: right}", TEN, SECOND_US // 2),
        (
            "{kind: tumbling_window, size: 24h}",
            "{kind: tumbling_window, size: 24h, time_zone: Europe/Berlin, named: wall_time}",
            3_600 * SECOND_US,
        ),
    ],
    ids=["closed side", "wall times"],
)
def test_few_events_near_a_boundary_cannot_be_distinguished_from_a_defect(
    engine: str, oracle: str, every_us: int, tmp_path: Path
) -> None:
    """SEMANTICS 4.28: the sample does not know how near to the end of its window an event is."""
    confirmed, reasons = judge(run(Engine(engine), tmp_path, every_us=every_us), configured(oracle, tmp_path))
    assert ({one.violation_class for one in confirmed}, reasons) == ({"missing", "misplaced"}, [])


DEFECTS: dict[str, tuple[str, Callable[[Log], Log]]] = {
    "a result in the next window": (TEN, lambda log: damaged(log, [5], moved(10 * SECOND_US))),
    "two results off the grid": (TEN, lambda log: damaged(log, [5, 20], moved(SECOND_US))),
    "8 of 45 results in the next window": (TEN, lambda log: damaged(log, range(0, 45, 6), moved(10 * SECOND_US))),
    "a third of the results in the next window": (
        TEN, lambda log: damaged(log, range(0, 45, 3), moved(10 * SECOND_US))),
    "half of the results for another key": (
        TEN, lambda log: damaged(log, range(0, 45, 2), lambda one: [(one[0], "z", one[2])])),
    "two windows answered as one": (
        TEN, lambda log: Log(log.events, [*log.results[3:6], *[
            (start, key, (*ids, *more)) for (start, key, ids), (_, _, more) in zip(
                log.results[6:9], log.results[9:12], strict=True)], *log.results[12:]])),
    "every second result is lost": (TEN, lambda log: damaged(log, range(0, 45, 2), lambda one: [])),
    "every result twice": (TEN, lambda log: damaged(log, range(45), lambda one: [one, one])),
    "5 windows answered again with more": (
        TEN, lambda log: damaged(log, range(0, 45, 9), lambda one: [(*one[:2], one[2][:5]), one])),
    "every window loses its first event": (
        SLIDING, lambda log: damaged(log, range(99), lambda one: [(*one[:2], one[2][1:])])),
}  # fmt: skip
"""The oracle, and what an engine with a defect writes."""


@pytest.mark.parametrize("name", DEFECTS)
def test_an_engine_with_a_defect_is_accused(name: str, tmp_path: Path) -> None:
    oracle, damage = DEFECTS[name]
    config = configured(oracle, tmp_path)
    confirmed, reasons = judge(damage(run(Engine(oracle), tmp_path)), config)
    assert confirmed
    assert reasons == []


def growing(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    return (ids[:size] for size in range(1, len(ids) + 1))


@pytest.mark.parametrize("lost", [False, True])
def test_results_that_contain_the_one_before_put_the_emission_in_doubt(lost: bool, tmp_path: Path) -> None:
    """`lost`: the engine also loses a window."""
    config = configured(TEN, tmp_path)
    log = run(Engine(TEN, written=growing), tmp_path, count=200)
    if lost:
        log = Log(log.events, [one for one in log.results if one[0] != log.results[-40][0]])
    confirmed, reasons = judge(log, config)
    assert {one.violation_class for one in confirmed} == ({"missing"} if lost else set())
    [reason] = reasons
    assert "each result contains the one before it" in reason
    assert "write emission: cumulative, with a new state.path" in reason
    assert any(one.subject == "emission" and one.status == "problem" for one in doctor(log, config))


@pytest.mark.parametrize("emission", ["final", "incremental"])
def test_a_running_aggregate_that_repeats_its_ids_is_named_with_the_emission_that_fits(
    emission: str, tmp_path: Path
) -> None:
    """The facts of a result have a row for each id, whose cell is the id."""
    output = f"outputs.0={{topic: output, fields: {{key: k, ids: ids}}, emission: {emission}}}"
    given = (output, "late=[]", "oracle={kind: running_aggregate}", "inputs.0.topic=input")
    config = loads(EXAMPLES["clickstream"], tmp_path, ("metrics.port=0", "state.path=state", *given), environment={})
    log = Log([(one, "a", BEGAN_US + one) for one in range(20)])
    log.results = [(0, "a", range(one + 1)) for one in range(20)]
    rows = [[fact("input", [one], batch=0, lookup_us=0, window_us=0, key=f'["a","{one}"]') for one in range(20)], []]
    for offset, (_, _, ids) in enumerate(log.results):
        of_ids = [fact("output", [one], batch=0, lookup_us=0, window_us=0, key=f'["a","{one}"]') for one in ids]
        rows[1] += [{**row, "results": [{**row["results"][0], "offset": offset}]} for row in of_ids]
    rows = [[{**row, "window_start_us": None} for row in some] for some in rows]
    confirmed, reasons = judged(rows, config)
    assert confirmed == []
    assert any("write emission: cumulative, with a new state.path" in one for one in reasons)
    assert any("write emission: cumulative" in one.text for one in doctor(log, config) if one.status == "problem")


PAIRS = {
    ("Z\u00fcrich", "Zu\u0308rich"): "Unicode form: U+00FC against U+0075 U+0308",
    ("9007199254740993", "9007199254740992"): "rounded to a double",
    ("7", "007"): "the same number",
    ("7.0", "7"): "the same number",
    ("Home", "home"): "the case of letters",
    ("a b", "a\u00a0b"): "spaces: U+0020 against U+00A0",
    ("\ufb01n", "fin"): "compatibility form: U+FB01 against U+0066 U+0069",
    ("pair", "pa\u200bir"): "not seen: nothing against U+200B",
    ("Bern", "B\u0435rn"): "1 character: U+0065 against U+0435",
}


@pytest.mark.parametrize("pair", PAIRS)
def test_a_known_difference_of_two_texts_is_put_into_words(pair: tuple[str, str]) -> None:
    assert PAIRS[pair] in (of_texts(*pair) or "")
    assert of_texts(pair[0], pair[0]) is None
    assert of_texts(pair[0], "something else") is None


@pytest.mark.parametrize("field", ["ids", "keys"])
def test_ids_that_differ_in_a_known_way_are_named_together(field: str, tmp_path: Path) -> None:
    """A JavaScript engine rounds large ids; the sample holds an id and its rounded form, however many ids there are."""
    config = configured(TEN, tmp_path)
    log = run(Engine(TEN), tmp_path, count=900)
    large = 2**53 + 1
    events = [(large + 2 * number, *others) for number, *others in log.events]
    results = [(at, key, [int(float(large + 2 * one)) for one in ids]) for at, key, ids in log.results]
    shown = config.model_copy(update={"publish": config.publish.model_copy(update={field: "hidden"})})
    for one in (config, shown):
        confirmed, [reason] = judge(Log(events, results), one)
        assert confirmed == []
        assert ("rounded to a double" in reason) is (one is config or field == "keys")
        assert ("(hidden)" in reason) is (one is not config and field == "ids")


TUMBLING = TumblingWindow.of(MINUTE_US)
IDS = st.integers(0, 40)
ROWS = st.lists(st.tuples(st.sampled_from(["input", "output"]), IDS, st.integers(0, 2), st.integers(0, 3)), max_size=12)


def sampled(rows: Sequence[tuple[str, int, int, int]]) -> FitSample:
    found = FitSample(ids_most=5, cells_most=2)
    for side, id_, window, offset in rows:
        row = fact(side, [id_, id_ + 7], batch=0, lookup_us=0, window_us=window)
        found.absorb(facts({**row, "results": [{**it, "offset": offset} for it in row["results"]]}))
    return found


@settings(max_examples=30)
@given(ROWS, ROWS, st.randoms())
def test_a_sample_depends_neither_on_order_nor_on_batches_nor_on_repeats(
    these: list[tuple[str, int, int, int]], those: list[tuple[str, int, int, int]], rng: Random
) -> None:
    whole = [*these, *those]
    rng.shuffle(whole)
    expected = sampled(whole).to_json()
    assert merged([sampled(these), sampled(those)]).to_json() == expected
    assert merged([sampled(those), sampled(these), sampled(those)]).to_json() == expected
    restored = FitSample(ids_most=5, cells_most=2)
    restored.add_json(json.loads(json.dumps(sampled(these).to_json())))
    restored.merge(sampled(those))
    assert restored.to_json() == expected
    assert len({rank for rank, _ in restored.found}) == min(
        5, len({it for _, id_, *_ in whole for it in (id_, id_ + 7)})
    )


def test_a_sample_stays_small_if_many_ids_are_the_same_number_as_a_double() -> None:
    """Ids beyond 2^53 without gaps, in one result each for thousands of them."""
    found, others = FitSample.of(TUMBLING), []
    for batch in range(4):
        ids = [2**60 + 3_000 * batch + number for number in range(3_000)]
        rows = [fact(side, ids, batch=batch, lookup_us=1) | {"hash_a": 0, "hash_b": 0} for side in ("input", "output")]
        found.absorb(facts(*rows))
        others.insert(0, FitSample.of(TUMBLING))
        others[0].absorb(facts(*rows))
    assert len(found.found) <= SAME_MOST * len({rank for rank, _ in found.found})
    assert any(int(id_) == 2**60 + 512 for _, id_ in found.found), "the number to which a double rounds the others"
    assert merged(others).to_json() == found.to_json()
    assert {it.size for one in found.found.values() for it in one.named} == {3_000}


class Saved(FedRun):
    saves = True


@pytest.mark.parametrize("mode", ["running", "restarted", "saved"])
def test_the_doubt_does_not_depend_on_restarts_and_ends_with_the_mismatch(mode: str, tmp_path: Path) -> None:
    """The engine answers each pair of windows as one: nothing of it is confirmed, in any batch. Then it is replaced by
    one whose windows are right, and five times as many events are answered: more than 3 in 4 fit, and the first one is
    accused."""
    run = (Saved if mode == "saved" else FedRun)(tmp_path, (), "clickstream", tables=MemoryTables(tmp_path))
    for number in range(8):
        ids = range(8 * number, 8 * number + 8)
        window_us = 2 * number * MINUTE_US
        run.feed([Fed("click", (one,), window_us + (one % 8 // 4) * MINUTE_US) for one in ids])
        shown = run.feed([Fed("output", tuple(ids), window_us)], after_us=10 * MINUTE_US)
        if mode != "running":
            run.restart()
        if number >= FEW:
            assert confirmed_of(shown) == {}
            assert any("oracle.size is 1m, but 2m fits" in one for one in shown.reasons)
    right = {number * MINUTE_US: range(8 * number, 8 * number + 8) for number in range(16, 60)}
    run.feed([Fed("click", (one,), window_us) for window_us, ids in right.items() for one in ids])
    shown = run.feed([Fed("output", tuple(ids), window_us) for window_us, ids in right.items()])
    assert confirmed_of(shown)["misplaced"] == 8 * 4
