"""Running aggregates on a real broker, with ids that the engine drops, duplicates, misplaces, invents or withdraws."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from tests.integration.sidecar_fixtures import Pipeline, click
from validator.publish import explain

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

EVENTS = 40
KEYS = ("a", "b", 'it\'s "odd", ü')


def settings(*more: str, key: str = "$key") -> tuple[str, ...]:
    fields = json.dumps({"key": key, "ids": "clickIds"})
    return ("oracle={kind: running_aggregate}", f"outputs.0.fields={fields}", *more)


CUMULATIVE = settings("outputs.0.emission=cumulative")


def key_of(number: int) -> str:
    return KEYS[number % len(KEYS)]


def ids_of(key: str, upto: int = EVENTS) -> list[object]:
    """Return integer and string ids."""
    return [id_of(number) for number in range(upto) if key_of(number) == key]


def id_of(number: int) -> object:
    return number if number % 5 else f"text-{number}"


def listing(ids: Sequence[object]) -> str:
    return json.dumps({"clickIds": list(ids)})


def fed(pipeline: Pipeline) -> None:
    """Write events of all keys."""
    pipeline.create(outputs=2)
    pipeline.clicks(*[click(id_of(number), number, key_of(number)) for number in range(EVENTS)])


def said(pipeline: Pipeline, key: str, *ids: Sequence[object] | None) -> None:
    """Write results of a key to the key's partition; None is a tombstone."""
    values = [None if one is None else listing(one) for one in ids]
    pipeline.put(pipeline.output, *values, key=key, partition=KEYS.index(key) % 2)


@pytest.mark.full
def test_each_event_in_one_list_of_its_key_passes(pipeline: Pipeline) -> None:
    fed(pipeline)
    for key in KEYS:
        ids = ids_of(key)
        said(pipeline, key, ids[:3], [], ids[3:])
    run = pipeline.once(*settings())
    assert run.counts() == {"expected": EVENTS, "processed": EVENTS}
    assert run.verdicts == ("pass", "pass", "pass")
    assert run.status == 0


@pytest.mark.full
def test_deviations_of_lists_are_counted(pipeline: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
    fed(pipeline)
    a, b, odd = map(ids_of, KEYS)
    # Key "a": one id is dropped, one is repeated, one belongs to key "b". Key "b": one id was never sent.
    said(pipeline, "a", a[:5], [*a[6:], a[0], b[0]])
    said(pipeline, "b", [*b, "ghost"])
    said(pipeline, KEYS[2], odd, odd[:2])
    run = pipeline.once(*settings())
    assert run.counts() == {
        "expected": EVENTS,
        "processed": EVENTS - 1,
        "missing": 1,
        "duplicate": 3,
        "misplaced": 1,
        "unknown_id": 1,
    }
    assert run.verdicts == ("fail", "fail", "fail")
    found = json.loads((pipeline.state() / "violations.json").read_text())["violations"]
    assert {(one["class"], tuple(one["ids"]), one["window_start"]) for one in found} == {
        ("missing", (str(a[5]),), None),
        ("duplicate", (str(a[0]),), None),
        ("duplicate", (str(odd[0]),), None),
        ("duplicate", (str(odd[1]),), None),
        ("misplaced", (str(b[0]),), None),
        ("unknown_id", ("ghost",), None),
    }
    capsys.readouterr()
    assert explain.run(pipeline.state(), str(a[5])) == 0
    printed = capsys.readouterr().out
    assert f'for cell ["a","{a[5]}"]\n' in printed
    assert "missing confirmed, before any fault" in printed
    assert explain.run(pipeline.state(), ("-", f'["a","{a[5]}"]')) == 0
    assert capsys.readouterr().out.startswith(f'Cell ["a","{a[5]}"]\n')


@pytest.mark.full
def test_lists_that_replace_each_other_pass(pipeline: Pipeline) -> None:
    fed(pipeline)
    for key in KEYS:
        ids = ids_of(key)
        # The engine loses its state, as after a recovery, and sends the list again.
        said(pipeline, key, ids[:3], ids[:8], None, ids[:2], ids)
    run = pipeline.once(*CUMULATIVE)
    assert run.counts() == {"expected": EVENTS, "processed": EVENTS}
    assert run.report["results"]["tombstone"] == len(KEYS)
    assert run.verdicts == ("pass", "pass", "pass")


def test_the_newest_list_counts(pipeline: Pipeline) -> None:
    fed(pipeline)
    a, b, odd = map(ids_of, KEYS)
    # A later list corrects the errors of an earlier one.
    said(pipeline, "a", [*a, a[0], "ghost"], [*a[:2], *a[3:], b[1], b[1], "invented", a[4]])
    said(pipeline, "b", b)
    said(pipeline, KEYS[2], odd)
    run = pipeline.once(*CUMULATIVE)
    wrong = {"missing": 1, "duplicate": 1, "misplaced": 2, "unknown_id": 1}
    assert run.counts() == {"expected": EVENTS, "processed": EVENTS - 1, **wrong}
    # A second run continues: the list is corrected, and the last list of b is withdrawn.
    said(pipeline, "a", a)
    said(pipeline, "b", None)
    run = pipeline.once(*CUMULATIVE)
    assert run.counts() == {"expected": EVENTS, "processed": EVENTS - len(b), "missing": len(b)}
    said(pipeline, "b", b)
    run = pipeline.once(*CUMULATIVE)
    assert run.counts() == {"expected": EVENTS, "processed": EVENTS}
    assert run.verdicts == ("pass", "pass", "pass")


@pytest.mark.full
def test_a_key_on_two_partitions_is_in_doubt(pipeline: Pipeline) -> None:
    fed(pipeline)
    for key in KEYS:
        said(pipeline, key, ids_of(key))
    pipeline.put(pipeline.output, listing(ids_of("a", 9)), key="a", partition=1)
    run = pipeline.once(*CUMULATIVE)
    assert run.counts() == {
        "expected": EVENTS - len(ids_of("a")),
        "processed": EVENTS - len(ids_of("a")),
        "out_of_scope": len(ids_of("a")),
    }
    assert run.verdicts == ("unknown", "unknown", "unknown")
    assert any(reason.startswith("1 key has results ") for reason in run.report["reasons"])


@pytest.mark.full
def test_a_running_aggregate_may_have_a_key_of_two_fields(pipeline: Pipeline) -> None:
    pipeline.create()
    pipeline.clicks(*[click(number, number, "x", user=number % 2) for number in range(6)])
    one = [json.dumps({"page": "x", "user": number % 2, "clickId": number}) for number in range(6)]
    pipeline.answers(*one[:4], one[4], one[4])
    keys = (
        "inputs.0.fields={id: id, key: [page, user], event_time: timestamp}",
        "late=[]",
        "outputs.0={topic: " + pipeline.output + ", evidence: id, emission: incremental, "
        "fields: {key: [page, user], id: clickId}}",
    )
    run = pipeline.once("oracle={kind: running_aggregate}", *keys)
    assert run.counts() == {"expected": 6, "processed": 5, "duplicate": 1, "missing": 1}
    found = json.loads((pipeline.state() / "violations.json").read_text())["violations"]
    assert {(record["class"], record["key"]) for record in found} == {
        ("duplicate", '["x","0","4"]'),
        ("missing", '["x","1","5"]'),
    }


@pytest.mark.full
def test_repeats_in_two_inputs_collapse(pipeline: Pipeline) -> None:
    pipeline.create()
    second = f"{pipeline.name}-more"
    pipeline.broker.create_topics({second: 1})
    pipeline.clicks(click(1, 1), click(2, 2), click(2, 2))
    pipeline.put(second, click(2, 2), click(3, 3), click(4, 4))
    fields = "fields: {id: id, key: page, event_time: timestamp}, duplicates: collapse"
    inputs = f"inputs=[{{topic: {pipeline.input}, {fields}}}, {{topic: {second}, {fields}}}]"
    said = [json.dumps({"page": "a", "clickIds": ids}) for ids in ([1, 2], [1, 2, 3])]
    pipeline.answers(*said)
    found = {}
    for emission in ("final", "cumulative"):
        more = (inputs, f"outputs.0.emission={emission}")
        found[emission] = pipeline.once(*settings(*more, key="page"), state=emission).counts()
    assert found == {
        "final": {"expected": 4, "processed": 3, "duplicate": 2, "missing": 1},
        "cumulative": {"expected": 4, "processed": 3, "missing": 1},
    }
    # The key is a field of the value. A tombstone has no value, so it does not show which result is withdrawn.
    pipeline.answers(None)
    run = pipeline.once(inputs, *settings("outputs.0.emission=cumulative", key="page"), state="cumulative")
    assert run.counts() == found["cumulative"]
    assert run.report["results"]["tombstone"] == 1


def test_a_withdrawn_id_is_missing_until_a_later_run_reads_it_again(pipeline: Pipeline) -> None:
    fed(pipeline)
    # Later than all others, so that the watermark passes their cells.
    pipeline.clicks(click("last", EVENTS, "a"))
    for key in KEYS:
        said(pipeline, key, ids_of(key))
    with pipeline.live(*CUMULATIVE) as live:
        live.until(lambda report: report["contributions"]["processed"] == EVENTS)
        withdrawn = len(ids_of("b"))
        said(pipeline, "b", None)
        report = live.until(lambda report: report["contributions"]["processed"] == EVENTS - withdrawn)
        assert report["violations"]["confirmed"]["missing"] == 0
        live.until(lambda report: report["violations"]["confirmed"]["missing"] == withdrawn)
    with pipeline.live(*CUMULATIVE) as live:
        live.until(lambda report: report["contributions"]["missing"] == withdrawn)
        said(pipeline, "b", ids_of("b"))
        report = live.until(lambda report: report["contributions"]["processed"] == EVENTS)
        assert report["violations"]["retracted"]["missing"] == withdrawn
        assert report["contributions"]["pending"] == 1
        assert report["verdicts"]["exactly_once"] == "pass"
