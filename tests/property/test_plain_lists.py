"""Lists of integers that are cut out of records, against the decoder of one record."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.property.test_plain_events import BYTES, batch
from tests.property.test_plain_results import said
from tests.worlds import some
from validator.codecs import plain_lists
from validator.codecs.batches import ResultBatches
from validator.codecs.columns import DECODED
from validator.codecs.one_record import RecordDecoder
from validator.codecs.plain_lists import extract_lists
from validator.config.model import Output

pytestmark = [pytest.mark.property, pytest.mark.timeout(300)]

ODD = ["0", "-0", "00", "01", "-01", "007", "+1", "-", "--1", "1-", "- 1", "1 2", "1\n2", "", " ", "1e2", "1E+2", "1.0",
       "1.", ".5", "null", "true", "NaN", "-Infinity", '"1"', '"a"', '"]"', "[1]", "[]", "{}", "1]", "[1", "0x1",
       "\u0661", "1\u00a0", "1\v", "1\x00", "/**/1", "1" + " " * 70, " " * 70 + "1", "-" + " " * 63, "-" + " " * 64,
       "9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809",
       "9999999999999999999", "18446744073709551616", "18446744073709551617", "1" * 20, "1" * 30,
       "1" * 1200]  # fmt: skip
BETWEEN = [",", ",", ", ", " ,", "\n    ", ",\n    ", "\t,\t", ",\r\n", ",,", "", ";", ",\f"]
AROUND = [("[", "]"), ("[", "]"), ("[ ", " ]"), ("[\n    ", "\n  ]"), ("[,", "]"), ("[", ",]"), ("[", "}"), ("[", ""),
          ("", "]"), ("]", "["), ("[[", "]]"), ("[]", "[]"), ('"[', ']"')]  # fmt: skip
OTHERS = ["", "", ',"x":1', ',"x":[]', ',"x":[7,8]', ',"x":"[1,2]"', ',"x":"\\"ids\\":[1,2]"', ',"x":"]["', ',"x":"["',
          ',"ids":[5]', ',"ids":5', ',"other":[5]', ',"x":{"ids":[5]}', ',"\\u0069ds":[5]', ',"x":"\\[1]"', ',"x":NaN',
          ',"x":01', ',"x":"\u00e4"', ',"x":"Y_"', ',"x":"' + "y" * 1200 + '"', "}", ',"x":' + "[" * 600 + "]" * 600,
          ',"x":' + '{"a":' * 600 + "1" + "}" * 600]  # fmt: skip
KEYS = ['"/a"', '"[1]"', '"[0]"', '"[1,2]"', "7", "[0]", "null"]
ONE = {"key": "page", "window_start": {"path": "at", "unit": "ms"}, "ids": "ids"}
TWO = {**ONE, "ids": [{"path": "ids", "input": "a"}, {"path": "more.other", "input": "b"}]}
SHAPES: dict[str, dict[str, Any]] = {
    '{"page":%(key)s,"at":5,"ids":%(a)s%(other)s}': ONE,
    '{"ids":%(a)s,"page":%(key)s,"at":5%(other)s}': ONE,
    ' {"at" : 5%(other)s,\n "ids" :\t%(a)s , "page" : %(key)s }\n': ONE,
    '{"x":{"ids":%(a)s},"page":%(key)s,"at":5%(other)s}': {**ONE, "ids": "x.ids"},
    '{"page":%(key)s,"at":5,"ids":%(a)s,"more":{"other":%(b)s}%(other)s}': TWO,
    '{"more":{"other":%(b)s},"ids":%(a)s%(other)s,"page":%(key)s,"at":5}': TWO,
}


def integer(chance: random.Random) -> str:
    return str(chance.randrange(10 ** chance.randrange(1, 20)) % 2**63 * chance.choice([1, 1, 1, -1]))


def odd_list(chance: random.Random, size: int) -> str:
    """The text of a list. About half of the lists have one unusual part."""
    items = [integer(chance) for _ in range(size)]
    between = chance.choice([",", ",", ", ", ",\n    "])
    around = chance.choice([("[", "]"), ("[", "]"), ("[\n    ", "\n  ]"), ("[ ", "]")])
    kind = chance.choice(["usual", "usual", "usual", "item", "between", "around", "item", "no list"])
    if kind == "item" and items:
        items[chance.choice([0, -1, chance.randrange(size)])] = chance.choice(ODD)
    at = chance.randrange(size + 1)
    text = between.join(items)
    if kind == "between":
        text = f"{between.join(items[:at])}{chance.choice(BETWEEN)}{between.join(items[at:])}"
    if kind == "around":
        around = chance.choice(AROUND)
    return chance.choice(["null", "7", '"a"', "{}", "true"]) if kind == "no list" else around[0] + text + around[1]


def odd_records(shape: str, number: int, chance: random.Random, *, odd: float) -> list[bytes | None]:
    values: list[bytes | None] = []
    for at in range(number):
        sizes = [chance.choice([0, 1, 1, 2, 3, 40]) for _ in "ab"]
        given = {name: str([int(integer(chance)) for _ in range(size)]) for name, size in zip("ab", sizes, strict=True)}
        given |= {"key": f'"/{at % 3}"', "other": ""}
        is_odd = chance.random() < odd
        if is_odd:
            lists = {name: odd_list(chance, size) for name, size in zip("ab", sizes, strict=True)}
            given |= {name: lists[name] for name in "ab" if chance.random() < 0.7}
            given |= {"other": chance.choice(OTHERS), "key": chance.choice(KEYS)} if chance.random() < 0.3 else {}
        value = (shape % given).encode()
        if is_odd and chance.random() < 0.15:
            place = chance.randrange(len(value) + 1)
            value = value[:place] + chance.choice(BYTES) + value[place + chance.choice([0, 0, 1]) :]
        values.append(chance.choice([None, b"", value]) if is_odd and chance.random() < 0.05 else value)
    return values


@pytest.mark.parametrize("at_once", some([30, 2**19]))
@pytest.mark.parametrize("shape", SHAPES)
def test_extracted_lists_decode_as_the_rule_does(shape: str, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Cut short lists too, a few at a time.
    monkeypatch.setattr(plain_lists, "WORTHWHILE", 0)
    monkeypatch.setattr(plain_lists, "_AT_ONCE", at_once)
    decoder = RecordDecoder(Output.model_validate({"topic": "output", "fields": SHAPES[shape]}))
    read = ResultBatches(decoder, ())
    chance = random.Random(shape)
    decoded = left = 0
    for number, odd in (*[(1, 1)] * 700, *[(3, 1)] * 100, *[(40, 0.1)] * 20, (1_500, 0.01)):
        values = odd_records(shape, number, chance, odd=odd)
        rows = pa.Table.from_batches(list(read(iter([batch(values)])))).sort_by("offset").to_pylist()
        assert [row["offset"] for row in rows] == list(range(number))
        for row, value in zip(rows, values, strict=True):
            found = (row["status"], row["window_start_us"], row["key"], row["ids"], row["text_ids"])
            assert found == said(decoder, value), value
            decoded += found[0] == DECODED
            left += found[0] != DECODED
    assert decoded > 1_000
    assert left > 150


@pytest.mark.parametrize("between", [",", ", ", ",\n    ", " , "])
@pytest.mark.parametrize(("lowest", "highest"), [(0, 10), (10**6, 10**7), (-(10**9), 10**9), (-(2**63), 2**63)])
def test_usual_lists_are_extracted(between: str, lowest: int, highest: int) -> None:
    chance = random.Random(between)
    lists = [[chance.randrange(lowest, highest) for _ in range(size)] for size in (0, 1, 300, 17, 90, 5_000)]
    texts = [f'{{"ids":[\n {between.join(map(str, ids))} \n],"page":"ä"}}'.encode() for ids in lists]
    without = extract_lists(pa.array(texts, pa.binary()), 1, 2**31)
    assert without is not None
    assert without.rows.tolist() == list(range(len(lists)))
    assert without.values.to_pylist() == ['{"ids":[0],"page":"ä"}'.encode()] * len(lists)
    assert [found.to_pylist() for found in without.lists] == [lists]


def test_a_list_with_another_bracket_or_above_a_limit_is_not_extracted() -> None:
    usual = json.dumps({"ids": list(range(1_000)), "page": "a"}).encode()
    values = [usual, usual.replace(b'"a"', b'"["'), usual.replace(b"7,", b"7.0,"), usual[:-1] + b" " * 9 + b"}", usual]
    without = extract_lists(pa.array(values, pa.binary()), 1, len(usual))
    assert without is not None
    assert without.rows.tolist() == [0, 4]
    assert extract_lists(pa.array(values, pa.binary()), 2, 2**31) is None
    assert extract_lists(pa.array([usual.replace(b"[0", b'["a"')], pa.binary()), 1, 2**31) is None
    assert extract_lists(pa.array([None, b"", b"{}"], pa.binary()), 1, 2**31) is None


def test_a_long_result_is_decoded_without_the_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long list or one unusual record of the batch does not slow the others down."""
    usual = [json.dumps({"page": "/a", "at": 5, "ids": np.arange(at, at + 500).tolist()}).encode() for at in range(900)]
    odd = usual[7].replace(b" 500", b" 500.0")
    decoder = RecordDecoder(Output.model_validate({"topic": "output", "fields": ONE}))
    asked = []
    rule = decoder.decode
    monkeypatch.setattr(decoder, "decode", lambda record: (asked.append(record.value), rule(record))[1])
    rows = pa.Table.from_batches(list(ResultBatches(decoder, ())(iter([batch([*usual[:7], odd, *usual[8:]])]))))
    assert asked == [odd]
    assert rows.sort_by("offset")["ids"].to_pylist() == [list(range(at, at + 500)) for at in range(900)]
