"""Sums over ids name up to two lost or repeated events of a window, and never another one (SEMANTICS 2.34)."""

from __future__ import annotations

import hashlib
import random
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pytest

from tests.unit.read_through import read_through
from validator.codecs.batches import EVENTS, RESULTS
from validator.codecs.columns import DECODED
from validator.codecs.digests import of_integer, of_text
from validator.core.judging import Judging
from validator.core.suspicion import Suspicion
from validator.model.stated_values import Digest
from validator.model.violation import Violation
from validator.oracles.seam import Reads
from validator.oracles.tumbling_window import TumblingWindow
from validator.reconcile.facts import Side, completed
from validator.reconcile.grouping import facts_of_events, facts_of_results
from validator.reconcile.judge import Rules
from validator.state.known_facts import KnownFacts

Id = int | str
SIZE_US: Final = 1_000
WINDOWS: Final = 40
HASHES: Final[dict[str, Callable[[str], int]]] = {
    "crc32": lambda text: zlib.crc32(text.encode()),
    "md5": lambda text: int(hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()[:16], 16),
}
"""What an engine computes."""


@dataclass(frozen=True)
class Change:
    """What an engine does wrong in a window: it loses and repeats some events. ``named``: whether their ids follow."""

    lost: int
    repeated: int
    violation: str
    named: bool = True


CHANGES: Final = [
    Change(1, 0, "missing"),
    Change(2, 0, "missing"),
    Change(3, 0, "missing", named=False),
    Change(0, 1, "duplicate"),
    Change(0, 2, "duplicate"),
    Change(0, 3, "duplicate", named=False),
    Change(1, 1, "wrong_value"),
    Change(2, 2, "wrong_value", named=False),
]


@dataclass
class Window:
    """The events of a window, those that its results and late records used, and what was lost and repeated."""

    ids: list[Id]
    used: list[Id]
    aside: list[Id]
    change: Change
    wrong: list[Id]


def windows(chance: random.Random, new_id: Callable[[], Id]) -> list[Window]:
    found = []
    for number in range(WINDOWS):
        change = CHANGES[number % len(CHANGES)]
        ids = [new_id() for _ in range(chance.randrange(7, 30))]
        aside = ids[-1:] if chance.random() < 0.5 else []
        shuffled = chance.sample(ids[:-1], len(ids) - 1)
        lost, rest = shuffled[: change.lost], [*shuffled[change.lost :], *(() if aside else ids[-1:])]
        repeated = chance.sample(rest, change.repeated)
        if change.repeated == 2 and not change.lost and chance.random() < 0.3:
            repeated = repeated[:1] * 2
        found.append(Window(ids, [*rest, *repeated], aside, change, [*lost, *repeated]))
    return found


def judged(values: dict[str, str], worlds: Sequence[Window], number_of: Callable[[Id], int]) -> list[dict[str, Any]]:
    """The violations of one window after the other. An engine states any integer that is right modulo 2^64."""
    oracle = TumblingWindow.of(SIZE_US).model_copy(update={"values": values})
    oracle = oracle.reading(Reads(evidence="values", names_ids=False, has_ids=True))
    read_as = dict(oracle.stated.digests)
    events, late, results = [], [], []
    chance = random.Random(7)
    for number, window in enumerate(worlds):
        place = {"partition": 0, "key": "k", "time_us": 1}
        for ids, rows in ((window.ids, events), (window.aside, late)):
            for id_ in ids:
                addends = [_addend(id_, read_as[i]) for i in range(len(oracle.stated.paths))]
                of_id = {"id" if isinstance(id_, int) else "text_id": id_, "values": addends}
                rows.append(place | of_id | {"offset": len(rows), "event_time_us": number * SIZE_US, "status": DECODED})
        middle = chance.randrange(len(window.used))
        for part in (window.used[:middle], window.used[middle:]):
            sums = [sum(number_of(id_) ** power for id_ in part) for power in (1, 2)]
            said = [Decimal(total % 2**64 - chance.choice((0, 2**64, 2**98)) if part else 0) for total in sums]
            of_part = {"window_start_us": number * SIZE_US, "count": len(part), "values": said[: len(read_as)]}
            results.append(place | of_part | {"offset": len(results), "status": DECODED, "ids": [], "text_ids": []})
    grouped = [
        facts_of_events(pa.Table.from_pylist(events, EVENTS), 0, oracle, 0, 2**60, with_first_event=False),
        facts_of_events(pa.Table.from_pylist(late, EVENTS), 1, oracle, 0, 2**60, with_first_event=False),
        facts_of_results(pa.Table.from_pylist(results, RESULTS), 2, oracle),
    ]
    sources = [(Side.INPUT, "input"), (Side.LATE, "late"), (Side.OUTPUT, "output")]
    facts = completed(pa.concat_tables(grouped), sources, batch=1, lookup_us=1, epoch=0)
    judging, found = Judging(KnownFacts(None, first_batch=0), Rules(oracle, 1, 1)), dict[int | None, Violation]()
    for table, at in ((facts, 1), (None, 100)):
        for one in judging.step(table, read_through(at), Suspicion()).violations:
            found[one.window_start_us] = one
    return [found[number * SIZE_US] for number in range(len(worlds))]


def _addend(id_: Id, digest: Digest) -> Decimal:
    return Decimal(of_integer(int(id_), digest) if digest.hash is None else of_text(str(id_), digest))


def _check(world: Sequence[Window], violations: Sequence[Violation]) -> None:
    for window, one in zip(world, violations, strict=True):
        change = window.change
        assert one.violation_class == change.violation
        assert Counter(one.ids) == Counter(map(str, window.wrong if change.named else ()))
        assert ("one lost and one repeated event explain it" in one.explanation) == (
            change.lost == change.repeated == 1
        )


@pytest.mark.parametrize("bits", [24, 63])
def test_integers_are_named(bits: int) -> None:
    chance = random.Random(bits)
    world = windows(chance, lambda: chance.randrange(-(2**bits), 2**bits))
    values = {"n": "count", "a": "sum_mod64(id)", "b": "sum_squares_mod64(id)"}
    _check(world, judged(values, world, int))


@pytest.mark.parametrize("kind", HASHES)
def test_hashed_texts_are_named(kind: str) -> None:
    chance = random.Random(kind)
    world = windows(chance, lambda: f"order-{chance.randrange(10**9)}")
    values = {"n": "count", "a": f"sum_mod64({kind}(id))", "b": f"sum_squares_mod64({kind}(id))"}
    _check(world, judged(values, world, lambda id_: HASHES[kind](str(id_))))


def test_a_sum_alone_names_one_event() -> None:
    chance = random.Random(5)
    world = [one for one in windows(chance, lambda: chance.randrange(10**12)) if one.change.lost != one.change.repeated]
    rows = judged({"n": "count", "a": "sum_mod64(id)"}, world, int)
    for window, one in zip(world, rows, strict=True):
        is_one = window.change.lost + window.change.repeated == 1
        assert one.ids == (tuple(map(str, window.wrong)) if is_one else ())
