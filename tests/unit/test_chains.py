"""Workloads of several stages: what the stages compute together, and how the sidecar judges each of them."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Final, NamedTuple

import pytest

from generator.workloads.kinds import built, named
from testbed.demo.stages import left_open
from testbed.engines.core import LateEvent, Result
from testbed.engines.mutations import AppliedMutation, EmittedResult, Mutation, Rates, mutate
from testbed.run_files import Topics
from tests.unit.pipeline_shapes import log
from tests.unit.workload_shapes import WINDOW_MS, Logs, events_of, load_of, logged, reported, written
from tests.workload_count import deviations, epoch_ms, event_of, wrong_pairs
from validator.codecs.one_record import Record
from validator.model.classes import Verdict

pytestmark = pytest.mark.unit

CHAINS: Final = ("nexmark_q4", "nexmark_q5_max", "traffic_changes")
STAGES: Final = [(chain, number) for chain in CHAINS for number in range(len(named(chain).stages))]
LONGER: Final = {"nexmark_q4": 3_000}
OF_IDS: Final = {Mutation.DROP: 0.03, Mutation.DUPLICATE: 0.03, Mutation.INVENT: 0.03, Mutation.DROP_CELL: 0.05}
OF_PAIRS: Final = {Mutation.DROP_CELL: 0.05, Mutation.DUPLICATE_RESULT: 0.05}
"""A mutation of one id of a pair makes its other id wrong, too."""
OF_VALUES: Final = {Mutation.DROP: 0.03, Mutation.DUPLICATE: 0.03}
"""An added id may hide a lost one."""


class Kept(NamedTuple):
    """A record of a topic in memory."""

    record: Record

    def key(self) -> bytes:
        return bytes(self.record.key or b"")

    def value(self) -> bytes:
        return bytes(self.record.value or b"")


def test_every_chain_has_its_test() -> None:
    follow = {one.follows.kind for one in built().values() if one.follows is not None}
    assert {kind for kind, one in built().items() if one.follows is not None} - follow == set(CHAINS)


def of_stages(chain: str, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Topics, Logs, Logs]]:
    """The topics of each stage, its events and its results, of an engine without errors."""
    load = load_of(named(chain)) | {"flush_windows": False}
    if chain in LONGER:
        load["limit"] = {"events": LONGER[chain]}
    inputs: Logs = events_of(load, monkeypatch)
    found = []
    for topics in Topics(named(chain)).stages:
        results = {topics.output: logged(written(topics, inputs), topics.output)}
        found.append((topics, inputs, results))
        inputs = results
    return found


@pytest.mark.parametrize(("chain", "number"), STAGES)
def test_each_stage_is_judged_by_itself(
    chain: str, number: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stages = of_stages(chain, monkeypatch)
    topics, inputs, results = stages[number]
    of = topics.workload
    shown, found = reported(topics, {**inputs, **results}, tmp_path / "honest")
    assert (shown.verdicts[shown.guarantee], found) == (Verdict.PASS, {}), shown.reasons
    assert shown.contributions["processed"] == shown.contributions["expected"] > 50

    applied: list[AppliedMutation] = []

    def dishonest(answers: Sequence[Result | LateEvent]) -> Iterable[EmittedResult | LateEvent]:
        outcome = mutate(answers, Rates(damage), 11, operator=topics.engine("b:1", WINDOW_MS).operator)
        applied.extend(outcome.applied)
        return outcome.emissions

    is_pair = of.operator(WINDOW_MS).get("operator") == "interval"
    damage = OF_PAIRS if is_pair else OF_IDS if of.has_ids else OF_VALUES
    broken = {topics.output: logged(written(topics, inputs, dishonest), topics.output)}
    shown, found = reported(topics, {**inputs, **broken}, tmp_path / "mutant")
    streams = [
        [event_of(stream, bytes(record.value or b"")) for record in inputs[topic]]
        for stream, topic in zip(of.streams, topics.inputs, strict=True)
    ]
    if is_pair:
        due = wrong_pairs(of, streams, (bytes(record.value or b"") for record in broken[topics.output]), WINDOW_MS)
    elif not of.has_ids:
        due = Counter(deviations(of, streams[0], map(Kept, broken[topics.output]), WINDOW_MS))
    else:
        due = Counter()
        for deed in applied:
            assert deed.violation_class is not None
            due[deed.violation_class, (deed.window_start_ms, deed.key[0])] += deed.count
    assert {"missing", "duplicate"} <= {name for name, _ in due}
    assert found == due
    assert shown.verdicts[shown.guarantee] is Verdict.FAIL

    # The next stage computes rightly from wrong events.
    if number + 1 < len(stages):
        after = stages[number + 1][0]
        # A result that lost all of its ids lacks the fields of its events, too.
        read = [record for record in broken[topics.output] if b'Ids":[]' not in (record.value or b"")]
        its = logged(written(after, {topics.output: read}), after.output)
        shown, found = reported(after, {topics.output: log(read), after.output: its}, tmp_path / "after")
        assert (shown.verdicts[shown.guarantee], found) == (Verdict.PASS, {}), shown.reasons


@pytest.mark.parametrize("kind", ["traffic_lanes", "traffic_changes", "nexmark_q4_winners", "nexmark_q5_max"])
def test_a_late_event_of_a_stage_is_judged(kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    topics, inputs, _ = of_stages(kind, monkeypatch)[-1]
    [(topic, records)] = inputs.items()
    behind = {topic: log([*records[1:], records[0]])}
    outputs = written(topics, behind)
    [late] = [logged(outputs, name) for name in topics.late]
    results = {topics.output: logged(outputs, topics.output)}
    assert len(late) == 1
    shown, found = reported(topics, {**behind, **results, topics.late[0]: late}, tmp_path / "told")
    assert (shown.verdicts[shown.guarantee], found) == (Verdict.PASS, {}), shown.reasons
    counts = shown.contributions
    assert counts["late"] > 0
    assert counts["processed"] + counts["late"] == counts["expected"]
    shown, found = reported(topics, {**behind, **results, topics.late[0]: []}, tmp_path / "untold")
    assert {name for name, _ in found} == {"missing"}
    assert sum(found.values()) == counts["late"]


@pytest.mark.parametrize(
    ("kind", "least", "most"),
    [
        ("traffic_lanes", 1, 2),  # the newest window, and that of a partition whose newest event is a window older
        ("traffic_changes", 3 + 2 + 1, 3 + 3 + 2 + 1),
        ("nexmark_q4_winners", 2, 3),
    ],
)
def test_windows_that_no_later_event_closes_stay_open(kind: str, least: int, most: int) -> None:
    operator = named(kind).operator(WINDOW_MS)
    times_ms = [number * WINDOW_MS for number in range(40)]
    assert least <= left_open(times_ms, operator, WINDOW_MS) <= most
    assert left_open([], operator, WINDOW_MS) == 0


def values_of(records: Iterable[Record]) -> list[dict[str, Any]]:
    return [json.loads(bytes(record.value or b"")) for record in records]


def test_query_5_has_the_largest_number_of_bids(monkeypatch: pytest.MonkeyPatch) -> None:
    (_, inputs, _), (_, _, results) = of_stages("nexmark_q5_max", monkeypatch)
    bids: dict[int, Counter[int]] = defaultdict(Counter)
    slide_ms = WINDOW_MS // 2
    for bid in values_of(inputs["bid"]):
        first = bid["dateTime"] // slide_ms * slide_ms
        for start in (first, first - slide_ms):
            bids[start][bid["auction"]] += 1
    found = {epoch_ms(one["windowStart"]): one for one in values_of(results["output"])}
    assert {start: one["bids"] for start, one in found.items()} == {
        start: max(of.values()) for start, of in bids.items()
    }
    assert {start: len(one["bidCountIds"]) for start, one in found.items()} == {
        start: len(of) for start, of in bids.items()
    }


def test_query_4_has_the_average_of_the_winning_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    (_, inputs, _), _, (_, _, results) = of_stages("nexmark_q4", monkeypatch)
    winning: dict[int, list[int]] = defaultdict(list)
    for auction in values_of(inputs["auction"]):
        prices = [
            bid["price"]
            for bid in values_of(inputs["bid"])
            if bid["auction"] == auction["id"] and auction["dateTime"] <= bid["dateTime"] <= auction["expires"]
        ]
        if prices:
            winning[auction["category"]].append(max(prices))
    newest = {one["category"]: (one["auctions"], one["price"]) for one in values_of(results["output"])}
    assert newest == {str(category): (len(of), pytest.approx(fmean(of))) for category, of in winning.items()}


def test_38_observations_a_second_become_12_results(monkeypatch: pytest.MonkeyPatch) -> None:
    load = {
        "workload": "traffic_join", "window": "1s", "keys": {"pages": 38}, "events_per_window": 1,
        "limit": {"events": 380}, "seed": 7,
    }  # fmt: skip
    first, last = Topics(named("traffic_lanes")).stages
    inputs = events_of(load, monkeypatch)
    assert [len(inputs[topic]) for topic in first.inputs] == [190, 190]
    pairs = logged(written(first, inputs, window_ms=1_000), first.output)
    results = values_of(logged(written(last, {first.output: pairs}, window_ms=1_000), last.output))
    assert len(pairs) == 190
    assert Counter(epoch_ms(one["windowStart"]) for one in results) == dict.fromkeys(range(0, 10_000, 1_000), 12)
    of_lanes = [
        {(one["measurementId"], one["timestamp"], one["internalId"]): one[name] for one in values_of(inputs[name])}
        for name in first.inputs
    ]
    for one in results:
        place = one["measurementId"], epoch_ms(one["windowStart"])
        flows, speeds = ([value for lane, value in of.items() if lane[:2] == place] for of in of_lanes)
        assert (one["lanes"], one["flow"]) == (len(flows), sum(flows))
        assert one["speed"] == pytest.approx(fmean(speeds))
    assert {len(one["laneIds"]) for one in results} == {1, 2}


def test_flow_and_speed_change_from_second_to_second(monkeypatch: pytest.MonkeyPatch) -> None:
    *_, (_, inputs, results) = of_stages("traffic_changes", monkeypatch)
    points = {(one["measurementId"], epoch_ms(one["windowStart"])): one for one in values_of(inputs["point"])}
    found = values_of(results["output"])
    for one in found:
        now, one_before, two_before = (
            points.get((one["measurementId"], epoch_ms(one["windowEnd"]) - back * WINDOW_MS)) for back in (1, 2, 3)
        )
        for name, then, changed in (
            (name, then, f"{name}Change{back}")
            for name in ("flow", "speed")
            for back, then in ((1, one_before), (2, two_before))
        ):
            known = now and then and then[name]
            assert one[changed] == (pytest.approx((now[name] - then[name]) / then[name]) if known else None)
    assert sum(one["flowChange2"] is not None for one in found) > 50
