"""Storm against a real broker: its worker is SIGKILLed between a window's results and the commit of its offsets.

The expectations for at least once were written before any run. Nothing is missing, since the spout reads again from its
committed offsets. The ids that occur twice are exactly those that had a result when the worker died and are at or past
those offsets. The sidecar counts the same: at least once passes, exactly once fails.

The input is one partition. With more, Storm may lose events that it reads behind another partition by more than its lag
(docs/engines.md).
"""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest

from testbed.broker import EmbeddedBroker
from testbed.engines.real import RealEngineSettings, Timeouts
from testbed.engines.settings import Guarantee
from testbed.engines.storm import WORKER, StormEngine
from tests.engines.judged import assert_sidecar_agrees
from tests.engines.topics import PacedLoad, Topics, now_ms, until

pytestmark = pytest.mark.timeout(500)

WINDOW_MS = 2_000
GROUP = "storm-test"
LATE_IDS = (10_000_001, 10_000_002, 10_000_003)


@pytest.mark.full
def test_a_killed_worker_repeats_exactly_the_uncommitted_events(broker: EmbeddedBroker, tmp_path: Path) -> None:
    topics = Topics(broker, "storm", input_partitions=1)
    with StormEngine(settings_for(topics, "at_least_once"), tmp_path / "engine") as engine:
        engine.start()
        engine.ready(180)
        load = PacedLoad(topics.load(window=f"{WINDOW_MS}ms"))

        until(lambda: topics.results_end() >= 12, 60, engine.process(3).last_lines)
        seen = topics.results_end()
        until(lambda: topics.results_end() > seen, 60, engine.process(3).last_lines)
        before = engine.instances[WORKER].pid
        engine.kill(WORKER)
        # The next worker is stopped while the test records the state. By then the broker has everything that the killed
        # worker sent, and the new one has read nothing yet.
        until(lambda: engine.instances[WORKER].alive, 60, engine.process(3).last_lines)
        engine.send_signal(WORKER, signal.SIGSTOP)
        handled = set(by_id(topics))
        again = topics.read_again(GROUP)
        engine.send_signal(WORKER, signal.SIGCONT)
        engine.restart(WORKER)
        engine.ready(120)
        assert engine.instances[WORKER].pid != before
        back_ms = now_ms()
        # Finish only when the engine has read its input: the last events are far ahead, older ones must be processed
        # first.
        until(lambda: topics.newest_answer_ms() > back_ms, 90, engine.process(3).last_lines)
        load.finish()

        expected = topics.expected(WINDOW_MS)
        ids = {i for _, _, i in expected}
        until(lambda: ids <= set(by_id(topics)), 60, lambda: sorted(ids - set(by_id(topics))))
        effective = engine.effective()
        engine.stop()

    assert not any(instance.alive for instance in engine.instances)
    assert set(topics.answered()) <= set(expected)  # each id is in its own cell, none is invented
    counts = by_id(topics)
    print("ids that came twice:", len(handled & again))
    assert {i for i, count in counts.items() if count > 1} == handled & again
    assert handled & again
    assert max(counts.values()) == 2
    # An option that the job would set otherwise.
    assert "topology.max.spout.pending=70000" in engine.instances[WORKER].log_path.read_text(encoding="utf-8")
    assert effective.guarantee == "at_least_once", effective
    assert "processing guarantee of the spout: AT_LEAST_ONCE" in effective.evidence
    assert "runs at-least-once" in (effective.mismatch("exactly_once") or "")

    counted, _ = assert_sidecar_agrees(
        tmp_path / "sidecar", broker.bootstrap_servers, effective, input_topic=topics.input, output=topics.output,
        late=topics.late, guarantee="at_least_once", window_ms=WINDOW_MS,
    )  # fmt: skip
    assert (counted.missing, counted.duplicates) == (0, len(handled & again))


@pytest.mark.full
def test_a_late_click_goes_to_its_topic_and_nowhere_else(broker: EmbeddedBroker, tmp_path: Path) -> None:
    topics = Topics(broker, "storm-late", input_partitions=1)
    with StormEngine(settings_for(topics, "at_most_once"), tmp_path / "engine") as engine:
        engine.start()
        engine.ready(180)
        assert engine.effective().guarantee == "at_most_once"
        started_ms = now_ms()
        load = PacedLoad(topics.load(window=f"{WINDOW_MS}ms"))
        # A click is late once the watermark has passed its window. Half a minute behind is always enough.
        until(lambda: topics.newest_answer_ms() > started_ms, 60, engine.process(3).last_lines)
        for number in LATE_IDS:
            topics.send_click(number, "/help", started_ms - 30_000)
        until(lambda: len(topics.late_ids()) == len(LATE_IDS), 60, topics.late_ids)
        load.finish()
        expected = {cell for cell in topics.expected(WINDOW_MS) if cell[2] not in LATE_IDS}
        until(lambda: set(topics.answered()) >= expected, 60, lambda: sorted(expected - set(topics.answered())))
        engine.stop()
    assert topics.late_ids() == dict.fromkeys(LATE_IDS, 1)
    assert topics.answered() == dict.fromkeys(expected, 1)  # at most once: without a kill, each id occurs once


def settings_for(topics: Topics, guarantee: Guarantee) -> RealEngineSettings:
    return RealEngineSettings(
        bootstrap_servers=topics.broker.bootstrap_servers,
        input=topics.input,
        output=topics.output,
        late=topics.late,
        group=GROUP,
        guarantee=guarantee,
        window_ms=WINDOW_MS,
        max_disorder_ms=1_000,
        timeouts=Timeouts(commit_interval_seconds=0.5),
        options={"topology.max.spout.pending": "70000"},
    )


def by_id(topics: Topics) -> Counter[int]:
    """Return how often each id occurs in results and late records together."""
    counts = Counter[int]()
    for (_, _, i), count in topics.answered().items():
        counts[i] += count
    counts.update(topics.late_ids())
    return counts
