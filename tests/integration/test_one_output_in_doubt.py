"""If one of several outputs has a wrong field or unit that still decodes, a correct engine has no confirmed violation:
the verdict is unknown, and its reason names the topic (SEMANTICS 4.23)."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from tests.integration.sidecar_fixtures import Pipeline, Report, click, counts, iso
from tests.tiers import first_of

pytestmark = pytest.mark.timeout(900)

WINDOWS = range(1, 5)
PAGES = "ab"


def second(pipeline: Pipeline) -> str:
    """The topic with the results of page b."""
    return f"{pipeline.name}-out2"


def created(pipeline: Pipeline) -> None:
    pipeline.create()
    pipeline.broker.create_topics({second(pipeline): 1})


def declared(pipeline: Pipeline, **wrong: str) -> tuple[str, ...]:
    """The setting of the second output. ``wrong``: its wrong fields."""
    fields = {"key": "page", "window_start": "{path: startMs, unit: ms}", "ids": "[clickIds]"} | wrong
    written = ", ".join(f"{name}: {value}" for name, value in fields.items())
    return (f"outputs.1={{topic: {second(pipeline)}, fields: {{{written}}}}}",)


def ids_of(window: int, page: str) -> list[int]:
    return [100 * PAGES.index(page) + 10 * window + number for number in range(3)]


def result(ids: Sequence[int], window: int, page: str) -> str:
    """A result as both topics have it. ``sizes``, ``site`` and ``updateIds`` are fields that a configuration may name
    wrongly."""
    start = {"windowStart": iso(window * 10), "startMs": window * 10_000}
    more = {"site": "s", "sizes": [id_ + 5_000 for id_ in ids], "updateIds": []}
    return json.dumps({"page": page, **start, "clickIds": ids, **more})


def events(pipeline: Pipeline) -> None:
    made = (click(id_, 10 * w + n, page) for w in WINDOWS for page in PAGES for n, id_ in enumerate(ids_of(w, page)))
    pipeline.clicks(*made)


def correct(pipeline: Pipeline) -> None:
    """Write events, and each result to the topic of its page."""
    created(pipeline)
    events(pipeline)
    for page, topic in zip(PAGES, (pipeline.output, second(pipeline)), strict=True):
        pipeline.put(topic, *(result(ids_of(window, page), window, page) for window in WINDOWS))


WRONG = {
    "unit": (
        {"window_start": "{path: startMs, unit: s}"},
        "12 ids",
        "the key, the time or its unit in outputs[1].fields",
    ),
    "key": ({"key": "site"}, "12 ids", "the key, the time or its unit in outputs[1].fields"),
    "ids": ({"ids": "[sizes]"}, "12 ids", "outputs[1].fields.ids and inputs[].fields.id"),
    "empty list": ({"ids": "[updateIds]"}, "its 4 results", "outputs[1].fields.ids may name another list"),
}


@pytest.mark.parametrize("wrong", first_of(WRONG))
def test_a_correct_engine_does_not_fail_if_one_output_is_configured_wrongly(pipeline: Pipeline, wrong: str) -> None:
    correct(pipeline)
    fields, none, named = WRONG[wrong]
    for _ in range(2):
        run = pipeline.once(*declared(pipeline, **fields))
        assert not any(run.report["violations"]["confirmed"].values()), run.report["violations"]
        assert run.report["violations"]["suspected"]["missing"] == 12
        assert (run.verdicts, run.status) == (("unknown",) * 3, 3)
        [said] = [reason for reason in run.report["reasons"] if "is in doubt" in reason]
        assert f"topic {second(pipeline)} is in doubt: none of {none} " in said
        assert named in said
    right = pipeline.once(*declared(pipeline), state="right")
    assert right.report["outcome"] == "pass", right.report["reasons"]


def running(pipeline: Pipeline, emission: str) -> None:
    """Write events, and a running aggregate's results, each to the topic of its page."""
    created(pipeline)
    events(pipeline)
    for page, topic in zip(PAGES, (pipeline.output, second(pipeline)), strict=True):
        listed: list[int] = []
        for window in WINDOWS:
            ids = ids_of(window, page)
            listed = [*listed, *ids] if emission == "cumulative" else ids
            pipeline.put(topic, json.dumps({"page": page, "site": f"s-{page}", "clickIds": listed, "updateIds": []}))


def aggregated(emission: str, *outputs: tuple[str, str, str]) -> tuple[str, ...]:
    """The settings of a running aggregate. ``outputs``: topic and paths of key and ids."""
    made = (
        f"{{topic: {name}, emission: {emission}, fields: {{key: {key}, ids: [{ids}]}}}}" for name, key, ids in outputs
    )
    return "oracle={kind: running_aggregate}", f"outputs=[{', '.join(made)}]"


@pytest.mark.full
@pytest.mark.parametrize(
    ("wrong", "misplaced", "none"),
    [(("site", "clickIds"), 12, "12 ids"), (("page", "updateIds"), 0, "its 4 results")],
    ids=["key", "empty list"],
)
@pytest.mark.parametrize("emission", ["incremental", "cumulative"])
def test_an_output_of_a_running_aggregate_is_doubted_on_its_own(
    pipeline: Pipeline, emission: str, wrong: tuple[str, str], misplaced: int, none: str
) -> None:
    running(pipeline, emission)
    right = "page", "clickIds"
    run = pipeline.once(*aggregated(emission, (pipeline.output, *right), (second(pipeline), *wrong)))
    assert not any(run.report["violations"]["confirmed"].values()), run.report["violations"]
    assert run.counts("missing", "misplaced") == {"missing": 12, "misplaced": misplaced}
    assert run.verdicts == ("unknown",) * 3
    [said] = [reason for reason in run.report["reasons"] if "is in doubt" in reason]
    assert f"topic {second(pipeline)} is in doubt: none of {none} " in said
    settings = aggregated(emission, (pipeline.output, *right), (second(pipeline), *right))
    assert pipeline.once(*settings, state="right").report["outcome"] == "pass"


@pytest.mark.full
@pytest.mark.parametrize("emission", ["incremental", "cumulative"])
def test_the_only_output_of_a_running_aggregate_is_doubted_if_no_result_has_an_id(
    pipeline: Pipeline, emission: str
) -> None:
    running(pipeline, emission)
    wrong, right = (aggregated(emission, (pipeline.output, "page", ids)) for ids in ("updateIds", "clickIds"))
    for _ in range(2):
        run = pipeline.once(*wrong)
        assert not any(run.report["violations"]["confirmed"].values()), run.report["violations"]
        assert run.counts("missing") == {"missing": 24}
        assert (run.verdicts, run.status) == (("unknown",) * 3, 3)
        assert any("none of its 4 results has an id" in reason for reason in run.report["reasons"])
    run = pipeline.once(*right, state="right")
    assert run.report["violations"]["confirmed"]["missing"] == 12, "the other page's results are in another topic"


@pytest.mark.full
def test_two_right_outputs_confirm_a_loss_and_a_duplicate(pipeline: Pipeline) -> None:
    created(pipeline)
    events(pipeline)
    for window in WINDOWS:
        pipeline.answers(result(ids_of(window, "a"), window, "a"))
        ids = ids_of(window, "b")
        pipeline.put(second(pipeline), result(ids[1:] if window == 2 else ids, window, "b"))
    pipeline.put(second(pipeline), result(ids_of(3, "b")[:1], 3, "b"))
    run = pipeline.once(*declared(pipeline))
    assert (
        run.report["violations"]["confirmed"] | {"missing": 1, "duplicate": 1} == run.report["violations"]["confirmed"]
    )
    assert (run.verdicts, run.status) == (("fail",) * 3, 1)
    assert not any("in doubt" in reason for reason in run.report["reasons"])


@pytest.mark.full
def test_the_first_match_of_the_topic_confirms_violations_also_after_a_restart(pipeline: Pipeline) -> None:
    """The first result of the second topic has an id of no event, and no other event of its page is answered."""
    created(pipeline)
    setting = declared(pipeline)
    events(pipeline)
    pipeline.answers(*(result(ids_of(window, "a"), window, "a") for window in WINDOWS))
    pipeline.put(second(pipeline), result([777], 1, "b"))
    # The last window stays open.
    lost = len(ids_of(1, "b")) * (len(WINDOWS) - 1)

    def is_suspected(report: Report) -> bool:
        return counts(report, "missing", "unknown_id") == {"missing": lost, "unknown_id": 1}

    for _ in range(2):
        with pipeline.live(*setting) as live:
            shown = live.until(is_suspected)
            assert not any(shown["violations"]["confirmed"].values()), shown["violations"]
            assert any(f"topic {second(pipeline)} is in doubt" in reason for reason in shown["reasons"])
    with pipeline.live(*setting) as live:
        live.until(is_suspected)
        pipeline.put(second(pipeline), result(ids_of(2, "b"), 2, "b"))
        shown = live.until(lambda report: report["violations"]["confirmed"]["missing"] > 0)
    assert shown["violations"]["confirmed"]["missing"] == lost - len(ids_of(2, "b"))
    assert shown["violations"]["confirmed"]["unknown_id"] == 1
    assert shown["outcome"] == "fail"
