"""A correct engine whose results state counts, and one wrong parameter of the configuration: nothing is confirmed
(SEMANTICS 4.28, *counts*). An engine with a defect stays accused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from tests.property.counted import counting
from tests.unit.read_through import read_through
from validator.codecs.batches import EVENTS, RESULTS
from validator.codecs.columns import DECODED
from validator.codecs.one_record import NO_ID
from validator.core.judging import Judging
from validator.core.suspicion import Suspicion
from validator.oracles.seam import Oracle, Reads
from validator.oracles.session_window import SessionWindow
from validator.oracles.sliding_window import SlidingWindow
from validator.oracles.tumbling_window import TumblingWindow
from validator.reconcile.facts import Side, completed
from validator.reconcile.grouping import facts_of_events, facts_of_results
from validator.reconcile.judge import Rules
from validator.state.known_facts import KnownFacts
from validator.stream.doubt_sentences import mismatch_sentence

S = 1_000_000
BEGAN_US = 1_767_225_600 * S
EVENTS_OF = [("abc"[number % 3], BEGAN_US + number * S // 4) for number in range(600)]
TEN = TumblingWindow.of(10 * S)
SLIDING = SlidingWindow.of(20 * S, slide=5 * S)
PAIRS = [("a", BEGAN_US + at * S) for pair in range(20) for at in (100 * pair, 100 * pair + 15)]
"""Two events 15 s apart, then a pause of 85 s."""

Counts = Counter[tuple[int, str]]


def counts_of(engine: Oracle, events: list[tuple[str, int]]) -> Counts:
    """(start, key) -> the number that a correct engine states."""
    rows, starts = engine.assigned(np.array([at for _, at in events], dtype=np.int64))
    rows = np.arange(len(events)) if rows is None else rows
    return Counter((start, events[row][0]) for row, start in zip(rows.tolist(), starts.tolist(), strict=True))


def judged(configured: Oracle, events: list[tuple[str, int]], counts: Counts) -> tuple[set[str], list[str]]:
    """The confirmed classes, and the sentences of the doubt."""
    oracle = counting(configured).reading(Reads(evidence="values", names_ids=False))
    of_events = [
        {"partition": 0, "offset": offset, "id": NO_ID, "key": key, "event_time_us": at}
        for offset, (key, at) in enumerate(events)
    ]
    of_results = [
        {"partition": 0, "offset": offset, "status": DECODED, "window_start_us": start, "key": key, "count": count}
        | {"ids": [], "text_ids": [], "values": []}
        for offset, ((start, key), count) in enumerate(sorted(counts.items()))
    ]
    grouped = [
        facts_of_events(pa.Table.from_pylist(of_events, EVENTS), 0, oracle, 0, 2**60, with_first_event=False),
        facts_of_results(pa.Table.from_pylist(of_results, RESULTS), 1, oracle),
    ]
    sources = [(Side.INPUT, "input"), (Side.OUTPUT, "output")]
    table = completed(pa.concat_tables(grouped), sources, batch=1, lookup_us=1, epoch=0)
    judging = Judging(KnownFacts(None, first_batch=0), Rules(oracle, 1, 1))
    confirmed: dict[str, str] = {}
    for facts, at in ((table, 1), (None, 100)):
        for one in judging.step(facts, read_through(at), Suspicion()).violations:
            confirmed[one.id] = one.violation_class if one.confirmed_now else ""
    mismatch = judging.sums.fit.mismatch if judging.sums.fit is not None else None
    return set(confirmed.values()) - {""}, [mismatch_sentence(configured, mismatch)] if mismatch is not None else []


WRONG: dict[str, tuple[Oracle, Oracle]] = {
    **{f"size {size}s of 10s": (TEN, TumblingWindow.of(size * S)) for size in (1, 5, 7, 15, 20, 60)},
    "offset": (TEN, TumblingWindow.of(10 * S, 4 * S)),
    "sliding, larger size": (SLIDING, SlidingWindow.of(25 * S, slide=5 * S)),
    "sliding, smaller size": (SLIDING, SlidingWindow.of(15 * S, slide=5 * S)),
    "sliding, larger slide": (SLIDING, SlidingWindow.of(20 * S, slide=10 * S)),
    "tumbling of sliding": (SlidingWindow.of(20 * S, slide=10 * S), TEN),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_parameter_accuses_no_correct_engine_that_counts(name: str) -> None:
    engine, configured = WRONG[name]
    confirmed, [reason] = judged(configured, EVENTS_OF, counts_of(engine, EVENTS_OF))
    assert confirmed == set()
    assert "the configuration is in doubt" in reason


def test_a_longer_gap_accuses_no_correct_engine_that_counts() -> None:
    """Both events of each pair are in one session of the engine."""
    as_one = Counter({(at, key): 2 for key, at in PAIRS[::2]})
    confirmed, reasons = judged(SessionWindow.of(10 * S), PAIRS, as_one)
    assert (confirmed, len(reasons)) == (set(), 1)


def less(counts: Counts, chosen: Callable[[int], bool], but: Callable[[int], int]) -> Counts:
    """The counts with those of some windows changed; without those that become 0."""
    changed = ((cell, but(count) if chosen(i) else count) for i, (cell, count) in enumerate(sorted(counts.items())))
    return Counter({cell: count for cell, count in changed if count})


DEFECTS: dict[str, tuple[Callable[[int], bool], Callable[[int], int], str]] = {
    "half of the windows are lost": (lambda i: i % 2 == 0, lambda count: 0, "missing"),
    "half of the windows are counted twice": (lambda i: i % 2 == 0, lambda count: 2 * count, "duplicate"),
    "every window loses one event": (lambda i: True, lambda count: count - 1, "missing"),
    "every window counts one event twice": (lambda i: True, lambda count: count + 1, "duplicate"),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_an_engine_that_counts_wrongly_is_accused(name: str) -> None:
    chosen, but, violation = DEFECTS[name]
    found = judged(TEN, EVENTS_OF, less(counts_of(TEN, EVENTS_OF), chosen, but))
    assert found == ({violation}, [])


def test_a_slide_that_is_too_short_cannot_be_distinguished_from_lost_windows() -> None:
    """SEMANTICS 4.28: every result is right, and every second window has none."""
    engine = SlidingWindow.of(20 * S, slide=10 * S)
    assert judged(SLIDING, EVENTS_OF, counts_of(engine, EVENTS_OF)) == ({"missing"}, [])
