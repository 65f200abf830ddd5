"""Engines that compute with doubles, from records to verdicts: what these lose is right, a lost event is not
(SEMANTICS 2.29).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from random import Random

import pytest

from tests.unit.local_run import judged
from validator.codecs.one_record import Record
from validator.model.classes import Verdict
from validator.model.stated_values import Function, Stated
from validator.reconcile.joined_values import OfPairs
from validator.reconcile.values import Aggregate, Answered, wrong_value

START_US = 1_767_225_600_000_000
WORLDS = 500

TEXT = """
pipeline: doubles
guarantee: exactly_once
kafka: {bootstrap_servers: "127.0.0.1:9092"}
state: {path: state}
inputs: [{topic: sales, fields: {key: shop, event_time: {path: at, unit: us}}}]
outputs:
  - topic: totals
    evidence: values
"""
WINDOWS = """
    fields: {key: shop, window_start: {path: start, unit: us}, values: {total: total, mean: mean, low: low, high: high}}
oracle:
  kind: tumbling_window
  size: 60s
  values: {total: sum(amount), mean: avg(amount), low: min(amount), high: max(amount)}
"""
KEYS = """
    emission: cumulative
    fields: {key: shop, values: {n: n, total: total, mean: mean}}
oracle: {kind: running_aggregate, values: {n: count, total: sum(amount), mean: avg(amount)}}
"""


def amounts(chance: Random, size: int) -> list[str]:
    """Decimals of one to 17 digits, of one sign or both, and of one magnitude or many."""
    least, digits, places = chance.choice((0, -1)), chance.choice((2, 5, 17)), chance.choice((1, 2, 12))
    exponents = range(chance.choice((1, 9)))
    return [
        str(Decimal(chance.randrange(least * 10**digits, 10**digits)).scaleb(chance.choice(exponents) - places))
        for _ in range(size)
    ]


def summed(chance: Random, numbers: Sequence[float]) -> float:
    """The sum of doubles in a random order and with random partial sums, as a parallel engine has it."""
    parts = list(numbers)
    while len(parts) > 1:
        one, other = (parts.pop(chance.randrange(len(parts))) for _ in range(2))
        parts.append(one + other)
    return parts[0]


def records(values: Sequence[dict[str, object]]) -> list[Record]:
    return [
        Record(json.dumps(value).encode(), offset=n, timestamp_us=START_US, key=json.dumps(value["shop"]).encode())
        for n, value in enumerate(values)
    ]


def run(folder: Path, chance: Random, *, text: str, lost: bool) -> tuple[Verdict, int, bool]:
    """Judge 40 shops of which an engine sums the amounts as doubles. ``lost``: in every fourth shop without the largest
    one, which it counts. Return the verdict, the wrong values, and whether doubles lost something."""
    events: list[dict[str, object]] = []
    results: list[dict[str, object]] = []
    is_inexact = False
    for shop in range(40):
        some = amounts(chance, chance.randrange(2, 40))
        # As JSON has them: all digits, and no quotes.
        events += [{"shop": shop, "at": START_US + n, "amount": text} for n, text in enumerate(some)]
        used = [float(text) for text in some]
        if lost and shop % 4 == 0:
            used.remove(max(used, key=abs))
        total = summed(chance, used)
        is_inexact |= Fraction(Decimal(repr(total))) != sum(map(Fraction, some))
        stated = {"total": total, "mean": total / len(used), "low": min(used), "high": max(used)}
        results.append({"shop": shop, "start": START_US, "n": len(some), **stated})
    end = []
    if "size" in text:
        end.append({"shop": 0, "at": START_US + 90_000_000, "amount": "0"})
        stated = dict.fromkeys(("total", "mean", "low", "high"), 0.0)
        results.append({"shop": 0, "start": START_US + 60_000_000, **stated})
    shown = judged(text, {"sales": plain(events + end), "totals": records(results)}, folder)
    return shown.verdicts[shown.guarantee], shown.violations["confirmed"]["wrong_value"], is_inexact


def plain(events: Sequence[dict[str, object]]) -> list[Record]:
    """Records whose amounts are numbers with all of their digits."""
    return [
        one._replace(value=(one.value or b"").replace(b'"amount": "', b'"amount": ').replace(b'"}', b"}"))
        for one in records(events)
    ]


@pytest.mark.parametrize("text", [TEXT + WINDOWS, TEXT + KEYS], ids=["windows", "keys"])
def test_what_doubles_lose_is_right_and_a_lost_amount_is_not(tmp_path: Path, text: str) -> None:
    verdict, wrong, is_inexact = run(tmp_path / "right", Random(7), text=text, lost=False)
    assert is_inexact
    assert (wrong, verdict) == (0, Verdict.PASS)
    verdict, wrong, _ = run(tmp_path / "lost", Random(7), text=text, lost=True)
    assert (wrong, verdict) == (10, Verdict.FAIL)


def test_a_value_that_is_declared_exact_loses_nothing(tmp_path: Path) -> None:
    """More results are wrong than right, so the configuration is in doubt, which says what it needs."""
    exact = (TEXT + WINDOWS).replace("total: total,", "total: {path: total, tolerance: 0},")
    verdict, wrong, _ = run(tmp_path, Random(7), text=exact, lost=False)
    assert (wrong, verdict) == (0, Verdict.UNKNOWN)


def parted(chance: Random, numbers: Sequence[Decimal]) -> list[Aggregate]:
    """The aggregates of random groups of these numbers, as facts have them."""
    groups: list[list[Decimal]] = [[] for _ in range(chance.randrange(1, 5))]
    for number in numbers:
        chance.choice(groups).append(number)
    return [
        Aggregate(
            len(some), len(some), Decimal(str(sum(map(Fraction, some)) * 10**20)).scaleb(-20), min(some), max(some)
        )
        for some in groups
        if some
    ]


@pytest.mark.parametrize("function", ["sum", "avg", "min", "max"])
def test_the_bound_holds_in_any_order_and_is_small(function: Function) -> None:
    chance, one, off = Random(5), Stated("x", function, 0), 0
    for _ in range(WORLDS):
        numbers = [Decimal(text) for text in amounts(chance, chance.randrange(1, 30))]
        times = chance.choice((1, 1, 3)) if function in ("sum", "avg") else 1
        parts = parted(chance, numbers)
        answered = Answered(parts, (), (), all_used=True)
        if times > 1:
            answered = OfPairs(parts, (), (), all_used=True, partners_least=times, partners_most=times)
        used = [float(number) for number in numbers] * times
        total = summed(chance, used)
        found = {"sum": total, "avg": total / len(used), "min": min(used), "max": max(used)}[function]
        stated = Decimal(repr(found))
        assert wrong_value(one, answered, [stated]) is None
        exact = sum(map(Fraction, numbers)) * times / (len(used) if function == "avg" else 1)
        off += function in ("sum", "avg") and Fraction(stated) != exact
        sizes = sum(map(abs, map(Fraction, numbers))) * times
        assert answered.rounding(function, stated) <= len(used) * 35 * sizes / 2**53 or not sizes
    assert off > WORLDS / 4 or function in ("min", "max")
