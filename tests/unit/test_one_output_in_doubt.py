"""If the configuration of one of several outputs fits none of its results, a correct engine has no confirmed violation
(SEMANTICS 4.23)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit import test_retired_in_doubt
from tests.unit.fed_run import Fed, FedRun
from tests.unit.memory_tables import MemoryTables
from tests.unit.reconcile_rows import MINUTE_US, fact, facts
from tests.unit.test_retired_in_doubt import SIDES, Run, result, standing
from tests.unit.test_retired_in_doubt import events as read
from tests.unit.test_settled_worlds import World, WorldRun
from tests.unit.test_wrong_configuration import IN, OUT, batches, confirmed, events, orders, played
from validator.core.judging import new_cells
from validator.core.totals import CellTotals
from validator.model.classes import Guarantee, Verdict
from validator.model.configuration_doubt import (
    TopicCounts,
    outputs_in_doubt,
    suspected,
    unmatched_outputs,
    withdrawn,
)
from validator.model.frontier import Frontier, PartitionId
from validator.model.progress import IngestProgress, TimeRules
from validator.oracles.running_aggregate import RunningAggregate
from validator.oracles.seam import Reads
from validator.oracles.session_window import SessionWindow
from validator.oracles.tumbling_window import TumblingWindow

SECOND = "second"
TWO_OUTPUTS = (f"outputs.1={{topic: {SECOND}, fields: {{key: page, window_start: windowStart, ids: [clickIds]}}}}",)
WINDOWS, HALF = 5, 2
OF_CELLS = {"missing", "duplicate", "misplaced", "unknown_id"}
NOTHING = IngestProgress(TimeRules(0, 0))


def halves(shift: int = 0, *, window: int = 0, windows: Sequence[int] = range(WINDOWS)) -> list[Fed]:
    """A correct engine's results: each topic has half of the ids of each window. The ids of the second topic are read
    ``shift`` off, and its windows ``window`` minutes later. ``windows``: those with a result in the second topic."""
    found = []
    for number in range(WINDOWS):
        first, second = (tuple(10 * number + i for i in ids) for ids in ((0, 1), (2, 3)))
        found.append(Fed(OUT, first, number * MINUTE_US))
        if number in windows:
            found.append(Fed(SECOND, tuple(shift + one for one in second), (number + window) * MINUTE_US))
    return found


WRONG = {
    "other ids": halves(1000),
    "other windows": halves(window=100),
    "windows of other events": halves(window=1),
}
COPIES = halves(-2)
"""The ids of the second topic are read as those that the first topic has."""


@pytest.mark.parametrize("wrong", WRONG)
@settings(max_examples=5, deadline=None)
@given(st.data(), st.booleans())
def test_nothing_is_confirmed_while_no_result_of_one_output_matches(
    wrong: str, data: st.DataObject, restarts: bool
) -> None:
    parts = data.draw(orders(st.just(WRONG[wrong])))
    shown = played(parts, restarts=restarts, configured=TWO_OUTPUTS)
    assert [confirmed(one) for one in shown] == [{}] * len(shown)
    assert all(one.confirmed_total == {} for one in shown)
    last = shown[-1]
    assert set(last.verdicts.values()) == {Verdict.UNKNOWN}
    [reason] = [reason for reason in last.reasons if "is in doubt" in reason]
    assert f"topic {SECOND} is in doubt: none of 10 ids" in reason
    assert "outputs[1].fields" in reason
    assert f"every result of {SECOND} is wrong or repeated" in reason


@settings(max_examples=6, deadline=None)
@given(orders(st.just(COPIES)), st.booleans())
def test_ids_that_both_outputs_carry_match_for_none(parts: list[Sequence[Fed]], restarts: bool) -> None:
    """The topic that is read first matches until the other one is read. What is confirmed meanwhile is retracted."""
    last = played(parts, restarts=restarts, configured=TWO_OUTPUTS)[-1]
    assert confirmed(last) == {}
    assert last.violations["suspected"] | {"missing": 10, "duplicate": 10} == last.violations["suspected"]
    assert set(last.verdicts.values()) == {Verdict.UNKNOWN}
    for topic in (OUT, SECOND):
        assert any(f"topic {topic} is in doubt: none of 10 ids" in reason for reason in last.reasons)


@settings(max_examples=6, deadline=None)
@given(orders(st.just([*halves(windows=(0, 1, 2)), Fed(OUT, (0,)), Fed(SECOND, (777,))])), st.booleans())
def test_one_match_of_each_output_confirms_violations(parts: list[Sequence[Fed]], restarts: bool) -> None:
    shown = played(parts, restarts=restarts, configured=TWO_OUTPUTS)
    assert confirmed(shown[-1]) == {"missing": 2 * HALF, "duplicate": 1, "unknown_id": 1}
    assert not any("in doubt" in reason for reason in shown[-1].reasons)


@pytest.mark.parametrize("cuts", [[], [40, 1201, 1500]])
def test_copies_of_another_output_confirm_nothing_although_a_few_results_match(cuts: list[int], tmp_path: Path) -> None:
    """The field of the second topic is right in one of 300 windows, and has ids of the first topic in the others."""
    run, windows = FedRun(tmp_path, TWO_OUTPUTS), 300
    ids = [tuple(10 * number + i for i in range(4)) for number in range(windows)]
    records = [
        *(Fed(IN, (one,), number * MINUTE_US) for number, each in enumerate(ids) for one in each),
        *(Fed(OUT, each[:2], number * MINUTE_US) for number, each in enumerate(ids)),
        *(Fed(SECOND, each[2:] if number == 0 else each[:2], number * MINUTE_US) for number, each in enumerate(ids)),
    ]
    for part in batches(records, cuts):
        run.feed(part)
    run.feed([], after_us=3 * MINUTE_US)
    shown = run.feed([], after_us=3 * MINUTE_US)
    assert shown.contributions["duplicate"] == 2 * (windows - 1)
    assert confirmed(shown) == {}
    assert set(shown.verdicts.values()) == {Verdict.UNKNOWN}


@pytest.mark.parametrize("foreign", [False, True])
def test_copies_that_are_read_before_their_originals_confirm_nothing(foreign: bool, tmp_path: Path) -> None:
    """In each window the second topic, whose field has ids of the first topic, is read before the first topic. The
    first topic has all results of the key b. ``foreign``: each list also has an id that no input has, which is
    confirmed until the first original is read. The first topic repeats one of its results three times."""
    run = FedRun(tmp_path, (*TWO_OUTPUTS, "guarantee=at_least_once", "timing.missing_after=2m"))
    for number in range(8):
        ids, window_us = [10 * number + i for i in range(4)], number * MINUTE_US
        run.feed([Fed(IN, (one,), window_us) for one in ids], after_us=58_000_000)
        run.feed([Fed(IN, (1000 + number,), window_us, "b"), Fed(OUT, (1000 + number,), window_us, "b")])
        copies = (*ids[:2], 5000 + number) if foreign else tuple(ids[:2])
        for one in (Fed(SECOND, copies, window_us), Fed(OUT, tuple(ids[:2]), window_us)):
            shown = run.feed([one], after_us=1_000_000)
            if not foreign or (number, one.topic) != (0, SECOND):
                assert shown.verdicts[Guarantee.AT_LEAST_ONCE] is not Verdict.FAIL, (number, confirmed(shown))
        if foreign and number == 1:
            run.feed([Fed(OUT, tuple(ids[:2]), window_us)] * 3)
    shown = run.end()
    assert shown.verdicts[Guarantee.AT_LEAST_ONCE] is Verdict.UNKNOWN
    assert not {"missing", "unknown_id", "misplaced"} & confirmed(shown).keys()


@pytest.mark.parametrize("cuts", [[], [1, 2, 3, 4, 5, 6]])
def test_a_duplicate_in_a_window_that_is_still_open_is_confirmed(cuts: list[int], tmp_path: Path) -> None:
    """Each topic adds ids to the window with every result, and the last result of the second topic repeats one."""
    run = FedRun(tmp_path, TWO_OUTPUTS)
    records = [Fed(IN, (number,)) for number in range(8)]
    run.feed(records)
    written = [Fed(OUT if number % 2 else SECOND, (number,)) for number in range(6)]
    for part in batches([*written, Fed(SECOND, (4,))], cuts):
        shown = run.feed(part)
    assert confirmed(run.feed([])) == {"duplicate": 1}
    assert shown.verdicts[Guarantee.EXACTLY_ONCE] is not Verdict.PASS


def test_an_output_all_of_whose_cells_have_a_duplicate_is_not_in_doubt(tmp_path: Path) -> None:
    run = FedRun(tmp_path, TWO_OUTPUTS)
    found = [one for one in halves() if one.topic == SECOND]
    shown = run.feed([*events(), *halves(), *found])
    assert confirmed(shown) == {"duplicate": WINDOWS * HALF}
    assert shown.verdicts[Guarantee.EXACTLY_ONCE] is Verdict.FAIL


def test_repeated_results_of_another_output_leave_no_doubt_about_at_least_once(tmp_path: Path) -> None:
    """An instance that takes over writes its first results to the second topic: those that the first instance wrote
    last."""
    run = FedRun(tmp_path, TWO_OUTPUTS)
    answered = [Fed(OUT, tuple(10 * number + i for i in range(4)), number * MINUTE_US) for number in range(WINDOWS)]
    run.feed([*events(), *answered, replace(answered[-1], topic=SECOND)])
    run.feed([], after_us=3 * MINUTE_US)
    shown = run.end()
    assert shown.violations["suspected"]["duplicate"] == 4
    assert shown.verdicts == {
        Guarantee.AT_MOST_ONCE: Verdict.UNKNOWN,
        Guarantee.AT_LEAST_ONCE: Verdict.PASS,
        Guarantee.EXACTLY_ONCE: Verdict.UNKNOWN,
    }


def test_an_output_without_results_is_not_in_doubt() -> None:
    shown = played([[*events(), *halves(windows=())]], configured=TWO_OUTPUTS)
    assert confirmed(shown[-1]) == {"missing": WINDOWS * HALF}


def test_undecodable_results_of_the_output_in_doubt_are_suspected() -> None:
    wrong = [*events(), *halves(1000), Fed(SECOND, None)]
    assert confirmed(played([wrong], configured=TWO_OUTPUTS)[-1]) == {}
    assert confirmed(played([[*wrong, Fed(OUT, None)]], configured=TWO_OUTPUTS)[-1]) == {"undecodable": 1}


@pytest.mark.parametrize("restarts", [False, True])
def test_undecodable_results_that_were_confirmed_before_the_doubt_are_retracted(restarts: bool, tmp_path: Path) -> None:
    """The first id of the second topic matches by chance."""

    def later(*records: Fed) -> dict[str, int]:
        run.feed(records)
        run.feed([], after_us=3 * MINUTE_US)
        return confirmed(run.feed([], after_us=3 * MINUTE_US))

    run = FedRun(tmp_path, TWO_OUTPUTS)
    lost = HALF * (WINDOWS - 1) + 100
    more = [Fed(IN, (1000 + number,)) for number in range(100)]
    first = [*events(), *more, *halves(windows=()), Fed(SECOND, (2,)), Fed(SECOND, None), Fed(OUT, None)]
    assert later(*first) == {"undecodable": 2, "missing": lost - 1}
    if restarts:
        run.restart()
    assert later(Fed(SECOND, tuple(range(5000, 5120)))) == {"undecodable": 1}
    assert later(Fed(SECOND, (3,))) == {"undecodable": 2, "unknown_id": 120, "missing": lost - HALF}


WITHOUT_IDS = [
    replace(one, ids=()) if one.topic == SECOND and one.ids is not None else one
    for one in (*halves(), Fed(SECOND, None))
]
"""Results of a correct engine. In the second topic the list of ids is always empty; in the last result it is absent."""


@pytest.mark.parametrize(("cuts", "restarts"), [([], False), ([20], True), ([13, 20, 22, 23, 30], False)])
def test_an_output_whose_lists_of_ids_are_all_empty_is_in_doubt(cuts: list[int], restarts: bool) -> None:
    shown = played(batches([*events(), *WITHOUT_IDS], cuts), restarts=restarts, configured=TWO_OUTPUTS)
    assert [confirmed(one) for one in shown] == [{}] * len(shown)
    last = shown[-1]
    assert last.violations["suspected"] | {"missing": WINDOWS * HALF, "undecodable": 1} == last.violations["suspected"]
    assert set(last.verdicts.values()) == {Verdict.UNKNOWN}
    [reason] = [reason for reason in last.reasons if "is in doubt" in reason]
    assert f"topic {SECOND} is in doubt: none of its {WINDOWS} results has an id: outputs[1].fields.ids" in reason


@pytest.mark.parametrize("restarts", [False, True])
def test_losses_are_retracted_by_the_first_result_without_ids_and_confirmed_by_the_first_id(
    restarts: bool, tmp_path: Path
) -> None:
    run = FedRun(tmp_path, TWO_OUTPUTS)
    lost = HALF * (WINDOWS - 1)
    run.feed([*events(), *halves(windows=())])
    run.feed([], after_us=3 * MINUTE_US)
    assert confirmed(run.feed([], after_us=3 * MINUTE_US)) == {"missing": lost}
    run.feed([Fed(SECOND, ())])
    if restarts:
        run.restart()
    shown = run.feed([])
    assert (confirmed(shown), shown.contributions["missing"]) == ({}, lost)
    run.feed([Fed(SECOND, (2,))])
    if restarts:
        run.restart()
    assert confirmed(run.feed([])) == {"missing": lost - 1}


@pytest.mark.parametrize("configured", [(), TWO_OUTPUTS], ids=["one output", "two outputs"])
@pytest.mark.parametrize("restarts", [False, True])
def test_an_id_in_a_cell_out_of_scope_ends_the_doubt_about_empty_lists(
    configured: tuple[str, ...], restarts: bool, tmp_path: Path
) -> None:
    """The engine answers the window at the horizon, writes a result without ids, and dies."""
    run = FedRun(tmp_path, configured)
    place, frontiers = PartitionId(IN, 0), run.runner.progress.frontiers
    cut = replace(frontiers[place], hidden_start=True, horizon_us=1)
    run.runner.progress = replace(run.runner.progress, frontiers={**frontiers, place: cut})
    topic = SECOND if configured else OUT
    run.feed([*events(), *(Fed(OUT, (0,)) for _ in configured), Fed(topic, (1,)), Fed(topic, (), MINUTE_US)])
    if restarts:
        run.restart()
    run.feed([], after_us=3 * MINUTE_US)
    shown = run.feed([], after_us=3 * MINUTE_US)
    assert shown.contributions["out_of_scope"] > 0
    assert confirmed(shown)["missing"] == shown.contributions["missing"] > 0


@pytest.mark.parametrize(("cuts", "restarts"), [([], False), ([3], True), ([1, 2, 40], False)])
def test_a_few_matches_by_chance_prove_nothing_in_the_end(cuts: list[int], restarts: bool) -> None:
    """Of the second topic's ids only the first one matches."""
    groups = [tuple(range(5 * number, 5 * number + 5)) for number in range(41)]
    read = [Fed(IN, (base + one,)) for group in groups for one in group for base in (0, 1000)]
    read.append(Fed(IN, (999_999,), 2 * MINUTE_US))
    written = [Fed(SECOND, (1000,)), *(Fed(OUT, group) for group in groups)]
    written += [Fed(SECOND, tuple(5000 + one for one in group)) for group in groups]
    last = played([read, *batches(written, cuts)], restarts=restarts, configured=TWO_OUTPUTS)[-1]
    assert confirmed(last) == {}
    assert set(last.verdicts.values()) == {Verdict.UNKNOWN}
    assert last.violations["suspected"]["unknown_id"] == 205


@pytest.mark.parametrize("restarts", [False, True])
def test_losses_that_were_confirmed_before_the_first_result_of_a_topic_are_retracted(
    restarts: bool, tmp_path: Path
) -> None:
    """Excess that was confirmed before stays confirmed: the topic had no result that could explain it."""
    run = FedRun(tmp_path, TWO_OUTPUTS)
    run.feed([*events(), *halves(windows=()), Fed(OUT, (0,))])
    run.feed([], after_us=3 * MINUTE_US)
    lost = HALF * (WINDOWS - 1)
    assert confirmed(run.feed([], after_us=3 * MINUTE_US)) == {"missing": lost, "duplicate": 1}
    run.feed([Fed(SECOND, (5000, 5001))])
    if restarts:
        run.restart()
    shown = run.feed([])
    assert confirmed(shown) == {"duplicate": 1}
    assert shown.contributions["missing"] == lost
    shown = run.feed([Fed(SECOND, (2, 3))])
    assert confirmed(shown) == {"missing": lost - HALF, "duplicate": 1, "unknown_id": 2}


@pytest.mark.parametrize("horizon", [False, True], ids=["all", "horizon"])
def test_a_wrong_unit_of_times_is_doubted_also_if_the_state_has_a_horizon(horizon: bool, tmp_path: Path) -> None:
    """Seconds that are read as milliseconds are in 1970, before the horizon."""
    run = FedRun(tmp_path, TWO_OUTPUTS)
    began_us = 20_000 * 24 * 60 * MINUTE_US
    if horizon:
        place, frontiers = PartitionId(IN, 0), run.runner.progress.frontiers
        cut = replace(frontiers[place], hidden_start=True, horizon_us=began_us + 1)
        run.runner.progress = replace(run.runner.progress, frontiers={**frontiers, place: cut})
    for window in range(1, WINDOWS + 1):
        time_us, ids = began_us + window * MINUTE_US, tuple(10 * window + number for number in range(4))
        run.feed([Fed(IN, (one,), time_us) for one in ids])
        wrong_us = time_us // 1000 // MINUTE_US * MINUTE_US
        run.feed([Fed(OUT, ids[:2], time_us), Fed(SECOND, ids[2:], wrong_us)], after_us=1_000_000)
    run.feed([], after_us=3 * MINUTE_US)
    shown = run.feed([], after_us=3 * MINUTE_US)
    assert confirmed(shown) == {}
    assert shown.violations["suspected"]["missing"] == HALF * (WINDOWS - 1)
    assert shown.verdicts[Guarantee.EXACTLY_ONCE] is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("second", "beside", "held"),
    [
        (TopicCounts(), 5, False),
        (TopicCounts(read=1), 0, True),
        (TopicCounts(read=9, undecided=9), 0, True),
        (TopicCounts(read=9, matched=1), 8, False),
        (TopicCounts(read=101, matched=1), 100, False),
        (TopicCounts(read=101, matched=1), 101, True),
        (TopicCounts(read=100, matched=1), 101, False),
        (TopicCounts(read=900, matched=9), 901, False),
    ],
)
def test_an_output_of_which_nearly_nothing_matches_is_in_doubt(second: TopicCounts, beside: int, held: bool) -> None:
    outputs = {"first": TopicCounts(read=900, matched=900), "second": second}
    counts = {"expected": 2000, "unknown_id": beside}
    seen = counts, 900 + second.matched, 900 + second.read
    assert unmatched_outputs(outputs, *seen) == (("second",) if held else ())
    assert suspected(NOTHING, *seen, copies_explain=False, outputs=outputs) == (OF_CELLS if held else set())
    frontiers = {
        PartitionId(topic, 0): Frontier("output", topic, 0, "id", 0, 9, 0, 9, 9, 1, records=9) for topic in outputs
    }
    assert outputs_in_doubt(replace(NOTHING, frontiers=frontiers), *seen, outputs) == ({"second"} if held else set())


def test_if_no_output_matches_the_whole_configuration_is_in_doubt_and_no_single_topic() -> None:
    outputs = {"first": TopicCounts(read=9), "second": TopicCounts(read=9)}
    assert unmatched_outputs(outputs, {"expected": 18, "unknown_id": 18}, 0, 18) == ()


@pytest.mark.parametrize(
    ("second", "wrong", "taken"),
    [
        (TopicCounts(), 0, set()),
        (TopicCounts(read=1), 1, OF_CELLS),
        (TopicCounts(read=1), 2, {"missing"}),
        (TopicCounts(read=1, undecided=1), 0, set()),
        (TopicCounts(read=101), 101, OF_CELLS),
        (TopicCounts(read=101, matched=1), 100, set()),
        (TopicCounts(read=101, matched=1), 101, OF_CELLS),
        (TopicCounts(read=102, matched=1, undecided=1), 102, set()),
    ],
)
def test_confirmed_violations_are_retracted_once_nearly_nothing_of_one_output_matches(
    second: TopicCounts, wrong: int, taken: set[str]
) -> None:
    outputs = {"first": TopicCounts(read=900, matched=900), "second": second}
    counts = {"expected": 2000, "processed": 900, "unknown_id": wrong}
    carried = 900 + second.read
    assert withdrawn(NOTHING, counts, carried, outputs=outputs) == taken
    assert withdrawn(NOTHING, counts, carried + 1, outputs=outputs) == set(), "some of them are not known by topic"


def test_the_counts_of_outputs_are_kept_with_the_totals_of_retired_cells() -> None:
    outputs = {"a": TopicCounts(5, 4, outside=3), "b": TopicCounts(2, 0, undecided=1)}
    one = replace(CellTotals.empty(), carried=7, outside=3, outputs=outputs)
    again = CellTotals.from_json(json.loads(json.dumps(one.to_json())))
    assert again == one
    assert again.plus(one).minus(one) == replace(one, on_record=again.plus(one).minus(one).on_record,
                                                 unproven=again.plus(one).minus(one).unproven)  # fmt: skip
    assert again.plus(one).outputs == {"a": TopicCounts(10, 8, outside=6), "b": TopicCounts(4, 0, undecided=2)}
    assert (again.plus(one).carried, again.plus(one).outside) == (14, 6)
    earlier = {name: value for name, value in one.to_json().items() if name != "outputs"}
    assert CellTotals.from_json(earlier).outputs == {}


def test_a_topic_that_matched_only_in_cells_that_an_earlier_version_retired_is_in_doubt_until_it_matches() -> None:
    """Totals of an earlier version do not contain the output of each contribution. More is suspected, not less."""
    outputs = {"first": TopicCounts(read=9, matched=9), "second": TopicCounts(read=1)}
    counts = {"expected": 2000, "processed": 1000, "misplaced": 1}
    assert unmatched_outputs(outputs, counts, 1000, 1001) == ("second",)
    assert withdrawn(NOTHING, counts, 1001, outputs=outputs) == set()


class TwoOutputs(Run):
    """A state with two output topics, whose cells are retired."""

    def _configured(self, *settings: str) -> Any:
        return super()._configured(*TWO_OUTPUTS, *settings)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("upgraded", [False, True])
def test_violations_of_cells_that_are_retired_in_the_doubt_are_never_confirmed(
    restarts: bool, upgraded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``upgraded``: an earlier version wrote the totals of the retired cells."""
    oracle = TumblingWindow.of(MINUTE_US).reading(Reads(several_outputs=True))
    monkeypatch.setattr(test_retired_in_doubt, "RULES", replace(test_retired_in_doubt.RULES, oracle=oracle))
    monkeypatch.setattr(test_retired_in_doubt, "SIDES", {**SIDES, SECOND: "output"})
    if upgraded:
        to_json = CellTotals.to_json
        monkeypatch.setattr(CellTotals, "to_json", lambda it: to_json(replace(it, outputs={})))
    run = TwoOutputs(tmp_path)
    run.batch(read(1, 2), read(3, 4, window=1), result(1, 2), {**result(777), "topic": SECOND})
    suspects: dict[str, int] = {"missing": 2, "unknown_id": 1}
    assert standing(run.batch()) == ({}, suspects)
    run.retire()
    if restarts:
        run.restart()
    later = 2_000
    wrong = {**result(888, window=later), "topic": SECOND}
    run.batch(read(5, 6, 7, window=later), result(5, window=later), wrong)
    assert standing(run.batch()) == ({}, {"missing": 4, "unknown_id": 2})
    run.batch({**result(6, window=later), "topic": SECOND})
    assert standing(run.batch()) == ({"missing": 1, "unknown_id": 1}, suspects)


def landed(rows: Iterable[Mapping[str, Any]], *, collapse: bool) -> dict[str, tuple[int, int]]:
    """Topic -> contributions in its results, and those of them that match an event, by definition."""
    expected: Counter[tuple[int, str, int]] = Counter()
    carried: dict[str, Counter[tuple[int, str, int]]] = {}
    for one in rows:
        cell = one["window_start_us"], one["key"]
        if one["side"] == "input":
            expected.update((*cell, each["id"]) for each in one["ids"])
        elif one["side"] == "output":
            topic = carried.setdefault(one["topic"], Counter())
            topic.update((*cell, id_) for each in one["results"] for id_ in each["ids"])
    found = {}
    for topic, mine in carried.items():
        matching = 0
        for contribution, count in mine.items():
            owed = min(1, expected[contribution]) if collapse else expected[contribution]
            others = sum(its[contribution] for name, its in carried.items() if name != topic)
            matching += min(count, max(0, owed - others))
        found[topic] = (mine.total(), matching)
    return found


@pytest.mark.parametrize("settle_at", [None, 1])
def test_the_counts_of_outputs_are_those_of_a_definition_record_by_record(settle_at: int | None) -> None:
    differences, compared, several = [], 0, 0
    for seed in range(8):
        world = World(2_000 + seed)
        world.oracle.reading(Reads(several_outputs=True))
        run, rows = WorldRun(MemoryTables(), world.rules, settle_at), list[dict[str, Any]]()
        for step in range(world.rng.randint(15, 40)):
            batch = world.batch()
            rows += batch.rows
            found = run.read(batch)["outputs"]
            if batch.inputs_us < batch.at_us:
                continue
            of_topics = landed(rows, collapse=world.rules.collapse)
            compared, several = compared + 1, several + (len(of_topics) > 1)
            if {topic: (one.read, one.matched) for topic, one in found.items()} != of_topics:
                differences.append(f"seed {seed} step {step}: {found}, by definition {of_topics}")
                break
    assert differences == []
    assert several > compared // 2 > 30


def row(topic: str, ids: Sequence[int], **more: object) -> dict[str, object]:
    return {**fact("output", ids, batch=0, lookup_us=1), "topic": topic, **more}


def test_a_single_output_has_no_counts_of_its_own() -> None:
    cells = new_cells(TumblingWindow.of(MINUTE_US))
    cells.fold(facts(row("a", [1, 2])))
    assert cells.outputs == []


def test_the_counts_of_outputs_survive_a_save_and_a_merge_of_sessions() -> None:
    oracle = SessionWindow.of(MINUTE_US).reading(Reads(several_outputs=True))
    cells = new_cells(oracle)
    for start, topic, ids in ((0, "a", [1]), (0, "b", [2, 3]), (MINUTE_US, "b", [4])):
        cells.fold(facts(row(topic, ids, window_start_us=start)))
    cells.put("landed/b", np.array([0, 1]), np.array([2, 1]))
    again = new_cells(oracle)
    assert again.fill(cells.to_table())
    assert again.outputs == ["a", "b"]
    assert [again["carried/a"].tolist(), again["carried/b"].tolist()] == [[1, 0], [2, 1]]
    assert again["landed/b"].tolist() == [0, 0], "the result of a comparison is not saved"
    events_of_both = ({**fact("input", [9], batch=1, lookup_us=2, window_us=start), "earliest_us": start,
                       "latest_us": start} for start in (0, MINUTE_US))  # fmt: skip
    again.fold(facts(*events_of_both))
    assert [again["carried/a"].tolist(), again["carried/b"].tolist()] == [[1, 0], [3, 0]]
    other = new_cells(oracle)
    other.adopt(again)
    assert other.outputs == ["a", "b"]


def test_a_cumulative_result_counts_its_ids_once_however_often_they_are_repeated() -> None:
    oracle = RunningAggregate.of(replaces=True).reading(Reads(replaces=True, several_outputs=True))
    cells = new_cells(oracle)
    for batch in range(3):
        listing = row("a", [1], batch=batch, window_start_us=None, key='["a","1"]', last_offset=batch)
        cells.fold(facts(listing))
    assert cells["carried/a"].max() == 1
