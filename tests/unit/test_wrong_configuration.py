"""A configuration that does not fit the records proves nothing, however the records are divided into batches."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.fed_run import Fed, FedRun
from tests.unit.reconcile_rows import MINUTE_US
from validator.model.classes import Guarantee, Verdict
from validator.model.frontier import PartitionId
from validator.model.snapshot import Snapshot

IN, OUT, LATE, OTHER = "click", "output", "lateOutput", "update"
TWO_INPUTS = (f"inputs.1={{topic: {OTHER}, fields: {{id: id, key: page, event_time: timestamp}}}}",)
WINDOWS, PER_WINDOW = 5, 4


def events() -> list[Fed]:
    """Events of several windows. The watermark passes the end of all but the last one."""
    return [
        Fed(IN, (10 * window + number,), window * MINUTE_US)
        for window in range(WINDOWS)
        for number in range(PER_WINDOW)
    ]


def of_two(shift: int = 0, *, window: int = 0) -> list[Fed]:
    """Events of two inputs. The other input's ids are ``shift`` off, and its windows are ``window`` minutes later."""
    return [
        one
        for event in events()
        for number in event.ids or ()
        if isinstance(number, int)
        for one in (event, Fed(OTHER, (500 + number + shift,), event.window_us + window * MINUTE_US))
    ]


def answers_to_two() -> list[Fed]:
    """One result per window with the correct ids of both inputs."""
    both = [tuple(10 * window + i for i in range(PER_WINDOW)) for window in range(WINDOWS)]
    return [Fed(OUT, (*ids, *(500 + number for number in ids)), window * MINUTE_US) for window, ids in enumerate(both)]


def answers(shift: int = 0, *, window: int = 0, bad: Sequence[int] = ()) -> list[Fed]:
    """One result per window. Its ids are ``shift`` off, and its window is ``window`` minutes later. ``bad``: windows
    whose result does not decode."""
    found = []
    for number in range(WINDOWS):
        ids = tuple(shift + 10 * number + i for i in range(PER_WINDOW))
        found.append(Fed(OUT, None) if number in bad else Fed(OUT, ids, (number + window) * MINUTE_US))
    return found


FITS_NOTHING = {
    "other ids": answers(1000),
    "other ids, some unreadable": answers(1000, bad=(0, 3)),
    "other windows": answers(window=100),
    "nothing decodes": answers(bad=range(WINDOWS)),
    "no ids": [Fed(OUT, (), window * MINUTE_US) for window in range(WINDOWS)],
}


def batches(records: Sequence[Fed], cuts: Sequence[int]) -> list[Sequence[Fed]]:
    bounds = [0, *sorted(set(cuts)), len(records)]
    return [records[first:last] for first, last in itertools.pairwise(bounds) if last > first]


def played(
    parts: Sequence[Sequence[Fed]],
    *,
    restarts: bool = False,
    configured: tuple[str, ...] = (),
    example: str = "clickstream",
) -> list[Snapshot]:
    """The snapshots published after each batch and at the end of the run."""
    with TemporaryDirectory() as folder:
        run = FedRun(Path(folder), configured, example)
        shown = []
        for part in parts:
            shown.append(run.feed(part))
            if restarts:
                run.restart()
        return [*shown, run.end()]


def confirmed(shown: Snapshot) -> dict[str, int]:
    return {name: count for name, count in shown.violations["confirmed"].items() if count}


def orders(which: st.SearchStrategy[list[Fed]]) -> st.SearchStrategy[list[Sequence[Fed]]]:
    """Events and answers in a random interleaving that keeps the order of each, divided into batches."""

    def cut(drawn: tuple[list[Fed], list[bool], list[int]]) -> list[Sequence[Fed]]:
        given, first, cuts = drawn
        waiting, left = events(), list(given)
        mixed = []
        for takes_event in first:
            source = waiting if (takes_event and waiting) or not left else left
            if source:
                mixed.append(source.pop(0))
        return batches([*mixed, *waiting, *left], cuts)

    size = WINDOWS * PER_WINDOW + WINDOWS
    return st.tuples(which, st.lists(st.booleans(), max_size=size), st.lists(st.integers(1, size - 1), max_size=6)).map(
        cut
    )


def in_time(read: Sequence[Fed], written: Sequence[Fed]) -> st.SearchStrategy[list[Sequence[Fed]]]:
    """Events of two inputs, and each result somewhere after the events of its window, divided into batches."""

    def cut(drawn: tuple[list[int], list[int]]) -> list[Sequence[Fed]]:
        behind, cuts = drawn
        places = [
            2 * PER_WINDOW * (one.window_us // MINUTE_US + 1) + by for one, by in zip(written, behind, strict=True)
        ]
        events = [((number, 0), one) for number, one in enumerate(read)]
        mixed = sorted(
            [*events, *(((at, -1), one) for at, one in zip(places, written, strict=True))], key=lambda it: it[0]
        )
        return batches([one for _, one in mixed], cuts)

    delays = st.lists(st.integers(0, len(read)), min_size=len(written), max_size=len(written))
    return st.tuples(delays, st.lists(st.integers(1, len(read) + len(written) - 1), max_size=6)).map(cut)


@settings(max_examples=12, deadline=None)
@given(orders(st.sampled_from(list(FITS_NOTHING.values()))), st.booleans())
def test_a_configuration_that_fits_no_record_confirms_nothing(parts: list[Sequence[Fed]], restarts: bool) -> None:
    for shown in played(parts, restarts=restarts):
        assert confirmed(shown) == {}
        assert shown.confirmed_total == {}, "nor do the totals record a confirmation"
        assert not any(verdict in (Verdict.FAIL, Verdict.PASS) for verdict in shown.verdicts.values())
    assert any("is in doubt" in reason for reason in shown.reasons)


@settings(max_examples=6, deadline=None)
@given(orders(st.just(answers()[:2] + answers(bad=(2,))[2:3] + answers(1000)[3:4])))
def test_one_match_confirms_the_violations_of_a_small_pipeline(parts: list[Sequence[Fed]]) -> None:
    """Of five windows, two are answered, one has an undecodable result, one has other ids, and one has no result."""
    shown = played(parts)
    assert confirmed(shown[-1]) == {"missing": 3 * PER_WINDOW, "unknown_id": PER_WINDOW, "undecodable": 1}
    assert set(shown[-1].verdicts.values()) == {Verdict.FAIL}
    assert not any(shown[-1].violations["suspected"].values())


@pytest.mark.parametrize(("cuts", "restarts"), [([], False), ([10], False), ([2, 9, 30], True)])
def test_a_few_matches_by_chance_prove_nothing_in_the_end(cuts: list[int], restarts: bool) -> None:
    """Of 204 results only the first one matches. A first batch may confirm the others' ids as violations, but they are
    retracted."""
    ids = [tuple(range(5 * number, 5 * number + 5)) for number in range(41)]
    read = [Fed(IN, (number,), 0) for group in ids for number in group] + [Fed(IN, (999,), 2 * MINUTE_US)]
    written = [Fed(OUT, (0,))] + [Fed(OUT, tuple(1000 + number for number in group), 0) for group in ids]
    parts = [read, *batches(written, cuts)]
    last = played(parts, restarts=restarts)[-1]
    assert confirmed(last) == {}
    assert set(last.verdicts.values()) == {Verdict.UNKNOWN}
    assert last.violations["suspected"]["unknown_id"] == 205


@pytest.mark.parametrize("horizon", [False, True], ids=["all", "horizon"])
@pytest.mark.parametrize("wrong", ["results", "late"])
def test_a_wrong_unit_of_times_is_doubted_also_if_the_state_has_a_horizon(
    wrong: str, horizon: bool, tmp_path: Path
) -> None:
    """Seconds that are read as milliseconds are in 1970, before the horizon."""
    run = FedRun(tmp_path)
    began_us = 20_000 * 24 * 60 * MINUTE_US
    if horizon:
        place, frontiers = PartitionId(IN, 0), run.runner.progress.frontiers
        cut = replace(frontiers[place], hidden_start=True, horizon_us=began_us + 1)
        run.runner.progress = replace(run.runner.progress, frontiers={**frontiers, place: cut})
    for window in range(1, WINDOWS + 1):
        time_us, ids = began_us + window * MINUTE_US, tuple(10 * window + number for number in range(PER_WINDOW))
        wrong_us = time_us // 1000 // MINUTE_US * MINUTE_US
        run.feed([Fed(IN, (one,), time_us) for one in ids])
        if wrong == "results":
            run.feed([Fed(OUT, ids, wrong_us)], after_us=1_000_000)
        else:
            run.feed([Fed(OUT, ids[:3], time_us), Fed(LATE, ids[3:], wrong_us)], after_us=1_000_000)
    run.feed([], after_us=3 * MINUTE_US)
    shown = run.feed([], after_us=3 * MINUTE_US)
    assert confirmed(shown) == {}
    assert shown.verdicts[Guarantee.EXACTLY_ONCE] is Verdict.UNKNOWN


def test_a_doubt_retracts_no_violation_that_it_cannot_explain(tmp_path: Path) -> None:
    """Repeats collapse and there is no late topic, so ids of a wrong field explain no duplicate."""
    collapse = ("inputs.0.duplicates=collapse", "inputs.1.duplicates=collapse", "late=[]")
    run = FedRun(tmp_path, (*TWO_INPUTS, *collapse))
    run.runner.record.copies_explain = run.config.copies_explain
    groups = [tuple(range(5 * number, 5 * number + 5)) for number in range(81)]
    ids = [one for group in groups for one in group]
    closing = [Fed(IN, (999_999,), 2 * MINUTE_US), Fed(OTHER, (999_998,), 2 * MINUTE_US)]
    run.feed([*(Fed(IN, (one,)) for one in ids), *(Fed(OTHER, (1000 + one,)) for one in ids), *closing])
    run.feed([Fed(OUT, (1000,)), Fed(OUT, groups[0]), Fed(OUT, groups[0])])
    assert confirmed(run.feed([])) == {"duplicate": 5}
    shown = run.feed([Fed(OUT, (*group, *(5000 + one for one in group))) for group in groups[1:]])
    assert confirmed(shown)["duplicate"] == 5
    assert run.runner.judging.withdrawn <= run.runner.judging.suspected


def test_a_dead_engine_is_still_proven(tmp_path: Path) -> None:
    run = FedRun(tmp_path)
    run.feed(events())
    run.feed([], after_us=3 * MINUTE_US)
    assert confirmed(run.feed([], after_us=3 * MINUTE_US)) == {"missing": (WINDOWS - 1) * PER_WINDOW}


def test_the_first_id_in_a_result_ends_the_doubt_about_lists_without_ids(tmp_path: Path) -> None:
    run = FedRun(tmp_path)
    run.feed([*events(), *FITS_NOTHING["no ids"]])
    run.feed([], after_us=3 * MINUTE_US)
    shown = run.feed([], after_us=3 * MINUTE_US)
    assert shown.contributions["missing"] == (WINDOWS - 1) * PER_WINDOW
    assert confirmed(shown) == {}
    run.feed([Fed(OUT, (0,))])
    assert confirmed(run.feed([])) == {"missing": (WINDOWS - 1) * PER_WINDOW - 1}


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        ("other ids", "unknown_id"),
        ("other ids, some unreadable", "unknown_id"),
        ("other windows", "misplaced"),
        ("nothing decodes", "undecodable"),
        ("no ids", "missing"),
    ],
)
@pytest.mark.parametrize("restarts", [False, True])
def test_losses_that_were_confirmed_before_any_result_are_retracted_by_results_that_fit_nothing(
    wrong: str, found: str, restarts: bool, tmp_path: Path
) -> None:
    run = FedRun(tmp_path)
    run.feed(events())
    run.feed([], after_us=3 * MINUTE_US)
    assert confirmed(run.feed([], after_us=3 * MINUTE_US)) == {"missing": (WINDOWS - 1) * PER_WINDOW}
    run.feed(FITS_NOTHING[wrong])
    if restarts:
        run.restart()
    run.feed([])
    last = run.end()
    assert confirmed(last) == {}
    assert set(last.verdicts.values()) == {Verdict.UNKNOWN}
    assert run.feed(answers()[:1]).violations["confirmed"][found]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_late_record_that_fits_by_chance_proves_nothing_in_the_end(restarts: bool, tmp_path: Path) -> None:
    """`late[].fields.id` is the path of another id, and the first late record happens to have the id of an event of its
    cell."""
    run = FedRun(tmp_path)
    lost = [Fed(IN, (number,), 0) for number in range(101)]
    run.feed([*lost[:2], Fed(LATE, (0,)), Fed(LATE, (1_000,))])
    run.feed([Fed(IN, (1,), 4 * MINUTE_US)], after_us=6 * MINUTE_US)
    run.feed([], after_us=6 * MINUTE_US)
    assert confirmed(run.shown()) == {"missing": 1, "unknown_id": 1}, "one record matched"
    if restarts:
        run.restart()
    run.feed([*lost[2:], *(Fed(LATE, (1_000 + number,)) for number in range(1, 101))])
    last = run.end()
    assert confirmed(last) == {}
    assert last.contributions["missing"] == 101, "each of which a late record may answer"
    assert [reason for reason in last.reasons if "late topic" in reason]


@pytest.mark.parametrize("first", [1, 2, 5])
def test_one_good_result_ends_the_doubt_about_unreadable_ones(first: int, tmp_path: Path) -> None:
    run = FedRun(tmp_path)
    run.feed([*events(), *[Fed(OUT, None)] * first])
    assert confirmed(run.shown()) == {}
    run.feed(answers()[:1])
    assert confirmed(run.feed([])) == {"undecodable": first}


ONE_WRONG = {
    "other ids": (of_two(1000), answers_to_two()),
    "other windows": (of_two(window=2), answers_to_two()),
    "ids where nobody looks": (of_two(), answers()),
}
"""Events of two inputs and results, with one input configured wrongly."""


@pytest.mark.parametrize("wrong", ONE_WRONG)
@settings(max_examples=4, deadline=None)
@given(st.data(), st.booleans())
def test_nothing_is_ever_confirmed_while_one_input_fits_nothing(
    wrong: str, data: st.DataObject, restarts: bool
) -> None:
    read, written = ONE_WRONG[wrong]
    shown = played(data.draw(in_time(read, written)), restarts=restarts, configured=TWO_INPUTS)
    for one in shown:
        assert confirmed(one) == {}
        assert one.confirmed_total == {}
    assert set(shown[-1].verdicts.values()) == {Verdict.UNKNOWN}
    assert any(f"topic {OTHER} is in doubt" in reason and "inputs[1].fields" in reason for reason in shown[-1].reasons)


@pytest.mark.parametrize(("cuts", "restarts"), [([], False), ([3], True), ([1, 2, 4], False)])
def test_an_id_shared_with_another_input_matches_that_input(cuts: list[int], restarts: bool) -> None:
    """Each update is configured with the id of its click. In a result this id stands for the click, not the update."""
    shown = played([of_two(-500), *batches(answers_to_two(), cuts)], restarts=restarts, configured=TWO_INPUTS)
    assert all(confirmed(one) == {} for one in shown)
    assert shown[-1].violations["suspected"]["missing"] == shown[-1].violations["suspected"]["unknown_id"] == 20


@settings(max_examples=4, deadline=None)
@given(in_time(of_two(), [*answers_to_two()[:1], *answers()[1:4]]), st.booleans())
def test_one_event_of_each_input_in_results_confirms_losses(parts: list[Sequence[Fed]], restarts: bool) -> None:
    shown = played(parts, restarts=restarts, configured=TWO_INPUTS)
    assert confirmed(shown[-1]) == {"missing": 5 * PER_WINDOW}
    assert set(shown[-1].verdicts.values()) >= {Verdict.FAIL}


@pytest.mark.parametrize(("cuts", "restarts"), [([], False), ([1], False), ([2, 9, 30], True)])
def test_a_few_matches_of_one_input_by_chance_prove_nothing_in_the_end(cuts: list[int], restarts: bool) -> None:
    ids = [tuple(range(5 * number, 5 * number + 5)) for number in range(41)]
    read = [Fed(topic, (base + i,), 0) for group in ids for i in group for topic, base in ((IN, 0), (OTHER, 1000))]
    read += [Fed(topic, (999_999,), 2 * MINUTE_US) for topic in (IN, OTHER)]
    written = [Fed(OUT, (1000,))] + [Fed(OUT, (*group, *(5000 + i for i in group)), 0) for group in ids]
    last = played([read, *batches(written, cuts)], restarts=restarts, configured=TWO_INPUTS)[-1]
    assert confirmed(last) == {}
    assert set(last.verdicts.values()) == {Verdict.UNKNOWN}
    assert last.violations["suspected"]["unknown_id"] == 205


def joined(records: Sequence[Fed], *, of_click: int = 0, of_update: int = 0) -> list[Fed]:
    """The same records in the id spaces of a join, with the ids of one side's events shifted."""
    found = []
    for one in records:
        ids = [id_ for id_ in one.ids or () if isinstance(id_, int)]
        shift = 0 if one.topic == OUT else of_update if one.topic == OTHER else of_click
        named = tuple(id_ + shift if id_ < 500 else f"{OTHER}/{id_ + shift}" for id_ in ids)
        found.append(Fed(one.topic, named, one.window_us))
    return found


ONE_SIDE_WRONG = {
    "ids of the left": joined(of_two(), of_click=100),
    "ids of the right": joined(of_two(), of_update=1000),
    "windows of the right": joined(of_two(window=2)),
}


@pytest.mark.parametrize("join", ["inner", "left"])
@pytest.mark.parametrize("wrong", ONE_SIDE_WRONG)
@settings(max_examples=2, deadline=None)
@given(st.data(), st.booleans())
def test_nothing_is_ever_confirmed_while_one_side_of_a_join_fits_nothing(
    join: str, wrong: str, data: st.DataObject, restarts: bool
) -> None:
    cut = in_time(ONE_SIDE_WRONG[wrong], joined(answers_to_two()))
    kind = (f"oracle.join={join}",)
    shown = played(data.draw(cut), restarts=restarts, configured=kind, example="join")
    assert all(confirmed(one) == {} and one.confirmed_total == {} for one in shown)
    assert set(shown[-1].verdicts.values()) == {Verdict.UNKNOWN}
    assert any("in doubt" in reason for reason in shown[-1].reasons)


@pytest.mark.parametrize("join", ["inner", "left"])
def test_one_event_of_each_side_confirms_losses_of_a_join(join: str) -> None:
    parts = [joined(of_two()), joined(answers_to_two())[:1]]
    last = played(parts, configured=(f"oracle.join={join}",), example="join")[-1]
    assert confirmed(last) == {"missing": 2 * (WINDOWS - 1) * PER_WINDOW}


def test_a_right_side_without_partners_keeps_no_loss_of_the_left_suspected() -> None:
    apart = [one for one in joined(of_two(window=100)) if one.topic == IN or one.window_us > WINDOWS * MINUTE_US]
    parts = [apart, joined(answers())[:1]]
    last = played(parts, configured=("oracle.join=left",), example="join")[-1]
    assert confirmed(last) == {"missing": (WINDOWS - 1) * PER_WINDOW}


SOME = [Fed(IN, (1,)), Fed(IN, (2,)), Fed(OTHER, (501,)), Fed(IN, (3,), MINUTE_US), Fed(OTHER, (503,), MINUTE_US)]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_late_record_does_not_count_as_a_match(restarts: bool) -> None:
    """In the first window all events are answered, one of them by a late record. In the second one no event is."""
    of_update = [Fed(OUT, (1, 2)), Fed(LATE, (501,))]
    assert confirmed(played([[*SOME, *of_update]], restarts=restarts, configured=TWO_INPUTS)[-1]) == {}
    of_click = [Fed(OUT, (1, 501)), Fed(LATE, (2,))]
    shown = played([[*SOME, *of_click]], restarts=restarts, configured=TWO_INPUTS)
    assert confirmed(shown[-1]) == {"missing": 2}


@pytest.mark.parametrize(
    "collapse",
    [("inputs.0.duplicates=collapse", "inputs.1.duplicates=collapse"), ("oracle={kind: distinct, size: 1m}",)],
    ids=["inputs", "oracle"],
)
def test_with_collapse_an_input_that_repeats_ids_of_another_keeps_no_loss_suspected(collapse: tuple[str, ...]) -> None:
    """For example a topic of retries."""
    read = [*events(), *(Fed(OTHER, one.ids, one.window_us) for one in events())]
    shown = played([read, answers()[1:]], configured=(*TWO_INPUTS, *collapse))
    assert confirmed(shown[-1]) == {"missing": PER_WINDOW}


def with_late(shift: int = 0, *, answered: int = 0, spoilt: int = 0) -> list[Fed]:
    """Events and their answers. In each window ``answered`` events are in the result, and the others have late records
    with ids that are ``shift`` off. In the first window ``spoilt`` late records are missing."""
    found, sent = [], events()
    for window in range(WINDOWS):
        ids = [10 * window + number for number in range(PER_WINDOW)]
        found += [one for one in sent if one.window_us == window * MINUTE_US]
        if answered:
            found.append(Fed(OUT, tuple(ids[:answered]), window * MINUTE_US))
        left_out = spoilt if window == 0 else 0
        found += [Fed(LATE, (number + shift,), window * MINUTE_US) for number in ids[answered + left_out :]]
    return found


@pytest.mark.parametrize("answered", [0, 2])
@pytest.mark.parametrize("restarts", [False, True])
@settings(max_examples=4, deadline=None)
@given(cuts=st.lists(st.integers(1, 40), max_size=6))
def test_nothing_is_ever_confirmed_while_no_late_record_has_the_id_of_an_event(
    restarts: bool, answered: int, cuts: list[int]
) -> None:
    sent = with_late(1000, answered=answered)
    shown = played(batches(sent, [cut for cut in cuts if cut < len(sent)] + [len(sent)]), restarts=restarts)
    assert [confirmed(one) for one in shown] == [{}] * len(shown)
    assert Verdict.FAIL not in shown[-1].verdicts.values()
    assert [reason for reason in shown[-1].reasons if "late topic" in reason]


@pytest.mark.parametrize("restarts", [False, True])
def test_losses_beyond_misnamed_late_records_are_confirmed(restarts: bool) -> None:
    sent = [one for one in with_late(answered=2) if one.topic != LATE]
    shown = played([[*sent, Fed(LATE, (1000,))]], restarts=restarts)
    assert confirmed(shown[-1]) == {"missing": WINDOWS * 2}


@pytest.mark.parametrize("restarts", [False, True])
def test_one_late_record_with_the_id_of_an_event_ends_the_doubt(restarts: bool) -> None:
    sent = with_late(answered=2, spoilt=1)
    shown = played([[*sent, Fed(LATE, (1000,))]], restarts=restarts)
    assert confirmed(shown[-1]) == {"missing": 1, "unknown_id": 1}


@pytest.mark.parametrize("restarts", [False, True])
def test_late_records_of_matched_events_have_valid_ids(restarts: bool) -> None:
    """An engine that reads answered events again may report them as late. They count twice, and the configured fields
    are right."""
    sent = [one for one in with_late(answered=PER_WINDOW) if one.topic != LATE]
    lost = Fed(IN, (9_000,))
    again = [Fed(LATE, one.ids, one.window_us) for one in events()[:3]]
    shown = played([[*sent, *again]], restarts=restarts)
    assert confirmed(shown[-1]) == {"duplicate": 3}
    [reason] = shown[-1].reasons
    assert re.match("3 contributions .* more often ", reason)
    assert confirmed(played([[lost, *sent, *again]], restarts=restarts)[-1]) == {"duplicate": 3, "missing": 1}


RETAINED = (*TWO_INPUTS, "state.retention=24h", "timing.missing_after=2m")
HOUR_US = 60 * MINUTE_US


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_silent_input_is_not_forgotten_when_its_cells_are_retired(tmp_path: Path, is_restarted: bool) -> None:
    """One input fits and falls silent. The ids of the other input are wrong: it stays in doubt even when it is the only
    one left."""
    run = FedRun(tmp_path, RETAINED)
    for hour in range(0, 96, 6):
        at_us = hour * HOUR_US
        fits = [Fed(OTHER, (500 + hour,), at_us), Fed(OUT, (500 + hour,), at_us)] if hour < 18 else []
        wrong = [Fed(IN, (hour,), at_us), Fed(OUT, (1_000 + hour,), at_us)] if hour >= 12 else []
        shown = run.feed([*fits, *wrong], after_us=6 * HOUR_US)
        if is_restarted and hour == 72:
            assert run.runner.retired.sums.inputs[OTHER].matched > 0
            run.restart()
    assert confirmed(shown) == {}
    assert set(shown.verdicts.values()) == {Verdict.UNKNOWN}
