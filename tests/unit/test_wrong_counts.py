"""A correct engine whose results state counts, and one wrong parameter of the configuration: nothing is confirmed
(SEMANTICS 4.28, *counts*). An engine with a defect stays accused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pytest

from tests.property.counted import counting
from tests.unit.read_through import PASSED_US, read_through
from validator.codecs.batches import EVENTS, RESULTS
from validator.codecs.columns import DECODED
from validator.codecs.one_record import NO_ID
from validator.core.fit import Growth
from validator.core.fit_sample import Expected
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


Stated = list[tuple[int, str, int]]
"""Results in the order of their offsets: start, key and number."""


@dataclass
class World:
    """The core, fed in batches. ``partitions``: those of the output, which each cell's results use in turn."""

    configured: Oracle
    partitions: int = 1
    batch: int = 0
    read: dict[Side, int] = field(default_factory=lambda: {Side.INPUT: 0, Side.OUTPUT: 0})
    confirmed: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.oracle = counting(self.configured).reading(Reads(evidence="values", names_ids=False))
        self.judging = Judging(KnownFacts(None, first_batch=0), Rules(self.oracle, 1, 1))

    def step(
        self,
        events: list[tuple[str, int]] | None = None,
        results: Stated | None = None,
        *,
        watermark_us: int = PASSED_US,
    ) -> None:
        """Judge a batch with these records."""
        self.batch += 1
        of_events = [
            {"partition": 0, "offset": self._offset(Side.INPUT), "id": NO_ID, "key": key, "event_time_us": at}
            for key, at in events or ()
        ]
        of_results = [
            {"partition": number % self.partitions, "offset": self._offset(Side.OUTPUT), "status": DECODED}
            | {"window_start_us": start, "key": key, "count": count, "ids": [], "text_ids": [], "values": []}
            for number, (start, key, count) in enumerate(results or ())
        ]
        grouped = [
            facts_of_events(pa.Table.from_pylist(of_events, EVENTS), 0, self.oracle, 0, 2**60, with_first_event=False),
            facts_of_results(pa.Table.from_pylist(of_results, RESULTS), 1, self.oracle),
        ]
        sources, lookup_us = [(Side.INPUT, "input"), (Side.OUTPUT, "output")], 100 * self.batch
        facts = completed(pa.concat_tables(grouped), sources, batch=self.batch, lookup_us=lookup_us, epoch=0)
        progress = replace(read_through(lookup_us), watermark_us=watermark_us)
        for one in self.judging.step(facts, progress, Suspicion()).violations:
            self.confirmed[one.id] = one.violation_class if one.state == "confirmed" else ""

    def _offset(self, side: Side) -> int:
        self.read[side] += 1
        return self.read[side] - 1

    @property
    def classes(self) -> set[str]:
        """The classes of the violations that are confirmed now."""
        return set(self.confirmed.values()) - {""}

    @property
    def growth(self) -> Growth | None:
        """The doubt about the emission."""
        return None if self.judging.sums.fit is None else self.judging.sums.fit.growth


def judged(configured: Oracle, events: list[tuple[str, int]], counts: Counts) -> tuple[set[str], list[str]]:
    """The confirmed classes, and the sentences of the doubt."""
    world = World(configured)
    world.step(events, [(*cell, count) for cell, count in sorted(counts.items())])
    world.step()
    fit = world.judging.sums.fit
    assert world.growth is None
    return world.classes, [mismatch_sentence(configured, fit.mismatch)] if fit is not None and fit.mismatch else []


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


def updates(counts: Counts, *stages: float, among: Callable[[int], bool] = lambda _: True) -> Stated:
    """Results of which those of some cells state these shares of their number before it."""
    found = []
    for i, ((start, key), count) in enumerate(sorted(counts.items())):
        early = [number for share in stages if (number := int(share * count))] if among(i) else []
        found += [(start, key, number) for number in (*early, count)]
    return found


UPDATES: dict[str, tuple[Oracle, Stated]] = {
    "twice": (TEN, updates(counts_of(TEN, EVENTS_OF), 0.5)),
    "for each event": (TEN, updates(counts_of(TEN, EVENTS_OF), *(share / 20 for share in range(1, 14)))),
    "again without a new event": (TEN, updates(counts_of(TEN, EVENTS_OF), 0.5, 0.5, 1)),
    "one in twenty": (TEN, updates(counts_of(TEN, EVENTS_OF), 0.7, among=lambda i: i % 20 == 0)),
    "sliding": (SLIDING, updates(counts_of(SLIDING, EVENTS_OF), 0.3, 0.6)),
}


@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.parametrize("name", UPDATES)
def test_updates_accuse_no_correct_engine_and_name_the_emission(name: str, partitions: int) -> None:
    configured, results = UPDATES[name]
    world = World(configured, partitions)
    world.step(EVENTS_OF, results)
    world.step()
    assert world.judging.sums.counts["duplicate"]
    assert world.judging.suspected == {"duplicate"}
    assert world.classes == set()
    assert world.growth is not None
    assert world.growth.example is not None
    assert world.judging.sums.fit is not None
    assert world.judging.sums.fit.mismatch is None


def test_updates_of_sessions_accuse_no_correct_engine() -> None:
    world = World(SessionWindow.of(20 * S))
    world.step(PAIRS, updates(Counter({(at, key): 2 for key, at in PAIRS[::2]}), 0.5))
    world.step()
    assert (world.classes, set(world.judging.suspected)) == (set(), {"duplicate"})
    assert world.growth == Growth(20, 20, Expected("", PAIRS[0][1], "a"))


def test_updates_are_no_repeats_while_their_windows_are_open() -> None:
    """Each batch has a quarter of the events and the numbers after it; events of the next batch are read before it."""
    world, ends = World(TEN), [150, 300, 450, 600]
    for number, end in enumerate(ends):
        before, seen = EVENTS_OF[:end], Counter[tuple[int, str]]()
        changed = {cell for cell, _ in cells_of(EVENTS_OF[end - 150 : end])}
        results = []
        for cell, _ in cells_of(before):
            seen[cell] += 1
            if cell in changed:
                results.append((*cell, seen[cell]))
        world.step(EVENTS_OF[end - 150 : end], results, watermark_us=before[-1][1])
        world.step(watermark_us=before[-1][1])
        assert world.classes == set(), number
        assert world.growth is not None
    world.step()
    world.step()
    assert world.classes == set()


def cells_of(events: Iterable[tuple[str, int]]) -> list[tuple[tuple[int, str], int]]:
    return [((at - at % (10 * S), key), at) for key, at in events]


REPEATS: dict[str, Stated] = {
    "every result once more": updates(counts_of(TEN, EVENTS_OF), 1),
    "a few results once more": updates(counts_of(TEN, EVENTS_OF), 1, among=lambda i: i in (3, 4, 5)),
    "once more, with repeated events": [
        (*cell, number) for cell, count in sorted(counts_of(TEN, EVENTS_OF).items()) for number in (count, count + 2)
    ],
    "once more, with fewer events": [
        (*cell, number) for cell, count in sorted(counts_of(TEN, EVENTS_OF).items()) for number in (count, count - 2)
    ],
    "one of them in part at first": updates(counts_of(TEN, EVENTS_OF), 0.5, among=lambda i: i == 7),
    "most in full, few in part": [
        (*cell, number)
        for i, (cell, count) in enumerate(sorted(counts_of(TEN, EVENTS_OF).items()))
        for number in ((count, count) if i % 4 else (count - 2, count))
    ],
}


@pytest.mark.parametrize("name", REPEATS)
def test_an_engine_that_repeats_its_results_is_accused(name: str) -> None:
    world = World(TEN)
    world.step(EVENTS_OF, REPEATS[name])
    world.step()
    assert (world.classes, world.growth) == ({"duplicate"}, None)


def test_the_doubt_ends_once_updates_are_nearly_none_of_the_results() -> None:
    """A crash lets the engine answer three cells again, with more events than before."""
    events = [("a", BEGAN_US + number * 2 * S) for number in range(2_000)]
    results = updates(counts_of(TEN, events), 0.5, among=lambda i: i in (3, 4, 5))
    world = World(TEN)
    world.step(events[:100], results[:23])
    world.step()
    assert (world.classes, world.growth) == (set(), Growth(3, 3, Expected("", events[15][1], "a")))
    world.step(events[100:], results[23:])
    world.step()
    assert (world.classes, world.growth) == ({"duplicate"}, None)


def test_confirmed_repeats_are_retracted_once_they_are_seen_to_be_updates() -> None:
    """Two updated windows alone are too few for the doubt."""
    results = updates(counts_of(TEN, EVENTS_OF), 0.5)
    early = [(key, at) for key, at in EVENTS_OF if key == "a"]
    a = [one for one in results if one[1] == "a"]
    world = World(TEN)
    world.step([one for one in early if one[1] < BEGAN_US + 20 * S], a[:4])
    world.step()
    assert world.classes == {"duplicate"}
    world.step([one for one in early if one[1] >= BEGAN_US + 20 * S], a[4:])
    world.step()
    assert world.classes == set()


def test_an_update_that_never_has_all_events_is_no_excuse() -> None:
    """Every window repeats 2 of its events, and its results happen to rise: parts of it, of which none has all."""
    world = World(TEN)
    counts = sorted(counts_of(TEN, EVENTS_OF).items())
    world.step(
        EVENTS_OF, [(*cell, number) for cell, count in counts for number in (count // 2, count - count // 2 + 2)]
    )
    for _ in range(3):
        world.step()
    assert (world.classes, world.growth) == ({"duplicate"}, None)
