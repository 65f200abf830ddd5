"""The conditions that `config init` proposes, and the fields that it takes for counts."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from typing import Any

import pytest

from tests.unit.pipeline_shapes import START_MS, Shape, log, one
from tests.unit.proposals import proposed
from validator.cli.proposal.conditions import common_part

pytestmark = pytest.mark.unit


def joined(coupons: int) -> Shape:
    """Orders and payments of one kind, joined in windows. One of ``coupons`` orders has a coupon."""
    draw = random.Random(3)
    sides: tuple[list[dict[str, Any]], list[dict[str, Any]]] = ([], [])
    for n in range(400):
        at = START_MS + n * 250
        coupon = {} if n % coupons else {"coupon": n}
        sides[0].append({"id": f"o{n}", "user": f"u{draw.randrange(12)}", "at": at, "kind": "A", **coupon})
        payment = {"id": f"p{n}", "user": f"u{draw.randrange(12)}", "at": at, "kind": draw.choice("XYZ"), "price": n}
        sides[1].append(payment)
    cells: dict[tuple[int, str], tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for side, events in enumerate(sides):
        for event in events:
            if event["kind"] in "AX":
                cells[event["at"] // 10_000 * 10_000, event["user"]][side].append(event["id"])
    results = [
        one({"user": user, "start": start, "orders": orders, "payments": payments})
        for (start, user), (orders, payments) in sorted(cells.items())
        if orders and payments
    ]
    inputs = {
        topic: log(one(event) for event in events) for topic, events in zip(("order", "payment"), sides, strict=True)
    }
    return Shape(inputs, {"out": log(results)}, {})


def test_a_side_of_a_join_is_known_by_a_field_that_all_its_events_have() -> None:
    everyone, some = proposed(joined(1)), proposed(joined(2))
    paid = {"all": [{"path": "price", "exists": True}, {"path": "kind", "one_of": ["X"]}]}
    assert everyone.is_proven
    assert everyone.document["oracle"]["where"] == {"any": [{"path": "coupon", "exists": True}, paid]}
    # `coupon` would leave out half of the orders.
    assert not some.is_proven
    assert "where" not in some.document["oracle"]
    assert any("oracle.where" in doubt for doubt in some.doubts)


def test_the_shortest_common_part_is_found_within_reasonable_time() -> None:
    draw = random.Random(1)

    def text(length: int) -> str:
        return "".join(draw.choices("abcdefghij", k=length))

    assert common_part(["xbot", "about bots"], ["xyz"]) == "b"
    assert common_part(["a Bot/1", "Bot/2 b"], ["a B/1", "ot b"]) == "Bo"
    assert common_part(["a"], ["a"]) is None
    same = text(480)
    assert common_part([f"{same} kafka", f"kafka {same}"], [f"{same} afk"]) == "ka"
    assert common_part([same, f"x{same}"], [f"{same}x"]) is None
    began = time.process_time()
    common_part([text(100_000) for _ in range(3)], [text(100_000)])
    common_part([same] * 2_000, [f"{same}x"])
    assert time.process_time() - began < 2


@pytest.mark.parametrize("text", ["\N{SUPERSCRIPT TWO}", "1" * 5_000], ids=["a superscript", "many digits"])
def test_a_text_that_is_no_whole_number_is_not_taken_for_a_count(text: str) -> None:
    events = [one({"id": n, "k": "ab"[n % 2], "at": START_MS + n * 500 + 250}) for n in range(60)]
    results = [one({"k": "ab"[n % 2], "start": START_MS + n // 2 * 5_000, "n": text}) for n in range(10)]
    assert not proposed(Shape({"in": log(events)}, {"out": log(results)}, {})).is_proven
