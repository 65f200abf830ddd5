"""A configuration that fits nothing proves nothing, however its records are cut into batches."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.fed_run import Fed, FedRun
from tests.unit.reconcile_rows import MINUTE_US
from validator.model.classes import Verdict
from validator.model.snapshot import Snapshot

IN, OUT, LATE = "click", "output", "lateOutput"
WINDOWS, PER_WINDOW = 5, 4


def events() -> list[Fed]:
    """Several windows, of all of which but the last the watermark passes the end."""
    return [
        Fed(IN, (10 * window + number,), window * MINUTE_US)
        for window in range(WINDOWS)
        for number in range(PER_WINDOW)
    ]


def answers(shift: int = 0, *, window: int = 0, bad: Sequence[int] = ()) -> list[Fed]:
    """One result a window, whose ids are ``shift`` off, and whose window ``window`` further on. ``bad``: windows whose
    result does not decode."""
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
}


def batches(records: Sequence[Fed], cuts: Sequence[int]) -> list[Sequence[Fed]]:
    bounds = [0, *sorted(set(cuts)), len(records)]
    return [records[first:last] for first, last in itertools.pairwise(bounds) if last > first]


def played(parts: Sequence[Sequence[Fed]], *, restarts: bool = False) -> list[Snapshot]:
    """What is published after each batch, and at the end of the run."""
    with TemporaryDirectory() as folder:
        run = FedRun(Path(folder))
        shown = []
        for part in parts:
            shown.append(run.feed(part))
            if restarts:
                run.restart()
        return [*shown, run.end()]


def confirmed(shown: Snapshot) -> dict[str, int]:
    return {name: count for name, count in shown.violations["confirmed"].items() if count}


def orders(which: st.SearchStrategy[list[Fed]]) -> st.SearchStrategy[list[Sequence[Fed]]]:
    """Events and answers interleaved in some way, each in its order, and cut into batches."""

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


@settings(max_examples=12, deadline=None)
@given(orders(st.sampled_from(list(FITS_NOTHING.values()))), st.booleans())
def test_nothing_is_ever_confirmed_by_a_configuration_that_fits_nothing(
    parts: list[Sequence[Fed]], restarts: bool
) -> None:
    for shown in played(parts, restarts=restarts):
        assert confirmed(shown) == {}
        assert shown.confirmed_total == {}, "nor is it on record that it was"
        assert not any(verdict in (Verdict.FAIL, Verdict.PASS) for verdict in shown.verdicts.values())
    assert any("is in doubt" in reason for reason in shown.reasons)


@settings(max_examples=6, deadline=None)
@given(orders(st.just(answers()[:2] + answers(bad=(2,))[2:3] + answers(1000)[3:4])))
def test_what_breaks_a_small_pipeline_is_proven_by_its_first_match(parts: list[Sequence[Fed]]) -> None:
    """Of five windows two are answered, one result does not decode, one has other ids, and one is lost."""
    shown = played(parts)
    assert confirmed(shown[-1]) == {"missing": 3 * PER_WINDOW, "unknown_id": PER_WINDOW, "undecodable": 1}
    assert set(shown[-1].verdicts.values()) == {Verdict.FAIL}
    assert not any(shown[-1].violations["suspected"].values())


@pytest.mark.parametrize(("cuts", "restarts"), [([], False), ([10], False), ([2, 9, 30], True)])
def test_a_few_matches_by_chance_prove_nothing_in_the_end(cuts: list[int], restarts: bool) -> None:
    """Of 204 results the first one matches: a first batch may confirm what the others carry, and that is taken back."""
    ids = [tuple(range(5 * number, 5 * number + 5)) for number in range(41)]
    read = [Fed(IN, (number,), 0) for group in ids for number in group] + [Fed(IN, (999,), 2 * MINUTE_US)]
    written = [Fed(OUT, (0,))] + [Fed(OUT, tuple(1000 + number for number in group), 0) for group in ids]
    parts = [read, *batches(written, cuts)]
    last = played(parts, restarts=restarts)[-1]
    assert confirmed(last) == {}
    assert set(last.verdicts.values()) == {Verdict.UNKNOWN}
    assert last.violations["suspected"]["unknown_id"] == 205


def test_a_dead_engine_is_still_proven(tmp_path: Path) -> None:
    run = FedRun(tmp_path)
    run.feed(events())
    run.feed([], after_us=3 * MINUTE_US)
    assert confirmed(run.feed([], after_us=3 * MINUTE_US)) == {"missing": (WINDOWS - 1) * PER_WINDOW}


@pytest.mark.parametrize("first", [1, 2, 5])
def test_one_good_result_ends_the_doubt_about_unreadable_ones(first: int, tmp_path: Path) -> None:
    run = FedRun(tmp_path)
    run.feed([*events(), *[Fed(OUT, None)] * first])
    assert confirmed(run.shown()) == {}
    run.feed(answers()[:1])
    assert confirmed(run.feed([])) == {"undecodable": first}
