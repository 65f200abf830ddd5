"""Test the tester: each thing that an engine can do wrong, done on purpose and counted against what it wrote of itself.

One load of the generator on one input topic; a mutant per mutation, each with topics of its own; a `validate --once` on
each. A finding too many or too few fails: precision and recall are 1 as counts, and for every cell and id.

`STREAMPROOF_WRITE=1 python -m pytest tests/e2e/test_mutations.py` writes docs/mutations.md anew.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from generator import config as generator_config
from generator.run import generate
from testbed.engines import truth
from testbed.engines.base import MutantEngine
from testbed.engines.mutations import OF_A_RESULT, Deed, Mutation
from testbed.engines.settings import EngineSettings
from tests.integration.sidecar_fixtures import Pipeline, Run
from validator.reconcile.compare import IDS_KEPT
from validator.state.tables import Table, read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from testbed.broker import EmbeddedBroker

pytestmark = pytest.mark.timeout(600)

PAGE: Final = Path(__file__).parents[2] / "docs" / "mutations.md"
CLASSES: Final = ("missing", "duplicate", "misplaced", "unknown_id")
SHARES: Final = {True: 0.15, False: 0.05}
"""Of the results, and of the ids, that a mutation befalls."""
AT_A_TIME: Final = 3
"""Sidecars that run at once; more only wait for the processors."""

PASS, FAIL = "pass", "fail"
VERDICTS: Final = {
    # SEMANTICS section 4: at most once, at least once, exactly once.
    Mutation.DROP: (PASS, FAIL, FAIL),
    Mutation.DROP_CELL: (PASS, FAIL, FAIL),
    Mutation.ABORT: (PASS, FAIL, FAIL),
    Mutation.DUPLICATE: (FAIL, PASS, FAIL),
    Mutation.DUPLICATE_RESULT: (FAIL, PASS, FAIL),
    Mutation.ALTER: (FAIL, FAIL, FAIL),
    Mutation.MISPLACE: (FAIL, FAIL, FAIL),
    Mutation.MISPLACE_COPY: (FAIL, FAIL, FAIL),
    Mutation.INVENT: (FAIL, FAIL, FAIL),
    Mutation.LATE_ROUTE: (PASS, PASS, PASS),
    Mutation.DELAY: (PASS, PASS, PASS),
    Mutation.DELAY_BEYOND: (PASS, PASS, PASS),
    Mutation.ABORT_RETRY: (PASS, PASS, PASS),
}
DEEDS: Final = {
    Mutation.DROP: "leaves ids out of their results",
    Mutation.DROP_CELL: "never produces some results",
    Mutation.ABORT: "produces some results in transactions that it aborts",
    Mutation.DUPLICATE: "puts ids twice into their results",
    Mutation.DUPLICATE_RESULT: "produces some results twice",
    Mutation.ALTER: "replaces ids by ones that no input has",
    Mutation.MISPLACE: "moves ids to another cell of their window",
    Mutation.MISPLACE_COPY: "puts ids into another cell of their window as well",
    Mutation.INVENT: "adds ids that no input has",
    Mutation.LATE_ROUTE: "sends ids to the late topic in place of the result",
    Mutation.DELAY: "produces some results later",
    Mutation.DELAY_BEYOND: "produces some results much later, last of all",
    Mutation.ABORT_RETRY: "aborts some results and produces them again",
}

Place = tuple[str, int, str]
"""Violation class, window start in milliseconds, key."""


@dataclass(frozen=True)
class Judged:
    """A mutant, what it did, and what the sidecar found."""

    mutation: Mutation
    deeds: tuple[Deed, ...]
    set_aside: int
    """Records on the late topic."""
    run: Run
    found: dict[Place, tuple[int, tuple[str, ...]]]
    """Per place: how many contributions, and the ids kept as evidence."""

    @property
    def due(self) -> dict[Place, Counter[str]]:
        """What the mutant says must be found: per place, ids and how often."""
        places: dict[Place, Counter[str]] = defaultdict(Counter)
        for deed in self.deeds:
            if deed.violation_class in CLASSES:
                [key] = deed.key
                places[deed.violation_class, deed.window_start_ms, key][str(deed.id)] += deed.count
        return dict(places)

    def due_by_class(self) -> dict[str, int]:
        """Violation class -> contributions that must be found."""
        found: Counter[str] = Counter()
        for (name, _, _), ids in self.due.items():
            found[name] += ids.total()
        return {name: found[name] for name in CLASSES}


@pytest.fixture(scope="module")
def load(broker: EmbeddedBroker) -> tuple[str, int]:
    """The input topic that all mutants read, and how many records it holds: late ones and second copies among them."""
    topic = "mutations-in"
    broker.create_topics({topic: 2})
    summary = generate(
        generator_config.parse(
            {
                "kafka": {"bootstrap_servers": broker.bootstrap_servers},
                "topic": topic,
                "keys": {"pages": 5},
                "window": "10s",
                "events_per_window": 50,
                "lateness": {"share": 0.01, "beyond": "10s"},
                "duplicates": {"share": 0.02},
                "limit": {"events": 3000},
                "delivery": {"linger": "5ms"},
                "seed": 7,
            }
        )
    )
    assert summary.acknowledged == summary.sends > summary.events == 3000
    return topic, summary.sends


@pytest.fixture(scope="module")
def judged(
    broker: EmbeddedBroker, spark: SparkSession, load: tuple[str, int], tmp_path_factory: pytest.TempPathFactory
) -> dict[Mutation, Judged]:
    """Every mutant run to its end, and every sidecar after it."""
    folder = tmp_path_factory.mktemp("mutants")
    pipelines = {m: _pipeline(m, broker, spark, load[0], folder / m.value) for m in Mutation}
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        list(pool.map(lambda m: _break(m, pipelines[m], load[0]), Mutation))
        runs = dict(zip(Mutation, pool.map(lambda m: _judge(pipelines[m], load[0]), Mutation), strict=True))
    return {
        mutation: Judged(
            mutation,
            tuple(truth.read(pipelines[mutation].folder / "truth")),
            _visible_records(broker, pipelines[mutation].late),
            run,
            _found(spark, pipelines[mutation].state()),
        )
        for mutation, run in runs.items()
    }


def _pipeline(mutation: Mutation, broker: EmbeddedBroker, spark: SparkSession, topic: str, folder: Path) -> Pipeline:
    folder.mkdir()
    pipeline = Pipeline(f"mutations-{mutation.value}", broker.bootstrap_servers, folder, broker, spark)
    broker.create_topics({pipeline.output: 2, pipeline.late: 1})
    return pipeline


def _break(mutation: Mutation, pipeline: Pipeline, topic: str) -> None:
    settings = EngineSettings(
        bootstrap_servers=pipeline.servers,
        inputs=(topic,),
        output=pipeline.output,
        late=pipeline.late,
        group=pipeline.name,
        window_ms=10_000,
        commit_interval_seconds=0.2,
        mutations={mutation: SHARES[mutation in OF_A_RESULT]},
        mutation_seed=11,
        delay_seconds=0.1,
        delay_beyond_seconds=600.0,  # until it ends: it produces what it holds back then
        truth=pipeline.folder / "truth",
    )
    flags = ("--stop-at-end", "--close-at-end")
    with MutantEngine(settings, pipeline.folder / "engine", arguments=flags) as engine:
        engine.start()
        assert engine.wait() == (0,)


def _judge(pipeline: Pipeline, topic: str) -> Run:
    return pipeline.once(f"inputs.0.topic={topic}", "outputs.0.fields.window_end=windowEnd")


def _found(spark: SparkSession, state: Path) -> dict[Place, tuple[int, tuple[str, ...]]]:
    newest: dict[str, tuple[int, Place, int, tuple[str, ...]]] = {}
    for row in read(spark, state, Table.VIOLATIONS).orderBy("batch").collect():
        assert row["state"] in ("confirmed", "retracted")
        place = (row["class"], row["window_start_us"] // 1000, row["key"])
        newest[row["violation"]] = (row["batch"], place, row["count"], tuple(row["ids"]))
    return {place: (count, ids) for _, place, count, ids in newest.values() if count}


def _visible_records(broker: EmbeddedBroker, topic: str) -> int:
    """Records that a reader of committed records sees on partition 0."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "count", "enable.partition.eof": True}
    )
    with ExitStack() as stack:
        stack.callback(consumer.close)
        consumer.assign([TopicPartition(topic, 0, 0)])
        count = 0
        while (message := consumer.poll(30)) is not None:
            error = message.error()
            if error is None:
                count += 1
                continue
            assert error.code() == KafkaError._PARTITION_EOF, error
            return count
    raise AssertionError(f"the end of {topic} was not reached within 30 s")


@pytest.mark.parametrize("mutation", list(Mutation))
def test_a_mutation_gives_exactly_its_verdict(
    mutation: Mutation, judged: dict[Mutation, Judged], load: tuple[str, int]
) -> None:
    case = judged[mutation]
    assert case.deeds, "the mutant did nothing"
    assert case.run.verdicts == VERDICTS[mutation]
    assert case.run.status == (0 if VERDICTS[mutation][2] == PASS else 1)

    due = case.due_by_class()
    assert case.run.counts(*CLASSES) == due
    found = case.run.report["contributions"]
    assert found["expected"] == load[1]
    assert found["processed"] + found["late"] + found["missing"] == found["expected"]
    # The generator's own late events are set aside by every engine.
    assert found["late"] == case.set_aside
    assert case.set_aside > sum(deed.count for deed in case.deeds if deed.violation_class == "late")
    assert found["pending"] + found["overdue"] + found["blocked"] + found["unresolved"] + found["out_of_scope"] == 0
    assert case.run.report["coverage"]["complete"]


@pytest.mark.parametrize("mutation", list(Mutation))
def test_a_mutation_is_found_in_its_cells_and_ids_and_nowhere_else(
    mutation: Mutation, judged: dict[Mutation, Judged]
) -> None:
    case = judged[mutation]
    assert {place: count for place, (count, _) in case.found.items()} == {
        place: ids.total() for place, ids in case.due.items()
    }
    for place, (_, ids) in case.found.items():
        due = set(case.due[place])
        assert len(set(ids)) == len(ids) == min(len(due), IDS_KEPT)
        assert set(ids) <= due


def test_the_page_of_mutations_is_current(judged: dict[Mutation, Judged], capsys: pytest.CaptureFixture[str]) -> None:
    """Its counts are those of one run; all else must be what this run says."""
    page = render(judged)
    with capsys.disabled():
        print("\n" + page[page.index("| mutation") :])
    if os.environ.get("STREAMPROOF_WRITE"):
        PAGE.write_text(page)
    assert _without_numbers(PAGE.read_text()) == _without_numbers(page), "run it again with STREAMPROOF_WRITE=1"


def _without_numbers(text: str) -> str:
    return re.sub(r"\d+", "N", text)


def render(judged: dict[Mutation, Judged]) -> str:
    """docs/mutations.md."""
    sends = next(iter(judged.values())).run.report["contributions"]["expected"]
    lines = [
        "# What the sidecar finds when an engine misbehaves",
        "",
        "Written by the test run: `STREAMPROOF_WRITE=1 python -m pytest tests/e2e/test_mutations.py`. Each row is a",
        "real engine on a real broker that does one thing wrong with a share of its results or ids, notes what it did",
        f"before it does it, and is then judged by `validate --once`. All read the same {sends} events, late ones and",
        "second copies among them. *Done* are contributions by the engine's own notes, *found* what the sidecar",
        "confirmed: missing / duplicate / misplaced / unknown id. They are equal, in every cell and for every id.",
        "",
        "| mutation | the engine | done | found | at most once | at least once | exactly once |",
        "|---|---|---|---|---|---|---|",
    ]
    for mutation, case in judged.items():
        done = " / ".join(str(count) for count in case.due_by_class().values())
        found = " / ".join(str(count) for count in case.run.counts(*CLASSES).values())
        cells = (f"`{mutation.value}`", DEEDS[mutation], done, found, *case.run.verdicts)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"
