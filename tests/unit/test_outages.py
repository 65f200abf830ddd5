"""Time in which the brokers did not respond proves no loss."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from tests.unit.ended_run import ENDS, RunsOfOneState
from tests.unit.read_through import Suspected, read_through
from tests.unit.reconcile_rows import MINUTE_US, fact, facts
from validator.core.judging import Judging
from validator.model.frontier import Frontier, Outages, counted_back_us
from validator.model.progress import IngestProgress
from validator.oracles.tumbling_window import TumblingWindow
from validator.publish.notices import Notices
from validator.publish.publisher import Publisher
from validator.reconcile.judge import Rules
from validator.state.known_facts import KnownFacts
from validator.state.tables import StateTables
from validator.stream.batch import NewGenerationWanted
from validator.stream.brokers import BrokersRefuse, BrokersUnreachable
from validator.stream.commit_rows import outages_by, topic_marks
from validator.stream.generations import Generations
from validator.stream.outage import BrokersWatch, OutageNote, is_outage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("at_us", "length_us", "outages", "expected"),
    [
        (100, 30, (), 70),
        (100, 30, ((40, 60),), 70),
        (100, 40, ((40, 60),), 60),
        (100, 41, ((40, 60),), 39),
        (60, 30, ((40, 60),), 10),
        (50, 30, ((40, 60),), 10),
        (40, 30, ((40, 60),), 10),
        (30, 30, ((40, 60),), 0),
        (100, 50, ((20, 30), (40, 60)), 30),
        (100, 55, ((20, 30), (40, 60)), 15),
        (100, 0, ((90, 100),), 90),
    ],
)
def test_elapsed_time_excludes_outages(at_us: int, length_us: int, outages: Outages, expected: int) -> None:
    assert counted_back_us(at_us, length_us, outages) == expected


def test_the_due_instant_never_falls_when_an_outage_becomes_known() -> None:
    outages: Outages = ()
    before = -1_000
    for at_us in range(0, 2_000, 7):
        if at_us % 5 == 0 and at_us:
            outages = (*outages, (at_us - 7, at_us))
        now = counted_back_us(at_us, 50, outages)
        assert now >= before
        away = {instant for began, since in outages for instant in range(began, since)}
        assert len(set(range(now, at_us)) - away) == 50
        assert now + 1 in away or len(set(range(now + 1, at_us)) - away) == 49
        before = now


def test_more_outages_than_are_kept_become_fewer_and_longer() -> None:
    progress = read_through(0).with_outages(*[(10 * n, 10 * n + 5) for n in range(100)])
    assert len(progress.outages) == 64
    assert progress.outages[0] == (0, 365)
    assert progress.outages[-1] == (990, 995)
    assert topic_marks(replace(progress, outages=progress.outages[:-1]), progress) == ["outage 990 995"]
    assert outages_by(["rest_all", "outage 990 995", "replaced click/0"]) == [(990, 995)]


def test_an_outage_does_not_make_a_partition_idle() -> None:
    quiet = Frontier("input", "click", 0, "id", 0, 9, 0, 9, 9, last_data_us=40, read_through_us=100)
    assert quiet.idle(30)
    assert not quiet.idle(30, ((45, 90),))
    assert quiet.idle(15, ((45, 90),))


@pytest.mark.parametrize(
    ("answers_for_us", "state"), [(9, "pending"), (10, "overdue"), (29, "overdue"), (30, "missing")]
)
def test_a_loss_is_proven_by_time_in_which_the_brokers_answered(
    answers_for_us: int, state: str, tmp_path: Path
) -> None:
    """It had been due for 10 us when the brokers failed for 1,000 us. It is overdue after 20 us and missing after 40
    us."""
    rules = Rules(oracle=TumblingWindow.of(MINUTE_US), overdue_after_us=20, missing_after_us=40)
    judging = Judging(KnownFacts(StateTables(tmp_path), first_batch=0), rules)
    judging.step(facts(fact("input", [1], batch=0, lookup_us=0)), read_through(0), Suspected())
    judging.step(None, read_through(10), Suspected())
    effects = judging.step(None, away(1_010 + answers_for_us), Suspected())
    counts = judging.sums.counts
    assert {name for name in ("pending", "overdue", "missing") if counts[name]} == {state}
    assert [(one.state, one.provable_us) for one in effects.violations] == (
        [("confirmed", 1_040)] if state == "missing" else []
    )


def away(at_us: int) -> IngestProgress:
    return read_through(at_us).with_outages((10, 1_010))


def test_an_outage_is_known_to_the_next_process(tmp_path: Path) -> None:
    first = OutageNote(tmp_path)
    assert not first.noted
    first.note()
    first.note()
    second = OutageNote(tmp_path)
    assert second.noted
    second.clear()
    assert not OutageNote(tmp_path).noted
    assert list(tmp_path.iterdir()) == []


def test_only_errors_of_unreachable_brokers_are_an_outage() -> None:
    timed_out = RuntimeError("TimeoutException: Timed out waiting for a node assignment")
    assert is_outage(BrokersUnreachable("no answer"))
    assert is_outage(timed_out)
    assert not is_outage(RuntimeError("a column has another type"))


@dataclass
class Cluster:
    """Brokers on a clock that a test sets, with the lines of a watch on them."""

    servers: str = "kafka:9092"
    answered_at: float = 0.0
    seconds: float = 0.0
    error: BrokersUnreachable | None = None
    answers: bool = False

    def __post_init__(self) -> None:
        self.said: list[str] = []
        self.asked = threading.Semaphore(0)
        self.watch = BrokersWatch(
            self, self.ask, self.said.append, lambda: round(self.seconds * 1e6), lambda: self.seconds
        )

    def ask(self) -> None:
        self.asked.release()
        if self.answers:
            self.answered_at = self.seconds
        elif self.error is not None:
            raise self.error

    def look(self, seconds: float) -> list[str]:
        """The lines that a look at this time says. Requests that it makes are completed."""
        self.seconds = seconds
        self.said.clear()
        self.watch.look()
        if self.watch._asking is not None:
            self.watch._asking.join()
        return list(self.said)


def test_brokers_that_answer_are_not_called_silent_if_looks_are_far_apart() -> None:
    cluster = Cluster(answers=True)
    assert [cluster.look(seconds) for seconds in (10.0, 21.0, 40.0)] == [[], [], []]


def test_silent_brokers_are_named_once_and_their_return_is_said_once() -> None:
    cluster = Cluster(error=BrokersUnreachable("no answer"))
    assert cluster.look(9.9) == []
    assert not cluster.asked.acquire(blocking=False)
    assert cluster.look(10.0) == []
    assert cluster.asked.acquire(blocking=False)
    assert cluster.look(19.9) == []
    assert cluster.watch.problem is None
    (line,) = cluster.look(20.0)
    assert line == (
        "the Kafka brokers at kafka:9092 do not answer (last answer at 1970-01-01T00:00:00Z); no record is verified "
        "until they answer"
    )
    assert cluster.look(80.0) == []
    assert cluster.watch.problem == "the Kafka brokers at kafka:9092 do not answer"
    cluster.answered_at = 99.0
    assert cluster.look(100.0) == ["the Kafka brokers at kafka:9092 answer again"]
    assert cluster.watch.problem is None
    assert cluster.look(101.0) == []
    assert cluster.look(109.0) == []
    assert len(cluster.look(119.0)) == 1, "a further outage is said again"


def test_a_long_batch_or_a_suspended_sidecar_is_no_outage() -> None:
    cluster = Cluster(answers=True)
    for seconds in (5.0, 10.0, 10.2, 25.0, 25.2, 4000.0, 4000.2):
        assert cluster.look(seconds) == []


def test_brokers_that_refuse_the_sidecar_are_said_to_refuse_it() -> None:
    cluster = Cluster(error=BrokersRefuse("the Kafka brokers at kafka:9092 cannot be used: no such user"))
    assert cluster.look(10.0) == []
    (line,) = cluster.look(20.0)
    assert line.startswith("the Kafka brokers at kafka:9092 cannot be used: no such user (last answer at ")


def test_an_answer_ends_a_refusal_although_no_look_saw_it() -> None:
    cluster = Cluster(error=BrokersRefuse("the Kafka brokers at kafka:9092 cannot be used: no such user"))
    assert cluster.look(10.0) == []
    cluster.answered_at, cluster.error = 12.0, BrokersUnreachable("no answer")
    assert cluster.look(40.0) == []
    (line,) = cluster.look(50.0)
    assert line.startswith("the Kafka brokers at kafka:9092 do not answer (last answer at 1970-01-01T00:00:12Z")
    cluster.answered_at = 60.0
    assert cluster.look(71.0) == ["the Kafka brokers at kafka:9092 answer again"]
    assert cluster.watch.problem is None
    (line,) = cluster.look(81.0)
    assert line.startswith("the Kafka brokers at kafka:9092 do not answer (last answer at 1970-01-01T00:01:00Z")


def test_a_look_does_not_wait_for_the_brokers() -> None:
    cluster, answer = Cluster(), threading.Event()
    watch = BrokersWatch(cluster, answer.wait, cluster.said.append, lambda: 0, lambda: cluster.seconds)
    try:
        for cluster.seconds in (10.0, 15.0, 20.0, 25.0):
            watch.look()
        assert len(cluster.said) == 1
    finally:
        answer.set()


def test_the_status_is_printed_while_the_sidecar_waits_for_its_brokers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, stop, said, looked = RunsOfOneState(tmp_path), threading.Event(), list[str](), list[float]()
    run = Generations(
        *(runs.config, runs.tables, runs.brokers, Publisher(runs.config, tmp_path), None),
        once=False, leave_open=False, at_rest=False, say=said.append, stop=stop, notices=Notices(said.append),
    )  # fmt: skip
    run._runner = runs.start(run._publish)

    def fails(*_: object) -> None:
        raise BrokersUnreachable("no answer from the Kafka brokers at kafka:9092")

    def look() -> None:
        looked.append(0.0)
        stop.set()

    monkeypatch.setattr(run, "_open_generation", fails)
    monkeypatch.setattr(run, "_meanwhile", look)
    monkeypatch.setattr(stop, "wait", lambda _: looked or pytest.fail("no status was written"))
    run._run_generations(cast("SparkSession", None))
    assert said == ["no answer from the Kafka brokers at kafka:9092; trying again"]
    assert looked == [0.0]


def live_run(runs: RunsOfOneState, stop: threading.Event, monkeypatch: pytest.MonkeyPatch) -> Generations:
    """The generations of a live run, which open without a lookup."""
    run = Generations(
        *(runs.config, runs.tables, runs.brokers, Publisher(runs.config, runs.tables.state), None),
        once=False, leave_open=False, at_rest=False, say=[].append, stop=stop,
    )  # fmt: skip
    monkeypatch.setattr(run, "_open_generation", lambda progress, *_: (progress, {}))
    return run


def test_silence_in_which_no_request_failed_is_committed_as_an_outage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The silent brokers answer before any request has failed: the next batch ends its generation without a commit."""
    runs, stop, opened = RunsOfOneState(tmp_path), threading.Event(), list[Outages]()
    run = live_run(runs, stop, monkeypatch)
    runs.now_us += 1
    monkeypatch.setattr(run, "_await_topics", lambda *_: (["a source"], {}, runs.now_us))

    def run_generation(*given: object) -> BaseException | None:
        progress = cast("IngestProgress", given[4])
        opened.append(progress.outages)
        run._runner = runner = replace(runs.start(), has_outage=lambda: run._outage_note.noted)
        if progress.outages:
            stop.set()
            return None
        run._watch.problem = "the Kafka brokers at kafka:9092 do not answer"
        monkeypatch.setattr(run._watch, "look", lambda: None)
        run._meanwhile()
        with pytest.raises(NewGenerationWanted) as wanted:
            runner.advance(ENDS)
        assert not runner.is_ahead
        return wanted.value

    monkeypatch.setattr(run, "_run_generation", run_generation)
    run._run_generations(cast("SparkSession", None))
    assert opened == [(), ((runs.now_us - 1, runs.now_us),)]


def test_an_outage_ends_with_a_request_that_is_answered_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first request begins 20 s before the brokers answer again, and is answered."""
    runs, stop, opened = RunsOfOneState(tmp_path), threading.Event(), list[Outages]()
    run = live_run(runs, stop, monkeypatch)
    began_us, now_us = runs.now_us, [runs.now_us + 1_000_000]

    def await_topics(*_: object) -> tuple[list[str], dict[str, object], int]:
        asked_us = now_us[0]
        now_us[0] = began_us + 21_000_000
        return ["a source"], {}, asked_us

    def run_generation(*given: object) -> None:
        opened.append(cast("IngestProgress", given[4]).outages)
        run._runner = runs.start()
        stop.set()

    monkeypatch.setattr(run, "_now_us", lambda: now_us[0])
    monkeypatch.setattr(run, "_await_topics", await_topics)
    monkeypatch.setattr(run, "_run_generation", run_generation)
    run._outage_note.note()
    run._run_generations(cast("SparkSession", None))
    assert opened == [((began_us, began_us + 21_000_000),)]
