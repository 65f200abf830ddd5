"""Random pipelines that write a window again with its new events, without ids, read with the default emission: the end
of a run accuses no correct one (SEMANTICS 4.29), and finds the repeats of one that writes each window once."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final, cast

import pytest

from tests.unit.fed_run import confirmed, suspected
from tests.unit.local_run import LATER_US, LocalRun, _LocalRunner, judged
from tests.unit.memory_tables import MemoryTables
from tests.worlds import IS_STANDING, seeds
from validator.codecs.one_record import Record
from validator.model.classes import Guarantee, Verdict
from validator.model.snapshot import Snapshot

pytestmark = [pytest.mark.property, pytest.mark.timeout(600)]

WORLDS: Final = 4
SIZE, SLIDE, GAP = 10, 5, 6
LATENESS: Final = 4
BEGAN: Final = LATER_US // 1_000_000 - 600
ORACLES: Final = {
    "tumbling": f"{{kind: tumbling_window, size: {SIZE}s, values: {{n: count}}}}",
    "sliding": f"{{kind: sliding_window, size: {SIZE}s, slide: {SLIDE}s, values: {{n: count}}}}",
    "session": f"{{kind: session_window, gap: {GAP}s, values: {{n: count}}}}",
    "join": f"{{kind: windowed_join, join: inner, left: in, right: more, size: {SIZE}s, values: {{n: count}}}}",
}
POLICIES: Final = ("waits", "late topic", "drop")
"""What the engine does with events after a window's end: it waits for all, sets them aside, or drops them."""
CASES: Final = [("session", "waits"), *((kind, policy) for kind in ORACLES if kind != "session" for policy in POLICIES)]
"""The events of a session are in order, so none is late."""
TEXT: Final = """
pipeline: updated
guarantee: exactly_once
kafka: {bootstrap_servers: "127.0.0.1:9092"}
inputs:
INPUTS
outputs:
  - {topic: out, evidence: values, fields: {key: k, window_start: {path: start, unit: s}, values: {n: n}}}
oracle: ORACLE
timing: {allowed_lateness: LATENESSs, late_policy: POLICY}
state: {path: state}
"""
INPUT: Final = "{topic: NAME, fields: {key: k, event_time: {path: at, unit: s}}}"

Cell = tuple[str, int]


def starts_of(kind: str, at: int) -> list[int]:
    """The starts of the windows of an event."""
    last = at - at % (SLIDE if kind == "sliding" else SIZE)
    return [last - SLIDE, last] if kind == "sliding" else [last]


@dataclass
class Pipeline:
    """An engine that reads random events of one partition per topic, in batches. ``once``: it writes each window when
    its time is over; else with every batch that changes it."""

    kind: str
    policy: str
    seed: int
    once: bool = False
    logs: dict[str, list[Record]] = field(default_factory=lambda: defaultdict(list))
    numbers: dict[Cell, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    sessions: dict[str, list[list[int]]] = field(default_factory=lambda: defaultdict(list))
    written: list[tuple[Cell, int]] = field(default_factory=list)
    ends: list[dict[str, int]] = field(default_factory=list)
    """The length of each log after each batch."""

    def __post_init__(self) -> None:
        rng, newest, done = Random(self.seed), 0, set[Cell]()
        topics, keys = self.topics, ("a", "b", "c")[: Random(self.seed).randrange(1, 4)]
        for _ in range(rng.randrange(12, 30)):
            changed: dict[Cell, None] = {}
            for _ in range(rng.randrange(1, 8)):
                newest += rng.choice((0, 1, 1, 2))
                topic, key = rng.choice(topics), rng.choice(keys)
                at = max(0, newest - (rng.randrange(1, 20) if rng.random() < 0.1 and self.kind != "session" else 0))
                passed = max((one["at"] for one in self.values(topic)), default=-1)
                self.append(topic, {"k": key, "at": BEGAN + at})
                changed |= dict.fromkeys(self.take(topic, key, at, passed - BEGAN))
            cells = [cell for cell in self.numbers if cell[1] + SIZE <= newest] if self.once else list(changed)
            for cell in cells:
                if not (self.once and cell in done):
                    self.write(cell)
                    done.add(cell)
            self.ends.append({topic: len(self.logs[topic]) for topic in self.read})

    @property
    def topics(self) -> tuple[str, ...]:
        return ("in", "more") if self.kind == "join" else ("in",)

    @property
    def text(self) -> str:
        inputs = "\n".join(f"  - {INPUT.replace('NAME', topic)}" for topic in self.topics)
        lateness = 1_000 if self.policy == "waits" else LATENESS
        text = TEXT.replace("INPUTS", inputs).replace("ORACLE", ORACLES[self.kind])
        text = text.replace("LATENESS", str(lateness)).replace("POLICY", "drop" if self.policy == "drop" else "report")
        if self.policy == "late topic":
            named = {topic: f", input: {topic}" if self.kind == "join" else "" for topic in self.topics}
            late = [INPUT.replace("NAME", f"late-{topic}{named[topic]}") for topic in self.topics]
            text += f"late: [{', '.join(late)}]\n"
        return text

    def values(self, topic: str) -> list[dict[str, Any]]:
        return [json.loads(one.value or b"") for one in self.logs[topic]]

    def append(self, topic: str, value: dict[str, Any]) -> None:
        log = self.logs[topic]
        log.append(Record(json.dumps(value).encode(), offset=len(log), timestamp_us=LATER_US - 1_000_000))

    def take(self, topic: str, key: str, at: int, passed: int) -> list[Cell]:
        """Use an event, and return its windows. ``passed``: the newest time before it in its partition."""
        if self.kind == "session":
            mine = self.sessions[key]
            if mine and at <= mine[-1][-1] + GAP:
                mine[-1].append(at)
            else:
                mine.append([at])
            found = [(key, mine[-1][0])]
        else:
            found = [(key, start) for start in starts_of(self.kind, at)]
        late = {cell for cell in found if self.policy != "waits" and cell[1] + SIZE + LATENESS <= passed}
        if self.policy == "late topic":
            # A late record is of all windows of its event.
            late = late if len(late) == len(found) else set()
            if late:
                self.append(f"late-{topic}", {"k": key, "at": BEGAN + at})
        used = [cell for cell in found if cell not in late]
        for cell in used:
            self.numbers[cell][topic] += 1
        return used

    def write(self, cell: Cell) -> None:
        """Write a window, unless no pair is in it."""
        number = self.numbers[cell]["in"] * (self.numbers[cell]["more"] if self.kind == "join" else 1)
        if number:
            self.written.append((cell, number))
            self.append("out", {"k": cell[0], "start": BEGAN + cell[1], "n": number})

    @property
    def updates(self) -> int:
        """Results after the first one of their window."""
        return len(self.written) - len({cell for cell, _ in self.written})

    def judged(self, state: Path) -> Snapshot:
        return judged(self.text, {topic: self.logs[topic] for topic in self.read}, state)

    @property
    def read(self) -> tuple[str, ...]:
        late = [f"late-{topic}" for topic in self.topics] if self.policy == "late topic" else []
        return (*self.topics, "out", *late)

    def judged_live(self, state: Path) -> Snapshot:
        """The end of a run that read the batches one after the other, at times the results first, with restarts."""
        rng = Random(self.seed)
        run = LocalRun(state, text=self.text, now_us=LATER_US, tables=MemoryTables())
        for ends in self.ends:
            cast("_LocalRunner", run.runner).logs = self.logs
            run.logs.ends.update(ends)
            run.feed((), after_us=1_000_000, but=rng.choice([(), (), self.topics]))
            if rng.random() < 0.2:
                run.restart()
        cast("_LocalRunner", run.runner).logs = self.logs
        run.feed((), after_us=1_000_000)
        return run.end()


def is_doubted(shown: Snapshot) -> bool:
    return any("its results are updates" in reason for reason in shown.reasons)


def summary(shown: Snapshot) -> tuple[object, ...]:
    return confirmed(shown), suspected(shown), dict(shown.verdicts), is_doubted(shown), dict(shown.contributions)


@pytest.mark.parametrize(("kind", "policy"), CASES)
def test_the_end_of_a_run_accuses_no_engine_that_writes_updates(kind: str, policy: str, tmp_path: Path) -> None:
    doubted = 0
    for seed in seeds(WORLDS):
        pipeline = Pipeline(kind, policy, seed)
        shown = pipeline.judged(tmp_path / f"{seed}")
        where = (seed, shown.reasons)
        live = pipeline.judged_live(tmp_path / f"{seed}-live")
        assert summary(live) == summary(shown), where
        if shown.contributions["duplicate"] and pipeline.updates >= 3:
            doubted += 1
            assert (confirmed(shown), is_doubted(shown)) == ({}, True), where
            assert shown.verdicts[Guarantee.EXACTLY_ONCE] is Verdict.UNKNOWN, where
    assert not IS_STANDING or doubted


@pytest.mark.parametrize("kind", [kind for kind in ORACLES if kind != "session"])
def test_an_engine_that_repeats_after_a_crash_stays_accused(kind: str, tmp_path: Path) -> None:
    accused = 0
    for seed in seeds(WORLDS):
        pipeline, rng = Pipeline(kind, "waits", seed, once=True), Random(seed)
        again: Sequence[tuple[Cell, int]] = pipeline.written[-rng.randrange(1, 12) :]
        forgets = rng.randrange(2)
        for (key, start), number in again:
            # It has restored a state without the newest events, or all of them.
            pipeline.append("out", {"k": key, "start": BEGAN + start, "n": max(1, number - forgets)})
        shown = pipeline.judged(tmp_path / f"{seed}")
        accused += bool(again)
        assert is_doubted(shown) is False, (seed, shown.reasons)
        assert bool(confirmed(shown).get("duplicate")) == bool(again), (seed, shown.reasons)
    assert not IS_STANDING or accused
