"""Joins whose results state values, from records to verdicts: with set-aside events, updated results, a condition."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.local_run import judged
from tests.unit.retained_run import START_US
from validator.codecs.one_record import Record
from validator.model.classes import Verdict

TEXT = """
pipeline: joined
guarantee: exactly_once
kafka: {bootstrap_servers: "127.0.0.1:9092"}
state: {path: state}
inputs:
  - {topic: clicks, fields: {key: page, event_time: {path: at, unit: us}}}
  - {topic: prices, fields: {key: page, event_time: {path: at, unit: us}}}
outputs:
  - topic: pairs
    evidence: values
    emission: EMISSION
    fields: {key: page, window_start: {path: start, unit: us}, values: {n: n, paid: paid}}
oracle:
  kind: windowed_join
  join: JOIN
  left: clicks
  right: prices
  size: 60s
  values: {n: count, paid: sum(left.paid)}
"""
ASIDE = """
late: [{topic: late-clicks, input: clicks, fields: {key: page, event_time: {path: at, unit: us}}}]
rejected: [{topic: bad-prices, input: prices, fields: {key: page, event_time: {path: at, unit: us}}}]
"""
WHERE = "  where: {path: kind, exists: true}\n"


def records(topic: str, values: list[dict[str, object]]) -> list[Record]:
    return [
        Record(json.dumps({"page": "a", "kind": topic, **value}).encode(), offset=n, timestamp_us=START_US)
        for n, value in enumerate(values)
    ]


def run(
    folder: Path,
    pairs: list[tuple[int, int]],
    *,
    join: str = "inner",
    emission: str = "final",
    late: int = 0,
    bad: int = 0,
    where: bool = False,
) -> tuple[dict[str, int], int, Verdict]:
    """Judge a window of three clicks, which paid 1, 2 and 4, and two prices. ``pairs``: what results state about it.
    ``late``: how many clicks are set aside; ``bad``: how many prices. Return the classes, the wrong values, and the
    verdict."""
    text = TEXT.replace("EMISSION", emission).replace("JOIN", join) + (WHERE if where else ASIDE)
    last: list[dict[str, object]] = [{"at": START_US + 90_000_000, "paid": 0}]
    others: list[dict[str, object]] = [{"at": START_US + 5, "kind": None, "paid": "x"}] if where else []
    logs = {
        "clicks": records("click", [*({"at": START_US + n, "paid": 1 << n} for n in range(3)), *others, *last]),
        "prices": records("price", [*({"at": START_US + n} for n in range(2)), *last]),
        "pairs": records(
            "pair", [{"start": START_US // 60_000_000 * 60_000_000, "n": n, "paid": paid} for n, paid in pairs]
        ),
        "late-clicks": records("late", [{"at": START_US + 2}] * late),
        "bad-prices": records("bad", [{"at": START_US + 1}] * bad),
    }
    # The later window has a result of its own.
    logs["pairs"] += records("pair", [{"start": START_US // 60_000_000 * 60_000_000 + 60_000_000, "n": 1, "paid": 0}])
    logs["pairs"] = [record._replace(offset=n) for n, record in enumerate(logs["pairs"])]
    shown = judged(text, logs, folder)
    names = ("processed", "late", "rejected", "missing", "duplicate", "unknown_id")
    found = {name: count for name in names if (count := shown.contributions[name])}
    return found, shown.violations["confirmed"]["wrong_value"], shown.verdicts[shown.guarantee]


@pytest.mark.parametrize(
    ("late", "bad", "stated", "found", "said"),
    [
        (1, 0, (4, 6), {"processed": 5, "late": 2}, Verdict.PASS),
        (0, 1, (3, 7), {"processed": 4, "rejected": 3}, Verdict.PASS),
        (1, 1, (2, 3), {"processed": 3, "late": 2, "rejected": 2}, Verdict.PASS),
        # An event was set aside, and used.
        (1, 0, (6, 14), {"processed": 5, "late": 2, "duplicate": 2}, Verdict.FAIL),
        (0, 1, (6, 14), {"processed": 4, "rejected": 3, "duplicate": 3}, Verdict.FAIL),
        (1, 0, (3, 5), {"processed": 4, "late": 2, "missing": 1}, Verdict.FAIL),
        # More was set aside than there was.
        (0, 3, None, {"processed": 1, "rejected": 6, "duplicate": 1}, Verdict.FAIL),
    ],
)
def test_pairs_of_events_that_were_set_aside_are_not_owed(
    late: int, bad: int, stated: tuple[int, int] | None, found: dict[str, int], said: Verdict, tmp_path: Path
) -> None:
    pairs = [] if stated is None else [stated]
    assert run(tmp_path, pairs, late=late, bad=bad) == (found, 0, said)


@pytest.mark.parametrize(
    ("join", "stated", "found", "wrong", "said"),
    [
        ("inner", [(2, 3), (4, 10), (6, 14)], {"processed": 7}, 0, Verdict.PASS),
        ("left", [(1, 1), (3, 7), (6, 14)], {"processed": 7}, 0, Verdict.PASS),
        ("semi", [(1, 1), (3, 7)], {"processed": 4}, 0, Verdict.PASS),
        ("inner", [(6, 14), (4, 10)], {"processed": 5, "missing": 2}, 0, Verdict.FAIL),
        ("inner", [(6, 14), (7, 15)], {"processed": 7, "duplicate": 1}, 0, Verdict.FAIL),
        ("inner", [(6, 14), (6, 13)], {"processed": 7}, 1, Verdict.FAIL),
    ],
)
def test_of_results_that_replace_each_other_the_newest_counts(
    join: str, stated: list[tuple[int, int]], found: dict[str, int], wrong: int, said: Verdict, tmp_path: Path
) -> None:
    assert run(tmp_path, stated, join=join, emission="cumulative") == (found, wrong, said)


@pytest.mark.parametrize(("stated", "lost"), [((6, 14), 0), ((4, 6), 2)])
@pytest.mark.parametrize("emission", ["final", "cumulative"])
def test_events_for_which_the_condition_does_not_hold_are_in_no_pair(
    emission: str, stated: tuple[int, int], lost: int, tmp_path: Path
) -> None:
    found, wrong, said = run(tmp_path, [stated], emission=emission, where=True)
    assert found == {"processed": 7 - lost, **({"missing": lost} if lost else {})}
    assert (wrong, said) == (0, Verdict.FAIL if lost else Verdict.PASS)
