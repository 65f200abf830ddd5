"""A configuration that fits no record confirms nothing about the pipeline: the verdict is unknown, and says what to
check."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import Producer

from tests.integration.sidecar_fixtures import Pipeline, answer, aside_topic, click, iso, set_aside
from tests.tiers import first_of
from validator.cli.main import main
from validator.state.identity import StateMismatch

pytestmark = pytest.mark.timeout(900)

EVENTS = range(1, 17)
ANSWERED, LATE, REJECTED = range(1, 13), range(13, 15), range(15, 17)


def perfect(pipeline: Pipeline) -> str:
    """Write a history in which the engine handles every event; return the setting of its rejected topic."""
    pipeline.create()
    rejected = f"{pipeline.name}-rejected"
    pipeline.broker.create_topics({rejected: 1})
    pipeline.clicks(*(click(number, 10 + number / 2) for number in EVENTS))
    for ids in (ANSWERED[:6], ANSWERED[6:]):
        window = {"windowStart": iso(10), "windowMs": 10_000}
        pipeline.answers(
            json.dumps({"page": "a", **window, "clickIds": list(ids), "sizes": [n + 900 for n in ids], "more": []})
        )
    pipeline.put(pipeline.late, *(set_aside(number, 10 + number / 2) for number in LATE))
    pipeline.put(rejected, *(set_aside(number, 10 + number / 2) for number in REJECTED))
    return aside_topic("rejected", rejected)


WRONG = {
    "inputs.0.fields.event_time=placed_at": ("-in", "event_time"),
    "outputs.0.fields.ids=[eventIds]": ("-out", "ids"),
    "late.0.fields.id=id": ("-late", "id"),
    "rejected.0.fields.key=site": ("-rejected", "key"),
    "outputs.0.fields.ids=[sizes]": ("", "fields.id"),
    "outputs.0.fields.ids=[more]": ("", "outputs[0].fields.ids may name another list"),
    "outputs.0.fields.window_start={path: windowMs, unit: s}": ("", "unit"),
}


@pytest.mark.parametrize("wrong", first_of(WRONG))
def test_a_wrong_field_is_named_and_confirms_no_violation(pipeline: Pipeline, wrong: str) -> None:
    rejected = perfect(pipeline)
    topic, named = WRONG[wrong]

    run = pipeline.once(rejected, wrong)

    assert not any(run.report["violations"]["confirmed"].values()), run.report["violations"]
    assert run.verdicts == ("unknown", "unknown", "unknown")
    assert run.status == 3
    [said] = [reason for reason in run.report["reasons"] if "is in doubt" in reason]
    assert named in said
    if topic:
        assert f"topic {pipeline.name}{topic} is in doubt: no record of it decodes" in said
    assert pipeline.once(rejected, state="right").report["outcome"] == "pass"


UPDATES = "updates"
MISFITS = {
    "oracle.size=5s": "oracle.size is 5s, but 10s fits",
    UPDATES: "each result contains the one before it",
    "oracle.size=20s": "oracle.size is 20s, but 10s fits",
}


@pytest.mark.parametrize("wrong", first_of(MISFITS))
def test_a_wrong_parameter_is_named_and_accuses_no_engine(pipeline: Pipeline, wrong: str) -> None:
    """The engine answers windows of 10 s; its results may be updates."""
    pipeline.create()
    pipeline.clicks(*(click(number, number / 4) for number in range(400)))
    windows = [list(range(40 * window, 40 * window + 40)) for window in range(10)]
    sizes = range(10, 41, 10) if wrong == UPDATES else [40]
    pipeline.answers(*(answer(ids[:size], window) for window, ids in enumerate(windows) for size in sizes))
    run = pipeline.once(*([] if wrong == UPDATES else [wrong]))
    assert not any(run.report["violations"]["confirmed"].values()), run.report["violations"]
    assert run.status == 3
    assert any(MISFITS[wrong] in reason for reason in run.report["reasons"])


@pytest.mark.full
def test_a_state_continues_with_corrected_fields(pipeline: Pipeline) -> None:
    """Topics that never decoded are read again. The fields of a topic that did decode cannot change."""
    rejected = perfect(pipeline)
    wrong_output, wrong_late = "outputs.0.fields.ids=[eventIds]", "late.0.fields.id=id"
    first = pipeline.once(rejected, wrong_output, wrong_late)
    assert first.report["violations"]["suspected"]["missing"] == len(ANSWERED) + len(LATE)
    with pytest.raises(StateMismatch, match=r"inputs\[0\].fields.id.path.*16 of 16 records "):
        pipeline.once(rejected, wrong_output, wrong_late, "inputs.0.fields.id=page")

    half = pipeline.once(rejected, wrong_output)
    assert half.counts("late", "rejected", "processed") == {"late": 2, "rejected": 2, "processed": 0}
    assert half.report["outcome"] == "unknown"

    right = pipeline.once(rejected)
    assert right.counts() == {"expected": 16, "processed": 12, "late": 2, "rejected": 2}
    assert right.report["outcome"] == "pass", right.report["reasons"]
    # Nothing was confirmed on the way, and nothing of the first reading remains.
    assert not any(right.report["violations"]["retracted"].values())
    assert not any(right.report["violations"]["suspected"].values())
    assert right.report["results"]["undecodable"] == 0
    assert pipeline.once(rejected).counts() == right.counts()


def test_a_settled_position_ends_the_doubt(pipeline: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
    pipeline.create()
    pipeline.clicks(click(1, 1), "click!", "another", click(2, 2), click(3, 3), "a third", click(4, 21))
    pipeline.answers(answer([1, 2, 3]), answer([2], window=5), answer([4], window=2))
    drop = "timing.late_policy=drop"
    before = pipeline.once(drop)
    assert before.report["violations"]["suspected"]["misplaced"] == 1
    assert before.report["outcome"] == "unknown"

    def ack(position: str, reason: str = "test load") -> int:
        return main(["ack", str(pipeline.state()), "--position", position, "--reason", reason])

    place = f"{pipeline.input}/0"
    assert [ack("in/0"), ack(f"{place}/0"), ack(f"{place}/9-3"), ack(f"{pipeline.output}/0/1")] == [2, 2, 2, 2]
    assert "undecodable records are at 1-2, 5-5" in capsys.readouterr().err
    assert ack(f"{place}/0-4") == 0
    assert "Settled: 2 undecodable records" in capsys.readouterr().out
    half = pipeline.once(drop)
    [reason] = half.report["reasons"]
    assert reason.startswith("1 input record could not be decoded")
    assert ack(f"{place}/1") == 2
    assert ack(f"{place}/5", "a probe") == 0

    settled = [
        {"topic": pipeline.input, "partition": 0, "first_offset": 1, "last_offset": 2, "records": 2, "by": "ack",
         "reason": "test load"},
        {"topic": pipeline.input, "partition": 0, "first_offset": 5, "last_offset": 5, "records": 1, "by": "ack",
         "reason": "a probe"},
    ]  # fmt: skip
    for _ in range(2):
        after = pipeline.once(drop)
        assert after.report["settled_positions"] == settled
        # A misplaced result that nothing explains any more is confirmed.
        assert after.report["violations"]["confirmed"]["misplaced"] == 1
        assert after.report["outcome"] == "fail"
    assert main(["report", str(pipeline.state())]) == 1
    assert f"{pipeline.input}-0, offset 5 (1 record), by ack: a probe" in capsys.readouterr().out
    for topic in (pipeline.input, pipeline.output, pipeline.late):
        pipeline.broker.delete_topic(topic)
    gone = pipeline.once(drop)
    assert (gone.report["settled_positions"], gone.report["outcome"], gone.status) == (settled, "fail", 1)
    sizes = [run.report["validator"]["state_bytes"] for run in (after, gone)]
    assert sizes[1].keys() == sizes[0].keys() > set()


@pytest.mark.full
def test_a_settled_record_makes_no_later_event_late(pipeline: Pipeline) -> None:
    pipeline.create()
    pipeline.clicks(click(1, 1), "click!", click(2, 2), click(3, 21))
    pipeline.answers(answer([1]), answer([3], window=2))
    drop = "timing.late_policy=drop"
    assert pipeline.once(drop).counts("missing", "overdue") == {"missing": 0, "overdue": 1}
    position = f"{pipeline.input}/0/1"
    assert main(["ack", str(pipeline.state()), "--position", position, "--reason", "no event"]) == 0
    for _ in range(2):
        assert pipeline.once(drop).counts("missing", "overdue") == {"missing": 1, "overdue": 0}


@pytest.mark.full
def test_a_rejected_record_settles_the_input_that_it_names(pipeline: Pipeline) -> None:
    pipeline.create()
    pipeline.clicks(click(1, 1), "click!", "another", "a third", click(2, 2))
    pipeline.answers(answer([1, 2]))
    topic = f"{pipeline.name}-rejected"
    pipeline.broker.create_topics({topic: 1})
    producer = Producer({"bootstrap.servers": pipeline.servers})
    for value, partition, offset in (
        ("click!", b"0", b"1"),  # Kafka Connect's format
        ("\x00", bytes(4), (2).to_bytes(8, "big")),  # Spring's format
        ("click!", b"0", b"4"),  # this record was decoded
    ):
        headers = [("topic", pipeline.input.encode()), ("partition", partition), ("offset", offset)]
        producer.produce(topic, value, headers=headers)
    assert producer.flush(30) == 0
    position = "{topic: $header.topic, partition: $header.partition, offset: $header.offset}"
    fields = f"{{id: id, key: page, event_time: timestamp, position: {position}}}"
    for _ in range(2):
        run = pipeline.once(f"rejected=[{{topic: {topic}, fields: {fields}}}]")
        settled = {(one["topic"], one["first_offset"], one["last_offset"], one["records"], one["by"])
                   for one in run.report["settled_positions"]}  # fmt: skip
        assert settled == {(pipeline.input, 1, 2, 2, topic), (topic, 0, 1, 2, topic)}
        assert run.counts() == {"expected": 2, "processed": 2}
        said = " ".join(run.report["reasons"])
        assert "1 input record " in said
        assert "1 rejected record " in said


def test_a_session_that_an_engine_closes_too_early_is_not_answered(pipeline: Pipeline) -> None:
    """Clicks at 0, 4 and 8 minutes are one session of a gap of 5 minutes. Nothing arrives late."""
    pipeline.create()
    pipeline.clicks(*(click(number, minute * 60) for number, minute in enumerate((0, 4, 8, 30, 60))))

    def session(first: int, last: int, *ids: int) -> str:
        at = {"windowStart": iso(first * 60), "windowEnd": iso(last * 60 + 300)}
        return json.dumps({"page": "a", **at, "clickIds": ids})

    sessions = "oracle={kind: session_window, gap: 5m}"
    with_end = "outputs.0.fields.window_end=windowEnd"
    pipeline.answers(session(0, 4, 0, 1), session(8, 8, 2), session(30, 30, 3), session(60, 61, 4))
    early = pipeline.once(sessions)
    assert early.counts("processed", "misplaced", "missing", "duplicate") == {
        "processed": 4,
        "misplaced": 1,
        "missing": 1,
        "duplicate": 0,
    }
    assert (early.verdicts, early.status) == (("fail",) * 3, 1)
    # The last result names an end that is not the end of its session.
    ends = pipeline.once(sessions, with_end, state="ends")
    assert ends.counts("processed", "misplaced", "missing") == {"processed": 3, "misplaced": 2, "missing": 2}
    # An engine with a shorter gap answers each click by itself.
    other = f"{pipeline.name}-short"
    pipeline.broker.create_topics({other: 1})
    pipeline.put(other, *(session(minute, minute, number) for number, minute in enumerate((0, 4, 8, 30, 60))))
    short = pipeline.once(sessions, f"outputs.0.topic={other}", state="short")
    assert (short.report["outcome"], short.status) == ("unknown", 3)
    assert any("check oracle.gap; a gap below 4m fits" in reason for reason in short.report["reasons"])
    summed = pipeline.once(sessions, f"outputs.0.topic={other}", "outputs.0.emission=incremental", state="summed")
    assert summed.report["outcome"] == "pass", summed.report["reasons"]


def test_a_loss_that_another_partition_may_excuse_is_not_confirmed(pipeline: Pipeline) -> None:
    """Partition 0 is a minute ahead, so an engine that measures lateness by all partitions drops what partition 1
    has."""
    pipeline.create(inputs=2)
    pipeline.clicks(*(click(number, 120 + number) for number in range(10)))
    pipeline.clicks(*(click(100 + number, number) for number in range(10)), partition=1)
    pipeline.answers(answer(range(10), window=12), answer([101, 103]))
    drop = "timing.late_policy=drop"
    open_scope = pipeline.once(drop)
    assert open_scope.counts("missing", "overdue", "dropped_late") == {"missing": 0, "overdue": 8, "dropped_late": 0}
    assert [reason for reason in open_scope.report["reasons"] if "set timing.lateness_scope: partition" in reason]
    by_topic = pipeline.once(drop, "timing.lateness_scope=topic", state="topic")
    assert by_topic.counts("missing", "overdue") == {"missing": 0, "overdue": 8}
    # SEMANTICS 2.31: a first batch shows no instants between its events.
    while_idle = pipeline.once(drop, "timing.lateness_scope=idle", state="idle")
    assert while_idle.counts("missing", "overdue") == {"missing": 0, "overdue": 8}
    assert [reason for reason in while_idle.report["reasons"] if "timing.lateness_scope is idle" in reason]
    by_partition = pipeline.once(drop, "timing.lateness_scope=partition", state="partition")
    assert by_partition.counts("missing", "overdue") == {"missing": 8, "overdue": 0}
    assert by_partition.report["outcome"] == "fail"
