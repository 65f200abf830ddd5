"""Results without ids on a real broker: a count and a sum for each window (evidence `values`)."""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter
from decimal import Decimal
from typing import Any, Final

import pytest

from tests.integration.sidecar_fixtures import Pipeline, Run, iso, pipeline, read_report, spark
from tests.tiers import full
from validator.cli.main import main
from validator.config.examples import EXAMPLES
from validator.config.load import loads
from validator.publish import explain
from validator.stream.sidecar import Sidecar

__all__ = ["pipeline", "spark"]
pytestmark = [pytest.mark.timeout(600)]

SIZE_SECONDS: Final = 15
VALUES: Final = "values: {clicks: count, paid: sum(amount)}, where: {path: kind, none_of: [login]}"
TUMBLING: Final = f"{{kind: tumbling_window, size: {SIZE_SECONDS}s, {VALUES}}}"
SLIDING: Final = f"{{kind: sliding_window, size: {SIZE_SECONDS}s, slide: 5s, {VALUES}}}"
EVENTS: Final = [(f"k{number % 3}", number) for number in range(15, 135)]


LOGIN: Final = json.dumps({"kind": "login"})


def event(key: str, seconds: float) -> str:
    return json.dumps({"kind": "click", "page": key, "timestamp": iso(seconds), "amount": amount_of(seconds)})


def amount_of(seconds: float) -> float:
    """As exact decimals the amounts differ in their number of digits; every fourth event has none."""
    return 0 if seconds % 4 == 3 else round(seconds * 0.07, 2)


def result(key: str, start: int, count: Any, paid: Any = None) -> str:
    return json.dumps({"page": key, "windowStart": iso(start), "count": count, "paid": paid})


def paid_in(every_seconds: int) -> dict[tuple[str, int], Decimal]:
    """Return (key, start of the window) -> sum of the amounts of its events."""
    found: dict[tuple[str, int], Decimal] = {}
    for key, seconds in EVENTS:
        for cell in owed_by(key, seconds, every_seconds):
            found[cell] = found.get(cell, Decimal(0)) + Decimal(str(amount_of(seconds)))
    return found


def owed(every_seconds: int) -> Counter[tuple[str, int]]:
    """Return (key, start of the window) -> number of its events."""
    return Counter(cell for key, seconds in EVENTS for cell in owed_by(key, seconds, every_seconds))


def owed_by(key: str, seconds: int, every_seconds: int) -> list[tuple[str, int]]:
    starts = range(0, seconds + 1, every_seconds)
    return [(key, start) for start in starts if start <= seconds < start + SIZE_SECONDS]


def settings_of(pipeline: Pipeline, oracle: str, state: str, *more: str) -> list[str]:
    """What differs from the example."""
    name = pipeline.name
    return [
        f"pipeline={name}",
        f"kafka.bootstrap_servers={pipeline.servers}",
        f"inputs.0.topic={name}-in",
        f"outputs.0.topic={name}-out",
        f"late=[{{topic: {name}-late, fields: {{key: page, event_time: timestamp}}}}]",
        "outputs.0.fields.values={clicks: count, paid: paid}",
        f"oracle={oracle}",
        f"state.path={pipeline.state(state)}",
        "metrics.port=0",
        *more,
    ]


def validate(pipeline: Pipeline, oracle: str, state: str, *more: str) -> Run:
    """Run `validate --once` on a new state."""
    config = loads(EXAMPLES["counts"], pipeline.folder, settings_of(pipeline, oracle, state, *more), {})
    said: list[str] = []
    status = Sidecar(config, once=True, say=said.append, session=pipeline.spark).run()
    report = read_report(pipeline.state(state))
    assert report is not None, said
    return Run(status, report, said)


@pytest.mark.parametrize(("oracle", "every_seconds"), [(SLIDING, 5), full(TUMBLING, SIZE_SECONDS)])
def test_a_perfect_count_passes_and_each_deviation_is_counted(
    pipeline: Pipeline, oracle: str, every_seconds: int
) -> None:
    pipeline.create(inputs=2, outputs=2)
    for partition in (0, 1):
        clicks = [event(*one) for one in EVENTS if one[1] % 2 == partition]
        pipeline.clicks(*clicks[:9], LOGIN, *clicks[9:], partition=partition)
    pipeline.put(pipeline.late, event("k0", 30))
    expected = owed(every_seconds)
    # The late topic received an event of each window from 30 s, so the results of these windows lack it.
    aside = Counter({("k0", start): 1 for start in (30, 25, 20) if start % every_seconds == 0})
    counted = expected - aside
    paid = paid_in(every_seconds)
    for cell in aside:
        paid[cell] -= Decimal(str(amount_of(30)))
    pipeline.answers(
        *(result(*cell, str(count) if cell[1] % 2 else count, str(paid[cell])) for cell, count in counted.items())
    )
    run = validate(pipeline, oracle, "perfect")
    assert run.counts() == {"expected": expected.total(), "processed": counted.total(), "late": aside.total()}
    assert (run.status, run.verdicts) == (0, ("pass", "pass", "pass"))
    assert run.report["results"]["correct"] == len(counted)
    assert run.report["coverage"]["complete"]
    assert "not which" in run.report["cannot_see"][0]

    # A window that counts too much, one that counts nothing, one without events, a number that is none, and windows
    # in which another event was counted than the one that they have.
    pipeline.answers(result("k1", 45, 2), result("k9", 45, 3), result("k2", 60, -1), result("k2", 60, 0))
    swapped = owed_by("k3", 200, every_seconds)
    pipeline.answers(*(result(*cell, 1, amount_of(201)) for cell in swapped))
    pipeline.clicks(event("k3", 200), event("k1", 300), event("k1", 600), partition=0)
    pipeline.clicks(event("k1", 600), partition=1)
    run = validate(pipeline, oracle, "broken")
    lost = SIZE_SECONDS // every_seconds
    assert run.counts("duplicate", "unknown_id", "missing") == {"duplicate": 2, "unknown_id": 3, "missing": 3 * lost}
    assert run.report["results"]["undecodable"] == 1
    assert run.report["violations"]["confirmed"]["wrong_value"] == len(swapped)
    assert (run.status, run.verdicts) == (1, ("fail", "fail", "fail"))
    violations = json.loads((pipeline.state("broken") / "violations.json").read_text())["violations"]
    (said,) = {one["explanation"].partition(": ")[2] for one in violations if one["class"] == "wrong_value"}
    assert said == "paid is 14.07 and should be 14"
    assert [one["ids"] for one in violations if one["class"] != "undecodable"] == [[]] * (len(violations) - 1)


def line(seconds: int, text: str | list[str]) -> str:
    """Each third line has no author, and each fifth a null one."""
    author = {} if seconds % 3 == 0 else {"by": None if seconds % 5 == 0 else {"name": "x"}}
    return json.dumps({"text": text, "timestamp": iso(seconds), **author})


@pytest.mark.parametrize("at", ["whitespace", full("items")])
def test_words_and_fields_are_counted_in_windows(pipeline: Pipeline, at: str) -> None:
    pipeline.create()

    def written(seconds: int, text: str) -> str:
        return line(seconds, text.split() if at == "items" else text)

    settings = [
        "inputs.0.fields={key: text, event_time: timestamp}",
        f"inputs.0.explode={{at: {at}, case: lower}}",
        "outputs.0.fields.values={clicks: count, paid: paid}",
        "late=[]",
    ]
    oracle = "{kind: sliding_window, size: 15s, slide: 5s, values: {clicks: count, paid: count(by)}}"
    lines = {seconds: f"W{seconds % 2}  w{seconds % 3} the" for seconds in range(15, 75)}
    pipeline.clicks(*(written(*one) for one in lines.items()), written(40, " "))
    counted, known = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
    for seconds, text in lines.items():
        for word in text.lower().split():
            counted.update(owed_by(word, seconds, 5))
            known.update(owed_by(word, seconds, 5) if seconds % 3 and seconds % 5 else ())
    pipeline.answers(*(result(*cell, count, known[cell]) for cell, count in counted.items()))
    run = validate(pipeline, oracle, "perfect", *settings)
    assert run.counts() == {"expected": counted.total(), "processed": counted.total()}
    assert (run.status, run.verdicts) == (0, ("pass", "pass", "pass"))
    assert run.report["results"]["correct"] == len(counted)
    assert run.report["coverage"]["complete"]

    # One word of a line is lost; of the other, a field is counted that is null.
    pipeline.clicks(written(200, "lost the"))
    pipeline.answers(*(result("the", start, 1, 1) for start in (190, 195, 200)), result("", 40, 1, 1))
    run = validate(pipeline, oracle, "broken", *settings)
    assert run.counts("missing", "duplicate", "unknown_id") == {"missing": 3, "duplicate": 0, "unknown_id": 0}
    assert run.report["violations"]["confirmed"]["wrong_value"] == 3
    assert run.verdicts == ("fail", "fail", "fail")


def test_different_values_are_counted_in_results_above_a_bound(pipeline: Pipeline) -> None:
    pipeline.create()

    def seen(key: str, seconds: int) -> str:
        # The text and the number are the same value.
        amount = seconds % 3 if seconds % 2 else str(seconds % 3)
        return json.dumps({"page": key, "timestamp": iso(seconds), "amount": amount})

    oracle = "{kind: tumbling_window, size: 15s, values: {clicks: count, paid: distinct(amount)}, having: HAVING}"
    oracle = oracle.replace("HAVING", "{clicks: {above: 1}}")
    settings = ["inputs.0.fields={key: page, event_time: timestamp}", "late=[]"]
    settings.append("outputs.0.fields.values={clicks: count, paid: paid}")
    used = {start: range(start, start + SIZE_SECONDS, 2 + start // SIZE_SECONDS) for start in range(15, 105, 15)}
    pipeline.clicks(*(seen("k0", seconds) for window in used.values() for seconds in window), seen("k1", 16))
    kinds = {start: len({seconds % 3 for seconds in window}) for start, window in used.items()}
    assert len(set(kinds.values())) > 1
    pipeline.answers(*(result("k0", start, len(window), kinds[start]) for start, window in used.items()))
    run = validate(pipeline, oracle, "perfect", *settings)
    many = sum(map(len, used.values()))
    assert run.counts() == {"expected": many, "processed": many}
    assert (run.status, run.verdicts) == (0, ("pass", "pass", "pass"))

    # Two events without a result, a result below the bound, and one with another number of values.
    pipeline.clicks(seen("k2", 16), seen("k2", 17), seen("k3", 16), seen("k3", 17))
    pipeline.answers(result("k1", 15, 1, 1), result("k3", 15, 2, 1))
    run = validate(pipeline, oracle, "broken", *settings)
    assert run.counts("missing", "duplicate", "unknown_id") == {"missing": 2, "duplicate": 0, "unknown_id": 0}
    assert run.report["results"]["undecodable"] == 1
    assert run.report["violations"]["confirmed"]["wrong_value"] == 1
    violations = json.loads((pipeline.state("broken") / "violations.json").read_text())["violations"]
    said = {one["class"]: one["explanation"] for one in violations}
    assert said["wrong_value"].endswith("paid is 1 and should be 2")


def test_sums_over_ids_name_the_lost_and_the_repeated_event(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline.create()
    ids = {seconds: f"order-{seconds * seconds}" for seconds in range(15, 135)}

    def seen(seconds: int) -> str:
        return json.dumps({"order": ids[seconds], "page": "k0", "timestamp": iso(seconds)})

    def stated(start: int, used: list[int]) -> str:
        hashes = [zlib.crc32(ids[seconds].encode()) for seconds in used]
        # As the engine's 64-bit integers, which wrap around.
        squares = (sum(number * number for number in hashes) + 2**63) % 2**64 - 2**63
        sums = {"count": len(used), "orders": sum(hashes), "squares": squares}
        return json.dumps({"page": "k0", "windowStart": iso(start), **sums})

    sums = "orders: sum_mod64(crc32(order)), squares: sum_squares_mod64(crc32(order))"
    oracle = f"{{kind: tumbling_window, size: 15s, values: {{clicks: count, {sums}}}}}"
    settings = [
        "inputs.0.fields={id: order, key: page, event_time: timestamp}",
        "outputs.0.fields.values={clicks: count, orders: orders, squares: squares}",
        "late=[]",
    ]
    windows = {start: list(range(start, start + SIZE_SECONDS)) for start in range(15, 135, 15)}
    pipeline.clicks(*map(seen, ids))
    kept = {start: used for start, used in windows.items() if start not in (30, 45, 60)}
    pipeline.answers(*(stated(*one) for one in kept.items()))
    changed = {30: windows[30][2:], 45: [*windows[45], 50], 60: [*windows[60][1:], 66]}
    pipeline.answers(*(stated(*one) for one in changed.items()))
    run = validate(pipeline, oracle, "state", *settings)
    assert (run.status, run.verdicts) == (1, ("fail", "fail", "fail"))
    assert run.counts("missing", "duplicate", "unknown_id") == {"missing": 2, "duplicate": 1, "unknown_id": 0}
    assert run.report["results"]["correct"] == len(kept)
    violations = json.loads((pipeline.state("state") / "violations.json").read_text())["violations"]
    assert {one["class"]: sorted(one["ids"]) for one in violations} == {
        "missing": [ids[30], ids[31]],
        "duplicate": [ids[50]],
        "wrong_value": sorted([ids[60], ids[66]]),
    }
    # The first of the two is the lost one.
    [wrong] = [one for one in violations if one["class"] == "wrong_value"]
    assert wrong["ids"] == [ids[60], ids[66]]
    assert wrong["explanation"].endswith("; one lost and one repeated event explain it")
    capsys.readouterr()
    assert explain.run(pipeline.state("state"), ids[30]) == 0
    said = capsys.readouterr().out
    assert "read as an input event from" in said
    assert re.search(rf"\(ids ({ids[30]}, {ids[31]}|{ids[31]}, {ids[30]})\)", said)


def explained_cell(pipeline: Pipeline, capsys: pytest.CaptureFixture[str], window: str, settings: list[str]) -> str:
    """What `explain` says of the key k0 after it has read the events again."""
    (pipeline.folder / "pipeline.yaml").write_text(EXAMPLES["counts"], encoding="utf-8")
    given = [part for one in settings for part in ("--set", one)]
    capsys.readouterr()
    cell = ["--cell", window, "k0", "--config", str(pipeline.folder / "pipeline.yaml")]
    assert main(["explain", str(pipeline.state("state")), *cell, *given]) == 0
    return capsys.readouterr().out.splitlines()[-1].strip()


@pytest.mark.full
def test_explain_names_the_event_that_a_running_sum_lacks(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline.create()
    pipeline.clicks(*(event(key, seconds) for seconds in range(15, 31) for key in ("k0", "k1")))
    used = [amount_of(seconds) for seconds in range(15, 31) if seconds != 20]
    for number in (3, len(used)):
        pipeline.answers(result("k0", 0, number, str(sum(map(Decimal, map(str, used[:number]))))))
    oracle = "{kind: running_aggregate, values: {clicks: count, paid: sum(amount)}}"
    output = f"{{topic: {pipeline.name}-out, evidence: values, emission: cumulative, "
    fields = "fields: {key: page, values: {clicks: count, paid: paid}}}"
    given = settings_of(pipeline, oracle, "state", "late=[]", f"outputs=[{output}{fields}]")
    given = [one for one in given if not one.startswith("outputs.0.")]
    config = loads(EXAMPLES["counts"], pipeline.folder, given, {})
    assert Sidecar(config, once=True, say=print, session=pipeline.spark).run() == 1
    said = explained_cell(pipeline, capsys, "-", given)
    assert said == f"its values are those of its events with the event at {pipeline.name}-in-0 offset 10 lost"


@pytest.mark.parametrize("emission", ["final", full("cumulative")])
def test_explain_names_the_events_that_explain_a_count_and_a_sum(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str], emission: str
) -> None:
    pipeline.create(inputs=2)
    # Of no two events is the difference that of others, but 92 and 93 s have the same amount.
    paid = {seconds: round((seconds - (seconds == 93)) ** 3 / 100, 2) for seconds in range(15, 135)}
    placed: dict[int, str] = {}
    for partition in (0, 1):
        own = [seconds for seconds in paid if seconds % 2 == partition]
        clicks = [json.dumps({"page": "k0", "timestamp": iso(seconds), "amount": paid[seconds]}) for seconds in own]
        pipeline.clicks(*clicks, partition=partition)
        placed |= {seconds: f"{pipeline.name}-in-{partition} offset {place}" for place, seconds in enumerate(own)}

    def stated(start: int, used: list[int]) -> str:
        return result("k0", start, len(used), str(sum(Decimal(str(paid[seconds])) for seconds in used)))

    windows = {start: list(range(start, start + SIZE_SECONDS)) for start in range(15, 135, 15)}
    if emission == "cumulative":
        pipeline.answers(*(stated(start, used[:2]) for start, used in windows.items()))
    changed = {
        30: windows[30][1:],
        45: [*windows[45], 50],
        60: [*windows[60][1:], 66],
        75: windows[75][3:],
        90: [one for one in windows[90] if one != 92],
    }
    pipeline.answers(*(stated(*one) for one in {**windows, **changed}.items()))
    oracle = "{kind: tumbling_window, size: 15s, values: {clicks: count, paid: sum(amount)}}"
    given = [f"outputs.0.emission={emission}", "late=[]"]
    assert validate(pipeline, oracle, "state", *given).status == 1

    def explained(start: int) -> str:
        return explained_cell(pipeline, capsys, f"{start}000000", settings_of(pipeline, oracle, "state", *given))

    with_one = "its values are those of its events with the event at"
    assert explained(15) == "its results state the number and the sums of its 15 events"
    assert explained(30) == f"{with_one} {placed[30]} lost"
    assert explained(45) == f"{with_one} {placed[50]} repeated"
    assert explained(60) == f"{with_one} {placed[60]} lost and the event at {placed[66]} repeated"
    assert explained(75) == "no lost or repeated event, and no pair of them, explains its values"
    assert explained(90) == f"2 changes explain its values alike, such as the event at {placed[92]} lost"


@pytest.mark.full
def test_repeats_that_the_pipeline_drops_count_once(pipeline: Pipeline) -> None:
    pipeline.create()
    sent = [seconds for seconds in range(15, 135) for _ in range(2 if seconds % 5 == 0 else 1)]
    pipeline.clicks(*(json.dumps({"order": f"o{it}", **json.loads(event("k0", it))}) for it in sent))
    windows = {start: list(range(start, start + SIZE_SECONDS)) for start in range(15, 135, 15)}
    paid = {start: sum((Decimal(str(amount_of(it))) for it in used), Decimal(0)) for start, used in windows.items()}
    counts = dict.fromkeys(windows, SIZE_SECONDS) | {45: SIZE_SECONDS + 3, 60: SIZE_SECONDS - 1}
    paid[75] += 1
    pipeline.answers(*(result("k0", start, counts[start], float(paid[start])) for start in windows))
    oracle = "{kind: tumbling_window, size: 15s, values: {clicks: count, paid: sum(amount)}}"
    settings = ["late=[]", "inputs.0.duplicates=collapse"]
    run = validate(
        pipeline, oracle, "state", *settings, "inputs.0.fields={id: order, key: page, event_time: timestamp}"
    )
    assert (run.status, run.verdicts) == (1, ("fail", "fail", "fail"))
    expected = {"expected": SIZE_SECONDS * len(windows), "missing": 1, "duplicate": 3, "unknown_id": 0}
    assert run.counts(*expected) == expected
    assert run.report["violations"]["confirmed"]["wrong_value"] == 1
    assert run.report["coverage"]["complete"]


@pytest.mark.full
def test_windows_are_updated_in_several_outputs(pipeline: Pipeline) -> None:
    pipeline.create()
    more = f"{pipeline.name}-more"
    pipeline.broker.create_topics({more: 1})
    pipeline.clicks(*(event("k0", seconds) for seconds in range(15, 135)))
    starts = range(15, 135, 15)
    for many in (7, SIZE_SECONDS):
        for start in starts:
            many_now = many - (start == 60 and many == SIZE_SECONDS)
            pipeline.put(more if start % 2 else f"{pipeline.name}-out", result("k0", start, many_now))
    oracle = "{kind: tumbling_window, size: 15s, values: {clicks: count}}"
    fields = "fields: {key: page, window_start: windowStart, values: {clicks: count}}"
    settings = ["late=[]", "outputs.0.fields.values={clicks: count}", "outputs.0.emission=cumulative"]
    settings.append(f"outputs.1={{topic: {more}, evidence: values, emission: cumulative, {fields}}}")
    run = validate(pipeline, oracle, "state", *settings)
    expected = {"processed": SIZE_SECONDS * len(starts) - 1, "missing": 1, "duplicate": 0, "out_of_scope": 0}
    assert run.counts(*expected) == expected
    assert (run.status, run.verdicts) == (1, ("pass", "fail", "fail"))


def test_values_beside_ids_must_follow_from_the_ids(pipeline: Pipeline) -> None:
    pipeline.create()

    def seen(seconds: int) -> str:
        return json.dumps({"n": seconds, "page": "k0", "timestamp": iso(seconds), "amount": amount_of(seconds)})

    def total(start: int, ids: list[int], paid: Any = None, count: int | None = None) -> str:
        stated = str(sum(Decimal(str(amount_of(one))) for one in ids)) if paid is None else paid
        found = {"page": "k0", "windowStart": iso(start), "ids": ids, "paid": stated}
        return json.dumps(found | {"count": len(ids) if count is None else count})

    oracle = "{kind: tumbling_window, size: 15s, values: {clicks: count, paid: sum(amount)}}"
    fields = "{key: page, window_start: windowStart, ids: ids, values: {clicks: count, paid: paid}}"
    settings = [
        "inputs.0.fields={id: n, key: page, event_time: timestamp}",
        f"outputs.0={{topic: {pipeline.name}-out, fields: {fields}}}",
        "late=[]",
    ]
    windows = {start: list(range(start, start + SIZE_SECONDS)) for start in range(15, 120, 15)}
    pipeline.clicks(*(seen(seconds) for window in windows.values() for seconds in window))
    pipeline.answers(*(total(*window) for window in windows.items()))
    run = validate(pipeline, oracle, "perfect", *settings)
    assert (run.status, run.verdicts) == (0, ("pass", "pass", "pass"))
    assert run.report["results"]["inconsistent"] == 0

    # A part of a window with its sum is only a repeat; with another sum, or another count, it is inconsistent.
    pipeline.answers(total(15, [15, 16]), total(30, [31, 30], "1"), total(45, [45], None, 2))
    run = validate(pipeline, oracle, "broken", *settings)
    assert run.counts("missing", "duplicate") == {"missing": 0, "duplicate": 5}
    assert {name: run.report["results"][name] for name in ("inconsistent", "excess")} == {
        "inconsistent": 2,
        "excess": 1,
    }
    assert run.report["violations"]["confirmed"]["inconsistent"] == 2
    assert run.verdicts == ("fail", "fail", "fail")
    violations = json.loads((pipeline.state("broken") / "violations.json").read_text())["violations"]
    said = {one["explanation"].rpartition(": ")[2] for one in violations if one["class"] == "inconsistent"}
    assert said == {"paid is 1 and should be 2.1", "clicks is 2 and should be 1"}


@pytest.mark.parametrize("emission", [full("final"), "cumulative"])
def test_pairs_of_a_join_are_counted_in_windows(pipeline: Pipeline, emission: str) -> None:
    pipeline.create()
    name = pipeline.name
    prices = f"{name}-prices"
    pipeline.broker.create_topics({prices: 1})
    lefts = {start: [start, start + 3, start + 7] for start in range(15, 105, 15)}
    rights = {start: [start + 1] * (start // 15 % 4) for start in lefts}
    pipeline.clicks(*(event("k0", seconds) for window in lefts.values() for seconds in window), LOGIN)
    pipeline.clicks(event("k0", 300))
    pipeline.put(prices, *(price(seconds, 2.5) for window in rights.values() for seconds in window), price(300, 1))
    fields = "{key: page, event_time: timestamp}"
    settings = [
        f"inputs=[{{topic: {name}-in, fields: {fields}}}, {{topic: {prices}, fields: {fields}}}]",
        "outputs.0.fields.values={pairs: count, paid: paid, offered: offered}",
        f"outputs.0.emission={emission}",
        "late=[]",
    ]
    oracle = (
        f"{{kind: windowed_join, join: inner, left: {name}-in, right: {prices}, size: 15s, "
        "values: {pairs: count, paid: sum(left.amount), offered: sum(right.price)}, "
        "where: {path: kind, none_of: [login]}}"
    )

    def joined(start: int, count: int, paid: Decimal, offered: float) -> list[str]:
        found = {"page": "k0", "windowStart": iso(start), "count": count, "paid": str(paid), "offered": offered}
        # An engine that updates its results has stated less before.
        before = [{**found, "count": count - 1, "paid": "0", "offered": 0}] if emission == "cumulative" else []
        return [json.dumps(one) for one in (*before, found)]

    owed = {}
    for start, window in lefts.items():
        paid = sum((Decimal(str(amount_of(seconds))) for seconds in window), Decimal(0))
        many = len(rights[start])
        owed[start] = (len(window) * many, paid * many, 2.5 * many * len(window))
    assert {count for count, _, _ in owed.values()} == {0, 3, 6, 9}
    pipeline.answers(*(one for start, values in owed.items() if values[0] for one in joined(start, *values)))
    pipeline.answers(*joined(300, 1, Decimal(str(amount_of(300))), 1))
    run = validate(pipeline, oracle, "perfect", *settings)
    pairs = sum(count for count, _, _ in owed.values()) + 1
    assert run.counts() == {"expected": pairs, "processed": pairs}
    assert (run.status, run.verdicts) == (0, ("pass", "pass", "pass"))
    assert run.report["coverage"]["complete"]
    assert "pairs" in run.report["cannot_see"][0]

    # An event of the right side is lost, and with it the pairs with three left ones; a window is answered twice; one
    # without prices is answered; and one has the values of another event.
    pipeline.clicks(*(event("k0", seconds) for seconds in (600, 602, 604, 630, 660, 900)))
    pipeline.put(prices, *(price(seconds, 1) for seconds in (600, 601, 660, 900)))
    pipeline.answers(*joined(600, 3, amount_in(600, 602, 604), 3))
    many, paid, offered = owed[15]
    pipeline.answers(
        joined(15, 2 * many, 2 * paid, 2 * offered)[-1] if emission == "cumulative" else joined(15, *owed[15])[0]
    )
    pipeline.answers(*joined(630, 1, amount_in(630), 1), *joined(660, 1, amount_in(661), 1))
    pipeline.answers(*joined(900, 1, amount_in(900), 1))
    run = validate(pipeline, oracle, "broken", *settings)
    assert run.counts("missing", "duplicate", "unknown_id") == {"missing": 3, "duplicate": owed[15][0], "unknown_id": 1}
    assert run.report["violations"]["confirmed"]["wrong_value"] == 1
    assert run.verdicts == ("fail", "fail", "fail")


def amount_in(*seconds: int) -> Decimal:
    return sum((Decimal(str(amount_of(one))) for one in seconds), Decimal(0))


def price(seconds: int, offered: float) -> str:
    return json.dumps({"page": "k0", "timestamp": iso(seconds), "price": offered, "kind": "price"})


RULES: Final = """
from validator.oracles.python import Python
from validator.oracles.tumbling_window import TumblingWindow

class Loud(Python, TumblingWindow):
    def key(self, fields):
        kind, page = fields
        return None if kind == "login" else page.upper()
"""


def test_a_class_computes_keys_in_the_workers(pipeline: Pipeline) -> None:
    pipeline.create(inputs=2)
    (pipeline.folder / "rules.py").write_text(RULES)
    login = json.dumps({"kind": "login", "page": "k0", "timestamp": iso(20)})
    for partition in (0, 1):
        pipeline.clicks(*(event(*one) for one in EVENTS if one[1] % 2 == partition), login, partition=partition)
    settings = [
        "inputs.0.fields={key: [kind, page], event_time: timestamp}",
        "outputs.0.fields.values={clicks: count}",
        "late=[]",
    ]
    oracle = "{kind: python, class: 'rules:Loud', size: 15s, values: {clicks: count}}"
    counted = {(key.upper(), start): count for (key, start), count in owed(SIZE_SECONDS).items()}
    pipeline.answers(*(result(*cell, count) for cell, count in list(counted.items())[1:]))
    run = validate(pipeline, oracle, "broken", *settings)
    [(_, lost), *_] = counted.items()
    total = len(EVENTS)
    assert run.counts() == {"expected": total, "processed": total - lost, "missing": lost}
    assert run.verdicts == ("pass", "fail", "fail")

    pipeline.answers(result(*next(iter(counted)), lost))
    run = validate(pipeline, oracle, "perfect", *settings)
    assert (run.status, run.verdicts) == (0, ("pass", "pass", "pass"))
    assert run.report["results"]["correct"] == len(counted)


def test_a_live_sidecar_counts_without_ids_and_finds_a_wrong_sum(pipeline: Pipeline) -> None:
    pipeline.create()
    amounts = {15: (0.1, 0.2), 30: (0.3, 0.4), 45: (0.5, 0.5), 60: (1, 2)}
    for start, of_window in amounts.items():
        pipeline.clicks(*(json.dumps({"page": "k", "timestamp": iso(start), "amount": one}) for one in of_window))
    # It closes all other windows, and stays open.
    pipeline.clicks(json.dumps({"page": "k", "timestamp": iso(600), "amount": 1}))
    fields = "{key: page, window_start: windowStart, values: {clicks: count, paid: paid}}"
    settings = (
        "inputs.0.fields={key: page, event_time: timestamp}",
        f"outputs.0={{topic: {pipeline.output}, evidence: values, fields: {fields}}}",
        "late=[]",
        "oracle={kind: tumbling_window, size: 15s, values: {clicks: count, paid: sum(amount)}}",
    )
    with pipeline.live(*settings) as live:
        live.until(lambda report: report["contributions"]["missing"] == 8)
        pipeline.answers(*(result("k", start, 2, round(sum(of), 1)) for start, of in amounts.items()))
        report = live.until(lambda report: report["results"]["correct"] == 4)
        assert (report["violations"]["confirmed"]["missing"], report["violations"]["retracted"]["missing"]) == (0, 8)
        pipeline.clicks(json.dumps({"page": "k", "timestamp": iso(15), "amount": 1}))
        pipeline.answers(result("k", 15, 1, 1.01))
        report = live.until(lambda report: report["violations"]["confirmed"]["wrong_value"] == 2)
        assert report["verdicts"]["exactly_once"] == "fail"
