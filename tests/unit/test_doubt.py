"""When a wrong configuration may explain violations, they stay suspected; when it fits, they are confirmed (SEMANTICS
section 4, "When the configuration is in doubt").

All tests feed records to a sidecar and read the published verdicts. `IN_DOUBT` lists configurations that do not fit:
nothing is ever confirmed, whatever the order of reading. `PROVEN` lists records that leave no doubt. `PHASES` lists
what is confirmed after one step and retracted, or confirmed, after the next.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.fed_run import Fed, FedRun, confirmed, suspected
from tests.unit.memory_tables import MemoryTables
from tests.unit.reconcile_rows import MINUTE_US
from tests.worlds import scaled, some
from validator.model.classes import Guarantee, Verdict
from validator.model.frontier import PartitionId
from validator.model.snapshot import Snapshot
from validator.state.positions import Settlement, Stretch

IN, OTHER, OUT, SECOND, LATE, DEAD = "click", "update", "output", "second", "lateOutput", "dead"
TWO_INPUTS = (f"inputs.1={{topic: {OTHER}, fields: {{id: id, key: page, event_time: timestamp}}}}",)
TWO_OUTPUTS = (f"outputs.1={{topic: {SECOND}, fields: {{key: page, window_start: windowStart, ids: [clickIds]}}}}",)
REJECTED = (f"rejected.0={{topic: {DEAD}, fields: {{id: id, key: page, event_time: timestamp}}}}",)
COLLAPSE = ("inputs.0.duplicates=collapse", "inputs.1.duplicates=collapse")
WINDOWS, SIZE = range(5), 4
LAST = 50
"""A window that closes all others."""
MODES = ("running", "restarted", "saved")
"""One process; a new one after each batch; the same with saved cells."""


def ids(window: int, base: int = 0, which: Sequence[int] = range(SIZE)) -> tuple[int, ...]:
    return tuple(base + 10 * window + one for one in which)


def events(topic: str = IN, base: int = 0, *, later: int = 0, windows: Sequence[int] = WINDOWS) -> list[Fed]:
    """Four events of each window, their ids ``base`` off, and their windows ``later`` minutes later."""
    return [Fed(topic, (one,), (each + later) * MINUTE_US) for each in windows for one in ids(each, base)]


def results(
    topic: str = OUT,
    base: int = 0,
    which: Sequence[int] = range(SIZE),
    *,
    later: int = 0,
    windows: Sequence[int] = WINDOWS,
) -> list[Fed]:
    """A result of each window with the ids of its events, or with ``which`` of them."""
    return [Fed(topic, ids(each, base, which), (each + later) * MINUTE_US) for each in windows]


def empty(topic: str = OUT) -> list[Fed]:
    return [Fed(topic, (), window * MINUTE_US) for window in WINDOWS]


def both_inputs(which: Sequence[int] = WINDOWS) -> list[Fed]:
    """Results with the ids of the events of both inputs, which are 500 apart."""
    return [Fed(OUT, (*ids(one), *ids(one, 500)), one * MINUTE_US) for one in which]


def mixed(*lists: Sequence[Fed]) -> list[Fed]:
    """Records of several topics window by window, as an engine reads and writes them."""
    return [one for some in zip(*lists, strict=True) for one in some]


def halves(base: int = 0, *, later: int = 0, windows: Sequence[int] = WINDOWS) -> list[Fed]:
    """Each of two topics has half of the ids of each window. Those of the second one are ``base`` off."""
    found = []
    for one in WINDOWS:
        found += results(which=(0, 1), windows=[one])
        found += results(SECOND, base, (2, 3), later=later, windows=[one] if one in windows else [])
    return found


def of_join(records: Sequence[Fed], click: int = 0, update: int = 0) -> list[Fed]:
    """The records in the id spaces of a join, with the ids of one side's events shifted."""
    found = []
    for one in records:
        shift = {IN: click, OTHER: update}.get(one.topic, 0)
        numbers = [id_ for id_ in one.ids or () if isinstance(id_, int)]
        named = tuple(it + shift if it < 500 else f"{OTHER}/{it + shift}" for it in numbers)
        found.append(replace(one, ids=named))
    return found


def aside(topic: str, base: int = 0, which: Sequence[int] = range(SIZE)) -> list[Fed]:
    """A late or rejected record for each of these events."""
    return [Fed(topic, (one,), window * MINUTE_US) for window in WINDOWS for one in ids(window, base, which)]


@dataclass(frozen=True)
class Case:
    """Events, and records of the other topics. ``said``: a part of the reason. ``at_least``: suspected at the end.
    ``confirmed``: exactly these are. ``in_time``: no result is read before the events of its window."""

    events: list[Fed]
    written: list[Fed]
    settings: tuple[str, ...] = ()
    example: str = "clickstream"
    said: str = "is in doubt"
    at_least: Mapping[str, int] = field(default_factory=dict)
    confirmed: Mapping[str, int] = field(default_factory=dict)
    in_time: bool = False

    def parts(self, rng: Random) -> list[Sequence[Fed]]:
        """The records in a random order that keeps that of each list, divided into random batches."""
        count, windows = len(self.events), len(WINDOWS)
        at = [rng.randint(0, count) for _ in self.written]
        if self.in_time:
            began = [min(one.window_us // MINUTE_US + 1, windows) * count // windows for one in self.written]
            at = [rng.randint(first, count) if rng.random() < 0.8 else count for first in began]
        keyed = [((number, 1), one) for number, one in enumerate(self.events)]
        keyed += [
            ((number, 0), one) for number, one in zip(at if self.in_time else sorted(at), self.written, strict=True)
        ]
        order = [one for _, one in sorted(keyed, key=lambda it: it[0])]
        bounds = sorted({0, len(order), *(rng.randrange(len(order)) for _ in range(rng.randint(0, 5)))})
        return [order[first:last] for first, last in itertools.pairwise(bounds)]


class Saved(FedRun):
    saves = True


def run_of(folder: Path, case: Case | None = None, *given: str, mode: str = "running") -> FedRun:
    kind = Saved if mode == "saved" else FedRun
    example, chosen = (case.example, case.settings) if case else ("clickstream", ())
    return kind(folder, (*chosen, *given), example, tables=MemoryTables(folder))


def wait(run: FedRun) -> Snapshot:
    """Let the time pass after which outstanding contributions of closed windows are missing."""
    run.feed([], after_us=3 * MINUTE_US)
    return run.feed([], after_us=3 * MINUTE_US)


def go_on(run: FedRun, mode: str) -> None:
    if mode != "running":
        run.restart()


ONE_INPUT, ONE_OUTPUT = f"topic {OTHER} is in doubt", f"topic {SECOND} is in doubt: none of 10 ids"


def by_window(*lists: Sequence[Fed]) -> list[Fed]:
    """Events of two inputs, window by window of the first."""
    return [one for number in WINDOWS for some in lists for one in some[number * SIZE : (number + 1) * SIZE]]


BOTH = by_window(events(), events(OTHER, 500))
SEMI = (
    "oracle.join=semi",
    "outputs=[{topic: output, fields: {key: page, window_start: windowStart, ids: {path: clickIds, input: click}}}]",
)
IN_DOUBT = {
    "other ids": Case(events(), results(base=1000)),
    "other ids, some unreadable": Case(events(), [Fed(OUT, None), *results(base=1000), Fed(OUT, None)]),
    "other windows": Case(events(), results(later=100)),
    "nothing decodes": Case(events(), [Fed(OUT, None)] * 5),
    "no ids": Case(events(), empty(), at_least={"missing": 20}),
    "no event decodes": Case([Fed(IN, None)] * 20, results()),
    "no late record has an id of an event": Case(
        events(), mixed(results(which=(0, 1)), aside(LATE, 1000, (2,)), aside(LATE, 1000, (3,))), said="late topic",
        in_time=True),
    "no late record has an id of an event, and there are no results": Case(
        events(), aside(LATE, 1000), said="late topic", in_time=True),
    "no rejected record has an id of an event": Case(
        events(), aside(DEAD, 1000), REJECTED, said="rejected topic", in_time=True),
    "other ids of one input": Case(
        by_window(events(), events(OTHER, 1500)), both_inputs(), TWO_INPUTS, said=ONE_INPUT, in_time=True),
    "other windows of one input": Case(
        by_window(events(), events(OTHER, 500, later=2)), both_inputs(), TWO_INPUTS, said=ONE_INPUT, in_time=True),
    "ids of one input in another field": Case(
        BOTH, results(), TWO_INPUTS, said=ONE_INPUT, at_least={"missing": 20}, in_time=True),
    "ids of one input are those of the other": Case(
        by_window(events(), events(OTHER)), both_inputs(), TWO_INPUTS, in_time=True,
        at_least={"missing": 20, "unknown_id": 20}),
    **{
        f"{join} join, {name}": Case(
            of_join(read, **shifts), of_join(both_inputs()), (f"oracle.join={join}",), "join", in_time=True)
        for join in ("inner", "left")
        for name, read, shifts in (
            ("ids of the left", BOTH, {"click": 100}),
            ("ids of the right", BOTH, {"update": 1000}),
            ("windows of the right", by_window(events(), events(OTHER, 500, later=2)), {}),
        )
    },
    "semi join, ids of the left": Case(of_join(BOTH, click=100), of_join(results()), SEMI, "join", in_time=True),
    "semi join, windows of the right": Case(
        of_join(by_window(events(), events(OTHER, 500, later=LAST))), of_join(results()), SEMI, "join", in_time=True),
    "other ids of one output": Case(events(), halves(1000), TWO_OUTPUTS, said=ONE_OUTPUT, in_time=True),
    "other windows of one output": Case(events(), halves(later=100), TWO_OUTPUTS, said=ONE_OUTPUT, in_time=True),
    "other windows of some events in one output": Case(
        events(), halves(later=1), TWO_OUTPUTS, said=ONE_OUTPUT, in_time=True),
    "one output in doubt has an undecodable result": Case(
        events(), [*halves(1000), Fed(SECOND, None)], TWO_OUTPUTS, at_least={"undecodable": 1}, in_time=True),
    "no ids in one output": Case(
        events(), [*mixed(results(which=(0, 1)), empty(SECOND)), Fed(SECOND, None)], TWO_OUTPUTS, in_time=True,
        said=f"topic {SECOND} is in doubt: none of its 5 results has an id: outputs[1].fields.ids",
        at_least={"missing": 10, "undecodable": 1}),
}  # fmt: skip
"""A correct engine, and a configuration that does not fit."""


@pytest.mark.parametrize("name", some(IN_DOUBT))
@settings(max_examples=scaled(6), deadline=None)
@given(st.sampled_from(MODES), st.integers(0, 2**32))
def test_nothing_is_ever_confirmed_while_the_configuration_fits_nothing(name: str, mode: str, seed: int) -> None:
    case = IN_DOUBT[name]
    with TemporaryDirectory() as folder:
        run = run_of(Path(folder), case, mode=mode)
        for part in case.parts(Random(seed)):
            shown = run.feed(part)
            go_on(run, mode)
            assert (confirmed(shown), shown.confirmed_total) == ({}, {})
            assert Verdict.FAIL not in shown.verdicts.values()
        assert confirmed(wait(run)) == {}
        last = run.end()
    assert (confirmed(last), last.confirmed_total) == ({}, {})
    assert set(last.verdicts.values()) == {Verdict.UNKNOWN} or "late" in case.said or "rejected" in case.said
    assert last.verdicts[Guarantee.EXACTLY_ONCE] is Verdict.UNKNOWN
    assert any(case.said in reason for reason in last.reasons), last.reasons
    assert suspected(last) | case.at_least == suspected(last)


PROVEN = {
    "a dead engine": Case(events(), [], confirmed={"missing": 20}),
    "a dead engine of two inputs": Case(BOTH, [], TWO_INPUTS, confirmed={"missing": 40}),
    "two good results, an undecodable one, one with other ids, and no fifth": Case(
        events(), [*results(windows=(0, 1)), Fed(OUT, None), *results(base=1000, windows=(3,))],
        confirmed={"missing": 12, "unknown_id": 4, "undecodable": 1}),
    "one result has the ids of both inputs": Case(
        BOTH, [*both_inputs([0]), *results(windows=(1, 2, 3))], TWO_INPUTS, confirmed={"missing": 20}),
    **{
        f"one result of a join, {join}": Case(
            of_join(BOTH), of_join(both_inputs([0])), (f"oracle.join={join}",), "join", confirmed={"missing": 32})
        for join in ("inner", "left")
    },
    "one result of a semi join": Case(
        of_join(BOTH), of_join(results(windows=(0,))), SEMI, "join", confirmed={"missing": 16}),
    "a left join whose right side has no partners": Case(
        of_join(by_window(events(), events(OTHER, 500, later=LAST))), of_join(results(windows=(0,))),
        ("oracle.join=left",), "join", confirmed={"missing": 16}, in_time=True),
    **{
        f"another input repeats all ids, and {how} collapse": Case(
            by_window(events(), events(OTHER)), results(windows=(1, 2, 3, 4)), (*TWO_INPUTS, *collapse),
            confirmed={"missing": 4})
        for how, collapse in (("inputs", COLLAPSE), ("the oracle", ("oracle={kind: distinct, size: 1m}",)))
    },
    "losses beyond a misnamed late record": Case(
        events(), [*results(which=(0, 1)), Fed(LATE, (1000,))], confirmed={"missing": 10}),
    "one late record has the id of an event": Case(
        events(), [*results(which=(0, 1, 2)), *aside(LATE, 0, (3,))[1:], Fed(LATE, (1000,))],
        confirmed={"missing": 1, "unknown_id": 1}),
    "late records of answered events": Case(
        [Fed(IN, (9000,)), *events()], [*results(), *aside(LATE)[:3]], confirmed={"duplicate": 3, "missing": 1}),
    "both outputs fit once": Case(
        events(), [*halves(windows=(0, 1, 2)), Fed(OUT, (0,)), Fed(SECOND, (777,))], TWO_OUTPUTS,
        confirmed={"missing": 4, "duplicate": 1, "unknown_id": 1}),
    "both outputs carry the same ids, which match for none": Case(
        events(), halves(-2), TWO_OUTPUTS, at_least={"missing": 10, "duplicate": 10}),
    "an output repeats all its results": Case(
        events(), [*halves(), *results(SECOND, 0, (2, 3))], TWO_OUTPUTS, confirmed={"duplicate": 10}),
    "an output without results": Case(events(), halves(windows=()), TWO_OUTPUTS, confirmed={"missing": 10}),
    "an output that fits has an undecodable result, the other one does not fit": Case(
        events(), [*halves(1000), Fed(SECOND, None), Fed(OUT, None)], TWO_OUTPUTS, confirmed={"undecodable": 1}),
}  # fmt: skip
"""Violations that no wrong configuration explains."""


@pytest.mark.parametrize("name", PROVEN)
@settings(max_examples=scaled(6), deadline=None)
@given(st.sampled_from(MODES), st.integers(0, 2**32))
def test_violations_that_no_doubt_explains_are_confirmed(name: str, mode: str, seed: int) -> None:
    case = PROVEN[name]
    with TemporaryDirectory() as folder:
        run = run_of(Path(folder), case, mode=mode)
        for part in case.parts(Random(seed)):
            run.feed(part)
            go_on(run, mode)
        wait(run)
        last = run.end()
    assert confirmed(last) == case.confirmed
    assert suspected(last) | case.at_least == suspected(last)


def many(*lists: Sequence[int], topic: str = OUT) -> list[Fed]:
    return [Fed(topic, tuple(one)) for one in lists]


GROUPS = [range(5 * number, 5 * number + 5) for number in range(41)]
OF_GROUPS = [one for group in GROUPS for one in many(*([it] for it in group), topic=IN)]
CLOSING = Fed(IN, (999_999,), 2 * MINUTE_US)
WRONG_GROUPS = [[5000 + one for one in group] for group in GROUPS]
Step = tuple[Sequence[Fed], Mapping[str, int]]

PHASES: dict[str, tuple[tuple[str, ...], list[Step]]] = {
    **{
        f"losses confirmed before any result, then {name}": (
            (),
            [
                (events(), {"missing": 16}),
                (IN_DOUBT[name].written, {}),
                (results(windows=(0,)), {"missing": 12, **found}),
            ],
        )
        for name, found in {
            "other ids": {"unknown_id": 20},
            "other ids, some unreadable": {"unknown_id": 20, "undecodable": 2},
            "other windows": {"misplaced": 20},
            "nothing decodes": {"undecodable": 5},
            "no ids": {},
        }.items()
    },
    "a good result after undecodable ones": (
        (),
        [([*events(windows=(0,)), Fed(OUT, None), Fed(OUT, None)], {}), (results(windows=(0,)), {"undecodable": 2})],
    ),
    "a few results match by chance": (
        (),
        [([*OF_GROUPS, CLOSING, Fed(OUT, (0,)), Fed(OUT, (5000,))], {"missing": 204, "unknown_id": 1}),
         (many(*WRONG_GROUPS), {})],
    ),
    "a few events of one input match by chance": (
        TWO_INPUTS,
        [([*OF_GROUPS, *many(*([1000 + one] for group in GROUPS for one in group), topic=OTHER), CLOSING,
           Fed(OTHER, (999_998,), 2 * MINUTE_US), *many(*GROUPS), Fed(OUT, (1000,)), Fed(OUT, (5000,))],
          {"missing": 204, "unknown_id": 1}),
         (many(*WRONG_GROUPS), {})],
    ),
    "a few results of one output match by chance": (
        TWO_OUTPUTS,
        [([*OF_GROUPS, *many(*([1000 + one] for group in GROUPS for one in group), topic=IN), CLOSING, *many(*GROUPS),
           Fed(SECOND, (1000,)), Fed(SECOND, (5000,))],
          {"missing": 204, "unknown_id": 1}),
         (many(*WRONG_GROUPS, topic=SECOND), {})],
    ),
    "a late record matches by chance": (
        (),
        [([*many([0], [1], topic=IN), Fed(LATE, (0,)), Fed(LATE, (1000,)), Fed(IN, (1,), 4 * MINUTE_US)],
          {"missing": 1, "unknown_id": 1}),
         ([*(Fed(IN, (one,)) for one in range(2, 101)), *(Fed(LATE, (1000 + one,)) for one in range(1, 101))], {})],
    ),
    "repeats collapse, so that other ids explain no duplicate": (
        (*TWO_INPUTS, *COLLAPSE, "late=[]"),
        [([*OF_GROUPS, *many(*([1000 + one] for group in GROUPS for one in group), topic=OTHER), CLOSING,
           Fed(OTHER, (999_998,), 2 * MINUTE_US), Fed(OUT, (1000,)), *many(GROUPS[0], GROUPS[0])],
          {"duplicate": 5, "missing": 404}),
         ([*many(*GROUPS[1:], *WRONG_GROUPS), Fed(OUT, tuple(range(7000, 7100)))], {"duplicate": 5})],
    ),
    "an undecodable result of one output, and its first id matches by chance": (
        TWO_OUTPUTS,
        [([*events(), *many(*([1000 + one] for one in range(100)), topic=IN), *halves(windows=()), Fed(SECOND, (2,)),
           Fed(SECOND, None), Fed(OUT, None)], {"undecodable": 2, "missing": 107}),
         ([Fed(SECOND, tuple(range(5000, 5120)))], {"undecodable": 1}),
         ([Fed(SECOND, (3,))], {"undecodable": 2, "unknown_id": 120, "missing": 106})],
    ),
    "a result without ids, and one with an id": (
        (), [(events(), {"missing": 16}), ([Fed(OUT, ())], {}), ([Fed(OUT, (0,))], {"missing": 15})],
    ),
    "a result without ids of one output, and one with an id": (
        TWO_OUTPUTS,
        [([*events(), *halves(windows=())], {"missing": 8}), ([Fed(SECOND, ()), Fed(SECOND, None)], {}),
         ([Fed(SECOND, (2,))], {"missing": 7, "undecodable": 1})],
    ),
    "the first result of one output has other ids": (
        TWO_OUTPUTS,
        [([*events(), *halves(windows=()), Fed(OUT, (0,))], {"missing": 8, "duplicate": 1}),
         ([Fed(SECOND, (5000, 5001))], {"duplicate": 1}),
         ([Fed(SECOND, (2, 3))], {"missing": 6, "duplicate": 1, "unknown_id": 2})],
    ),
    "a late record does not count as a match": (
        TWO_INPUTS,
        [([*events(windows=(0,)), *events(OTHER, 500, windows=(0,)), Fed(OUT, (0, 1, 2, 3)), Fed(LATE, (500,)),
           Fed(IN, (999,), LAST * MINUTE_US), Fed(OTHER, (998,), LAST * MINUTE_US)], {}),
         ([Fed(OUT, (501,))], {"missing": 2})],
    ),
}  # fmt: skip
"""Settings, and steps: records, and what is confirmed once outstanding contributions are missing."""


@pytest.mark.parametrize("mode", some(MODES))
@pytest.mark.parametrize("name", PHASES)
def test_what_is_confirmed_is_retracted_when_a_doubt_begins_and_confirmed_when_it_ends(
    name: str, mode: str, tmp_path: Path
) -> None:
    chosen, steps = PHASES[name]
    run = run_of(tmp_path, None, *chosen, mode=mode)
    for records, expected in steps:
        half = len(records) // 2
        for part in (records[:half], records[half:]) if mode != "running" else (records,):
            run.feed(part)
            go_on(run, mode)
        shown = wait(run)
        assert confirmed(shown) == expected
        if not expected:
            assert set(shown.verdicts.values()) == {Verdict.UNKNOWN}
    assert suspected(run.shown()) or confirmed(run.shown())


def numbered(count: int, topic: str = IN, base: int = 0) -> list[Fed]:
    return [Fed(topic, (base + one,)) for one in range(count)]


def wrong(count: int, topic: str = OUT) -> list[Fed]:
    return [Fed(topic, tuple(range(50_000, 50_000 + count)))]


LIMITS: dict[str, tuple[tuple[str, ...], str, int, Callable[[int], list[Fed]]]] = {
    "results decode": ((), "undecodable", 99, lambda bad: [*numbered(1), Fed(OUT, (0,)), *[Fed(OUT, None)] * bad]),
    "events decode": ((), "missing", 198, lambda bad: [*numbered(1), CLOSING, *[Fed(IN, None)] * bad]),
    "ids match": ((), "unknown_id", 100, lambda bad: [*numbered(200), Fed(OUT, (0,)), *wrong(bad)]),
    "ids of one input match": (
        TWO_INPUTS,
        "unknown_id",
        100,
        lambda bad: [
            *numbered(200), *numbered(150, OTHER, 1000), Fed(OUT, tuple(range(200))), Fed(OUT, (1000,)), *wrong(bad)
        ],
    ),
    "ids of one output match": (
        TWO_OUTPUTS,
        "unknown_id",
        100,
        lambda bad: [*numbered(300), Fed(OUT, tuple(range(200))), Fed(SECOND, (200,)), *wrong(bad, SECOND)],
    ),
    "ids of late records match": (
        (),
        "unknown_id",
        99,
        lambda bad: [*numbered(200), Fed(OUT, tuple(range(50))), *numbered(1, LATE, 60), *numbered(bad, LATE, 5000)],
    ),
    "ids of rejected records match": (
        REJECTED,
        "unknown_id",
        99,
        lambda bad: [*numbered(200), Fed(OUT, tuple(range(50))), *numbered(1, DEAD, 60), *numbered(bad, DEAD, 5000)],
    ),
}  # fmt: skip
"""Settings, the class that is confirmed without doubt, and the most wrong records or ids that leave none beside one
that fits (the closing event is a second one)."""


@pytest.mark.parametrize("name", LIMITS)
def test_fewer_than_one_in_a_hundred_is_nearly_none(name: str, tmp_path: Path) -> None:
    chosen, violation, most, records = LIMITS[name]
    for count, is_doubted in ((most, False), (most + 1, True)):
        folder = tmp_path / str(count)
        folder.mkdir()
        run = run_of(folder, None, *chosen)
        run.feed(records(count))
        wait(run)
        shown = run.end()
        assert (violation in confirmed(shown)) is not is_doubted, (count, confirmed(shown))
        assert any("in doubt" in reason or f"{DEAD}" in reason for reason in shown.reasons) or not is_doubted


def test_a_pipeline_of_any_size_can_end_the_doubt(tmp_path: Path) -> None:
    """More wrong ids than events put nothing in doubt as soon as 1 in 100 of the events has a result."""
    run = run_of(tmp_path)
    run.feed([*numbered(100), Fed(OUT, (0,)), *wrong(1000)])
    wait(run)
    assert confirmed(run.end()) == {"unknown_id": 1000, "missing": 99}


@pytest.mark.parametrize("horizon", [False, True], ids=["all", "horizon"])
@pytest.mark.parametrize("topic", [OUT, LATE, SECOND])
def test_a_wrong_unit_of_times_is_doubted_also_if_the_state_has_a_horizon(
    topic: str, horizon: bool, tmp_path: Path
) -> None:
    """Seconds that are read as milliseconds are in 1970, before the horizon."""
    run = run_of(tmp_path, None, *(TWO_OUTPUTS if topic == SECOND else ()))
    began_us = 20_000 * 24 * 60 * MINUTE_US
    if horizon:
        begin_at(run, began_us + 1)
    for window in range(1, 6):
        time_us = began_us + window * MINUTE_US
        wrong_us = time_us // 1000 // MINUTE_US * MINUTE_US
        run.feed([Fed(IN, (one,), time_us) for one in ids(window)])
        fits = {OUT: 0, SECOND: 2, LATE: 3}[topic]
        first = [Fed(OUT, ids(window)[:fits], time_us)] if fits else []
        run.feed([*first, Fed(topic, ids(window)[fits:], wrong_us)], after_us=1_000_000)
    shown = wait(run)
    assert confirmed(shown) == {}
    assert shown.verdicts[Guarantee.EXACTLY_ONCE] is Verdict.UNKNOWN


def begin_at(run: FedRun, horizon_us: int) -> None:
    """As if the input's first records had expired: cells that start before are out of scope."""
    place, frontiers = PartitionId(IN, 0), run.runner.progress.frontiers
    cut = replace(frontiers[place], hidden_start=True, horizon_us=horizon_us)
    run.runner.progress = replace(run.runner.progress, frontiers={**frontiers, place: cut})


@pytest.mark.parametrize("topic", [OUT, SECOND])
@pytest.mark.parametrize("mode", MODES)
def test_an_id_in_a_cell_out_of_scope_ends_the_doubt_about_empty_lists(topic: str, mode: str, tmp_path: Path) -> None:
    """The engine answers the window at the horizon, writes a result without ids, and dies."""
    run = run_of(tmp_path, None, *(TWO_OUTPUTS if topic == SECOND else ()), mode=mode)
    begin_at(run, 1)
    run.feed([*events(), *([Fed(OUT, (0,))] if topic == SECOND else []), Fed(topic, (1,)), Fed(topic, (), MINUTE_US)])
    go_on(run, mode)
    shown = wait(run)
    assert shown.contributions["out_of_scope"] > 0
    assert confirmed(shown)["missing"] == shown.contributions["missing"] > 0


@pytest.mark.parametrize("at_once", [False, True])
def test_copies_of_another_output_confirm_nothing_although_a_few_results_match(at_once: bool, tmp_path: Path) -> None:
    """The field of the second topic is right in one of 150 windows, and has ids of the first topic in the others."""
    run, windows = run_of(tmp_path, None, *TWO_OUTPUTS), range(150)
    copies = [*results(SECOND, which=(2, 3), windows=(0,)), *results(SECOND, which=(0, 1), windows=windows[1:])]
    parts = [events(windows=windows), results(which=(0, 1), windows=windows), copies]
    for part in [list(itertools.chain(*parts))] if at_once else parts:
        run.feed(part)
    shown = wait(run)
    assert shown.contributions["duplicate"] == 2 * 149
    assert confirmed(shown) == {}
    assert set(shown.verdicts.values()) == {Verdict.UNKNOWN}


@pytest.mark.parametrize("foreign", [False, True])
def test_copies_that_are_read_before_their_originals_confirm_nothing(foreign: bool, tmp_path: Path) -> None:
    """In each window the second topic, whose field has ids of the first topic, is read before the first topic. The
    first topic has all results of the key b. ``foreign``: each list also has an id that no input has, which is
    confirmed until the first original is read. The first topic repeats one of its results three times."""
    run = run_of(tmp_path, None, *TWO_OUTPUTS, "guarantee=at_least_once", "timing.missing_after=2m")
    for number in range(8):
        window_us = number * MINUTE_US
        run.feed([Fed(IN, (one,), window_us) for one in ids(number)], after_us=58_000_000)
        run.feed([Fed(IN, (1000 + number,), window_us, "b"), Fed(OUT, (1000 + number,), window_us, "b")])
        copies = (*ids(number)[:2], *([5000 + number] if foreign else []))
        for one in (Fed(SECOND, copies, window_us), Fed(OUT, ids(number)[:2], window_us)):
            shown = run.feed([one], after_us=1_000_000)
            if not foreign or (number, one.topic) != (0, SECOND):
                assert shown.verdicts[Guarantee.AT_LEAST_ONCE] is not Verdict.FAIL, (number, confirmed(shown))
        if foreign and number == 1:
            run.feed([Fed(OUT, ids(number)[:2], window_us)] * 3)
    shown = run.end()
    assert shown.verdicts[Guarantee.AT_LEAST_ONCE] is Verdict.UNKNOWN
    assert not {"missing", "unknown_id", "misplaced"} & confirmed(shown).keys()


def test_a_duplicate_in_a_window_that_is_still_open_is_confirmed(tmp_path: Path) -> None:
    """Each topic adds ids to the window with every result, and the last result of the second topic repeats one."""
    run = run_of(tmp_path, None, *TWO_OUTPUTS)
    run.feed(numbered(8))
    for number in range(6):
        run.feed([Fed(OUT if number % 2 else SECOND, (number,))])
    run.feed([Fed(SECOND, (4,))])
    assert confirmed(run.feed([])) == {"duplicate": 1}


def test_repeated_results_of_another_output_leave_no_doubt_about_at_least_once(tmp_path: Path) -> None:
    """An instance that takes over writes its first results to the second topic: those that the first instance wrote
    last."""
    run = run_of(tmp_path, None, *TWO_OUTPUTS)
    run.feed([*events(), *results(), *results(SECOND, windows=(4,))])
    wait(run)
    shown = run.end()
    assert suspected(shown) == {"duplicate": 4}
    passed = {name for name, verdict in shown.verdicts.items() if verdict is Verdict.PASS}
    assert (passed, Verdict.FAIL in shown.verdicts.values()) == ({Guarantee.AT_LEAST_ONCE}, False)


def test_a_result_that_is_read_before_its_events_retracts_nothing(tmp_path: Path) -> None:
    """It may match: it is the only result of its topic so far."""
    run = run_of(tmp_path, None, *TWO_OUTPUTS)
    run.feed([*events(), *halves(windows=())])
    assert confirmed(wait(run)) == {"missing": 8}
    later = [*events(windows=(10,)), *results(SECOND, which=(2, 3), windows=(10,))]
    assert confirmed(run.feed(later, but=[IN])) == {"missing": 8}
    assert confirmed(run.feed([])) == {"missing": 8}
    assert confirmed(wait(run)) == {"missing": 10}


HOUR_US = 60 * MINUTE_US
RETAINED = ("state.retention=24h", "timing.missing_after=2m")


def retire(run: FedRun) -> None:
    """Let time pass until retention has dropped all closed cells."""
    through = run.runner.retired.through_epoch
    for _ in range(4):
        run.feed([], after_us=16 * HOUR_US)
    assert run.runner.retired.through_epoch > through
    assert not run.runner.judging.sums.cells_closed - run.runner.retired.sums.cells_closed


def closing(window: int, topic: str = IN) -> Fed:
    """An event that closes all earlier windows."""
    return Fed(topic, (90_000 + window,), window * MINUTE_US)


def answer(window: int) -> Fed:
    return Fed(OUT, (90_000 + window,), window * MINUTE_US)


Counts = Mapping[str, int]
RETIRED: dict[str, tuple[tuple[str, ...], list[Fed], Counts, list[Fed], Counts]] = {
    "no id matches": (
        (), [*events(), *results(base=1000)], {"missing": 20, "unknown_id": 20},
        [*numbered(30, IN, 500), Fed(OUT, tuple(range(500, 530)))], {},
    ),
    "no id of one output matches": (
        TWO_OUTPUTS, [*events(), *halves(1000)], {"missing": 10, "unknown_id": 10},
        [*events(windows=(30,)), *results(which=(0, 1), windows=(30,)), *results(SECOND, which=(2,), windows=(30,))],
        {"missing": 1},
    ),
    "no id of one input is in a result": (
        TWO_INPUTS, [*events(), *events(OTHER, 500), *results()], {"missing": 20},
        [*events(windows=(30,)), *events(OTHER, 500, windows=(30,)),
         Fed(OUT, (*ids(30), *ids(30, 500)[:3]), 30 * MINUTE_US)],
        {"missing": 1},
    ),
    "no id of a late record matches": (
        (), [*events(), *results(which=(0, 1)), *aside(LATE, 1000, (2, 3))], {"missing": 10, "unknown_id": 10},
        [*events(windows=(30,)), *results(which=(0, 1), windows=(30,)), Fed(LATE, (302,), 30 * MINUTE_US)],
        {"missing": 1},
    ),
    "no result has an id": (
        (), [*events(), *empty()], {"missing": 20}, [*events(windows=(30,)), *results(windows=(30,))], {},
    ),
}  # fmt: skip
"""Settings, records, what is suspected when their cells are retired, records that end the doubt, what they prove."""


@pytest.mark.parametrize("mode", ["running", "restarted"])
@pytest.mark.parametrize("name", RETIRED)
def test_violations_of_cells_retired_in_doubt_are_never_confirmed(name: str, mode: str, tmp_path: Path) -> None:
    chosen, before, held, after, proven = RETIRED[name]
    run = run_of(tmp_path, None, *RETAINED, *chosen)
    others = [OTHER] if OTHER in run.sides else []
    run.feed([*before, closing(20), *(closing(21, topic) for topic in others)])
    shown = wait(run)
    assert (confirmed(shown), suspected(shown)) == ({}, held)
    retire(run)
    go_on(run, mode)
    answers = [answer(20), *(answer(21) for _ in others)]
    run.feed([*answers, *after, closing(LAST), *(closing(LAST + 1, topic) for topic in others)])
    shown = wait(run)
    assert (confirmed(shown), suspected(shown)) == (proven, held)
    assert Verdict.PASS not in (one[Guarantee.EXACTLY_ONCE] for one in (shown.verdicts, shown.verdicts_over["24h"]))
    for violation in () if proven else held:
        assert any(f"of class {violation}" in reason and "state.retention" in reason for reason in shown.reasons)


@pytest.mark.parametrize("mode", ["running", "restarted"])
def test_excess_beyond_hidden_records_is_confirmed_after_its_cells_are_retired(mode: str, tmp_path: Path) -> None:
    """More repeats than hidden inputs are a proof, even if it is unknown which are explained (SEMANTICS 4.18)."""
    run = run_of(tmp_path, None, *RETAINED)
    run.feed([Fed(IN, None), *numbered(2), Fed(OUT, (0, 0, 1)), closing(20)])
    assert (confirmed(wait(run)), suspected(run.shown())) == ({}, {"duplicate": 1})
    retire(run)
    go_on(run, mode)
    run.feed([answer(20), Fed(IN, (7,), 30 * MINUTE_US), Fed(OUT, (7, 7), 30 * MINUTE_US)])
    assert confirmed(wait(run)) == {"duplicate": 2}
    assert suspected(run.shown()) == {}
    run.feed([Fed(OUT, (1,))])
    go_on(run, mode)
    assert confirmed(wait(run)) == {"duplicate": 2}, "a record of a retired cell changes nothing"
    assert run.runner.record.retracted_total == {}


def test_violations_of_cells_that_are_retired_while_a_topic_is_absent_are_never_confirmed(tmp_path: Path) -> None:
    run = run_of(tmp_path, None, *RETAINED)
    del run.logs.ends[LATE]
    run.restart()
    run.feed([*events(), *results(which=(0, 1, 2)), closing(20)])
    assert (confirmed(wait(run)), suspected(run.shown())) == ({}, {"missing": 5})
    retire(run)
    run.logs.ends[LATE] = 0
    run.restart()
    run.feed([answer(20), *events(windows=(30,)), *results(which=(0, 1), windows=(30,)), closing(LAST)])
    assert (confirmed(wait(run)), suspected(run.shown())) == ({"missing": 2}, {"missing": 5})


CORRECTED = {
    SECOND: (TWO_OUTPUTS, "outputs.1.fields.key=site", results(SECOND, which=(2, 3))),
    LATE: ((), "late.0.fields.id=number", aside(LATE, which=(2, 3))),
    DEAD: (REJECTED, "rejected.0.fields.id=number", aside(DEAD, which=(2, 3))),
}


@pytest.mark.parametrize("topic", CORRECTED)
def test_records_read_again_with_corrected_fields_confirm_nothing_of_retired_cells(topic: str, tmp_path: Path) -> None:
    """One loss is confirmed before the first record of the topic, which does not decode. Later losses are not."""
    chosen, setting, decoded = CORRECTED[topic]
    run = run_of(tmp_path, None, *RETAINED, *chosen)
    run.correct()
    run.feed([*events(windows=(0,)), *results(which=(0, 1, 2), windows=(0,)), closing(10)])
    assert confirmed(wait(run)) == {"missing": 1}
    run.feed([answer(10), *events(windows=(11,)), *results(which=(0, 1), windows=(11,)), closing(20)])
    run.feed([Fed(topic, None)] * len(decoded))
    shown = wait(run)
    assert (confirmed(shown), suspected(shown)["missing"]) == ({"missing": 1}, 2)
    retire(run)
    assert run.correct(setting, topic, decoded) == (topic,)
    run.feed([answer(20), *events(windows=(30,)), *results(which=(0, 1), windows=(30,)), closing(LAST)])
    run.feed([Fed(topic, ids(30, which=(2,)), 30 * MINUTE_US)])
    shown = wait(run)
    assert (confirmed(shown), suspected(shown)) == ({"missing": 2}, {"missing": 2})


def test_a_silent_input_is_not_forgotten_when_its_cells_are_retired(tmp_path: Path) -> None:
    """One input fits and falls silent. The ids of the other input are wrong: it stays in doubt even when it is the only
    one left."""
    run = run_of(tmp_path, None, *RETAINED, *TWO_INPUTS)
    for hour in range(0, 96, 6):
        at_us = hour * HOUR_US
        fits = [Fed(OTHER, (500 + hour,), at_us), Fed(OUT, (500 + hour,), at_us)] if hour < 18 else []
        others = [Fed(IN, (hour,), at_us), Fed(OUT, (1_000 + hour,), at_us)] if hour >= 12 else []
        shown = run.feed([*fits, *others], after_us=6 * HOUR_US)
        if hour == 72:
            assert run.runner.retired.through_epoch >= 0
            run.restart()
    assert confirmed(shown) == {}
    assert set(shown.verdicts.values()) == {Verdict.UNKNOWN}


def test_undecodable_events_that_operators_settled_count_for_no_doubt(tmp_path: Path) -> None:
    """Two of 202 records decode. Without two settled records, that is 1 in 100."""
    run = run_of(tmp_path)
    run.feed([*numbered(1), closing(10), *[Fed(IN, None)] * 200])
    assert confirmed(wait(run)) == {}
    run.runner.acknowledged = lambda: [Settlement(PartitionId(IN, 0), (Stretch(2, 3, 2),), "a probe", 10**9)]
    shown = wait(run)
    assert confirmed(shown) == {"missing": 1}
    assert not any("in doubt" in reason for reason in shown.reasons)
