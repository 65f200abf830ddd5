"""Values whose fields a condition reads, too, and fields that lie inside others: Arrow leaves them to the rule."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.unit.local_run import judged
from tests.unit.pipeline_shapes import log
from validator.codecs.one_record import Record
from validator.codecs.plain_fields import integers
from validator.model.classes import Verdict
from validator.model.conditions import Comparison

AT_MS = 1_767_225_600_000
TEXT = """
pipeline: p
guarantee: exactly_once
kafka: {bootstrap_servers: "127.0.0.1:9092"}
inputs: [{topic: in, fields: {key: shop, event_time: {path: at, unit: ms}}}]
outputs:
  - topic: out
    evidence: values
    fields: {key: shop, window_start: {path: w, unit: ms}, values: {n: n, s: s, c: c}}
    OUTPUT
oracle: {kind: tumbling_window, size: 1m, values: {n: count, s: sum(total.net), c: count(total.net)}, INPUT}
state: {path: state}
"""


@pytest.mark.parametrize("number", ["12345678901234567.89", "9007199254740993", "1.5"])
@pytest.mark.parametrize(
    ("of_input", "of_output"),
    [
        ("", ""),
        ("where: {path: total.net, above: 0}", ""),
        ("where: {path: $value, exists: true}", ""),
        ("", "where: {path: s, exists: true}"),
    ],
)
def test_a_correct_engine_is_never_accused(of_input: str, of_output: str, number: str, tmp_path: Path) -> None:
    shops = [(f"shop{i}", number if i == 9 else "1.5") for i in range(10)]
    events = [f'{{"shop":"{shop}","at":{AT_MS},"total":{{"net":{net}}}}}' for shop, net in shops]
    results = [f'{{"shop":"{shop}","w":{AT_MS},"n":1,"s":{net},"c":1}}' for shop, net in shops]
    logs = {
        "in": log([Record(text.encode()) for text in events]),
        "out": log([Record(text.encode()) for text in results]),
    }
    shown = judged(TEXT.replace("INPUT", of_input).replace("OUTPUT", of_output), logs, tmp_path)
    assert shown.verdicts[shown.guarantee] is Verdict.PASS, shown.reasons


@pytest.mark.parametrize(
    ("total", "verdict"), [("null", Verdict.PASS), ("{}", Verdict.PASS), ('"none"', Verdict.UNKNOWN)]
)
def test_a_batch_in_which_the_outer_field_is_no_object_is_read(total: str, verdict: Verdict, tmp_path: Path) -> None:
    event = f'{{"shop":"a","at":{AT_MS},"total":{total}}}'
    result = f'{{"shop":"a","w":{AT_MS},"n":1,"s":null,"c":0}}'
    condition = "where: {path: total, exists: false}"
    for of_input in ("", condition) if total == "null" else ("",):
        logs = {"in": log([Record(event.encode())]), "out": log([Record(result.encode())])}
        text = TEXT.replace("INPUT", of_input).replace("OUTPUT", "")
        shown = judged(text, logs, tmp_path / str(len(of_input)))
        assert shown.verdicts[shown.guarantee] is verdict, shown.reasons


@pytest.mark.parametrize("test", [Comparison("t", frozenset({"0"})), Comparison("t", pattern="1970")])
def test_a_condition_on_a_typed_time_is_left_to_the_rule(test: Comparison) -> None:
    _, certain = test.holds_in(pa.array([0], pa.timestamp("ms")), integers)
    assert certain.tolist() == [False]
