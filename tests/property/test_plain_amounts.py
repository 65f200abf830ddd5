"""Numbers that results aggregate: Arrow decodes them as the decoder of one record does, and their fold is exact."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest

from tests.property.test_plain_events import OTHERS, batch
from validator.codecs.batches import EVENTS, EventBatches, ResultBatches
from validator.codecs.columns import DECODED
from validator.codecs.one_record import DIGITS_AFTER, DIGITS_BEFORE, Event, Record, Result, amount
from validator.codecs.plain_json import AMOUNT
from validator.config.examples import EXAMPLES
from validator.config.load import loads
from validator.config.model import Config
from validator.model.json_text import Unreadable
from validator.model.stated_values import MODULAR, PRIMES, Values
from validator.reconcile.grouping import facts_of_events
from validator.reconcile.values import Aggregate, Answered, residues, texts_of, wrong_value
from validator.stream.decode import event_reader, result_reader

pytestmark = [pytest.mark.property, pytest.mark.timeout(300)]

RECORDS: Final = 3_000
AMOUNTS: Final = [
    *("0", "-0", "-0.0", "1", "-7", "12.34", "1e2", "1E-3", "2.50", "0.1", "1e999", "1e-39", "1e-38", "1e29", "1e30"),
    *("999999999999999999999999999999", "-999999999999999999999999999999.99", "9223372036854775808", "1.0e0"),
    *('"12.5"', '" 12"', '"+12"', '".5"', '"5."', '"1e2"', '""', '"abc"', '"0x10"', '"NaN"', '"Infinity"', '"\u0663"'),
    *('"1_000"', "null", "true", "[]", "{}", "NaN", "01", "1.", "0." + "1" * 38, "0." + "1" * 39, "1" + "0" * 45),
]


NOTES: Final = ["", ',"note":null', ',"note":{}', ',"note":{"text":null}', ',"note":5', ',"note":{"text":{}}',
                ',"note":{"text":7}', ',"note":{"text":"a","text":"b"}', ',"note":[]']  # fmt: skip


USERS: Final = [
    '"x"',
    '"1"',
    "1",
    "1.0",
    "1e0",
    "-0",
    "true",
    "null",
    "{}",
    "[1]",
    '"\u00e9"',
    '"\\u00e9"',
    '""',
    '" 1"',
    '"1e0"',
]


IDS: Final = ["0", "-0", "7.0", "7.5", '"12"', '"012"', '"x"', "null", "9223372036854775807", "-9223372036854775808"]
IDS_BEYOND: Final = ["9223372036854775808", "18446744073709551615", "999999999999999999999999999999", "1" + "0" * 31]


def config(fmt: str = "json", *, counted: bool = False, modular: tuple[str, ...] = ()) -> Config:
    more = ", having: count(amount), notes: count(note.text), users: distinct(by)" if counted else ""
    stated = ", having: most, notes: least, users: least" if counted else ""
    for function in modular:
        for kind, of in (("plain", "no"), ("crc32", "crc32(by)"), ("xxhash64", "xxhash64(by)")):
            more, stated = f"{more}, {function}_{kind}: {function}({of})", f"{stated}, {function}_{kind}: least"
    bounds = ["oracle.having={number: {above: 2.5}, most: {at_least: -1.5}}"] if counted else []
    settings = [
        *bounds,
        f"oracle.values={{number: count, total: sum(amount), most: max(amount), least: min(nested.amount){more}}}",
        f"outputs.0.fields.values={{number: count, total: total, most: most, least: least{stated}}}",
        f"inputs.0.format={fmt}",
    ]
    return loads(EXAMPLES["counts"], ".", settings, {})


def records(shape: str, names: tuple[str, ...], chance: random.Random) -> list[bytes]:
    found = []
    for _ in range(RECORDS):
        usual = {name: str(Decimal(chance.randrange(-999, 9999)).scaleb(-2)) for name in names}
        odd = {name: chance.choice(AMOUNTS) for name in names if chance.random() < 0.15}
        other = chance.choice(OTHERS) if chance.random() < 0.05 else ""
        note = chance.choice(NOTES) if chance.random() < 0.3 else ',"note":{"text":"so"}'
        if chance.random() < 0.9:
            note += f',"by":{chance.choice(USERS) if chance.random() < 0.2 else chance.randrange(9)}'
        if chance.random() < 0.9:
            # An integer of more than 64 bits leaves its whole batch to the rule.
            odd_id = chance.choice(IDS_BEYOND if chance.random() < 0.05 else IDS)
            note += f',"no":{odd_id if chance.random() < 0.2 else chance.randrange(2**40)}'
        found.append((shape % {**usual, **odd, "other": other, "note": note}).encode("utf-8", "surrogatepass"))
    return found


@pytest.mark.parametrize("at_once", [RECORDS, 7])
def test_arrow_decodes_what_the_rule_decodes(at_once: int) -> None:
    chance, settings, seen = random.Random(at_once), config(counted=True, modular=MODULAR), Counter[str]()
    event = '{"page":"p","timestamp":"2026-01-01T00:00:00Z","amount":%(a)s,"nested":{"amount":%(b)s}%(other)s%(note)s}'
    result = '{"page":"p","windowStart":"2026-01-01T00:00:00Z","count":3,"total":%(a)s,"most":%(b)s,"least":1%(other)s}'
    readers: list[tuple[str, Any]] = [
        (event, event_reader(settings.inputs[0], settings.oracle, 0, "auto")),
        (result, result_reader(settings.outputs[0], settings.oracle, "auto")),
    ]
    for shape, reader in readers:
        values = records(shape, ("a", "b"), chance)
        assert isinstance(reader.batches, EventBatches | ResultBatches)
        for start in range(0, RECORDS, at_once):
            some = values[start : start + at_once]
            got = {
                offset: numbers if status in (None, DECODED) and key is not None else None
                for part in reader.batches(iter([batch(some)]))
                for offset, numbers, status, key in zip(
                    *(part[name].to_pylist() for name in ("offset", "values", "status", "key")), strict=True
                )
            }
            for offset, value in enumerate(some):
                found = reader.decoder.decode(Record(value, timestamp_us=5, offset=offset))
                wanted = found.addends if isinstance(found, Event) else getattr(found, "values", None)
                assert got[offset] == (None if wanted is None else list(wanted)), value
                seen[type(found).__name__] += 1
    assert min(seen[kind.__name__] for kind in (Event, Result)) > RECORDS / 2
    assert seen["Undecodable"] > RECORDS / 10


@pytest.mark.parametrize("text", [text for text in AMOUNTS if '"' not in text and text[0] in "-0123456789"])
def test_a_number_is_exact_or_refused(text: str) -> None:
    try:
        number = Fraction(text)
        if text.endswith(".") or text == "01":
            return
    except ValueError:
        return
    fits = abs(number) < 10**DIGITS_BEFORE and (number * 10**DIGITS_AFTER).denominator == 1
    if fits:
        assert Fraction(amount(Decimal(text))) == number
    else:
        with pytest.raises(Unreadable, match="more than"):
            amount(Decimal(text))


def test_sums_of_any_scale_agree_with_fractions_and_with_their_fingerprints() -> None:
    chance, oracle = random.Random(3), config().oracle
    rows: list[dict[str, Any]] = []
    wanted: dict[str, list[Decimal]] = defaultdict(list)
    for offset in range(2_000):
        key = f"k{chance.randrange(40)}"
        size = chance.choice((3, 12, 29))
        number = Decimal(chance.randrange(-(10**size), 10**size)).scaleb(-chance.choice((0, 2, 9, 20, 38)))
        rows.append(
            {"partition": 0, "offset": offset, "id": 0, "key": key, "event_time_us": 5, "values": [number, None]}
        )
        wanted[key].append(number)
    facts = facts_of_events(pa.Table.from_pylist(rows, EVENTS), 0, oracle, 0, 2**50, with_first_event=False)
    for fact in facts.to_pylist():
        numbers, first = wanted[fact["key"]], fact["aggregates"][0]
        assert first["count"] == len(numbers)
        assert Fraction(first["sum"]) == sum(map(Fraction, numbers))
        assert (Decimal(first["min"]), Decimal(first["max"])) == (min(numbers), max(numbers))
        assert fact["aggregates"][1] == {"count": 0, "sum": None, "min": None, "max": None}
        total = pa.array([Decimal(first["sum"])], AMOUNT)
        of_total = [int(residues(total, prime, 0)[0]) for prime in PRIMES]
        assert [fact["hash_a"], fact["hash_b"]] == of_total


def test_residues_are_those_of_the_exact_integers() -> None:
    chance = random.Random(1)
    numbers = [Decimal(chance.randrange(-(10**60), 10**60)).scaleb(-38) for _ in range(500)]
    scaled = [int(Fraction(number) * 10**DIGITS_AFTER) for number in numbers]
    for prime in PRIMES:
        one = residues(pa.array([Decimal(1)], AMOUNT), prime, 2)
        factor = int(one[0]) * pow(10**DIGITS_AFTER, -1, prime)
        found = residues(pa.array(numbers, AMOUNT), prime, 2)
        assert np.array_equal(found, [number % prime * factor % prime for number in scaled])


def test_texts_of_stored_numbers_are_exact_at_every_scale() -> None:
    numbers = [Decimal(digits).scaleb(-scale) for digits in (1, -30, 123_456_000) for scale in range(DIGITS_AFTER + 1)]
    numbers += [Decimal(0), Decimal(10**29)]
    assert [Decimal(text) for text in texts_of(pa.array(numbers, AMOUNT)).to_pylist()] == numbers


def test_an_average_of_doubles_is_right() -> None:
    """An engine that divides doubles is not accused: its quotient is exact to half a unit of its last bit."""
    chance, mean = random.Random(9), Values.of({"mean": "avg(amount)"}).stated[0]
    for _ in range(2_000):
        numbers = [chance.randrange(1, 100) for _ in range(chance.randrange(2, 12))]
        part = Aggregate(
            len(numbers), len(numbers), Decimal(sum(numbers)), Decimal(min(numbers)), Decimal(max(numbers))
        )
        answered = Answered([part], [], [], all_used=True)
        stated = Decimal(repr(sum(numbers) / len(numbers)))
        assert wrong_value(mean, answered, [stated], Decimal(0)) is None
        assert wrong_value(mean, answered, [stated + 2], Decimal(0)) is not None
