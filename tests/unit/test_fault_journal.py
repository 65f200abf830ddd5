"""The journal records the active faults, whatever killed its writer. The sidecar can read its records."""

from __future__ import annotations

import errno
import json
import os
import threading
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException

from faults import healing
from faults.config import KafkaSection, LimitsSection, parse
from faults.errors import FaultRefused, NotHealed, NotPublished, Unreachable
from faults.facts import Facts, KnownProcess
from faults.fault import STATES, Fault, State, Timeline
from faults.healing import heal, heal_all
from faults.journal import JOURNAL_FILE, Entry, Journal, read
from faults.kinds.base import for_each
from faults.runner import run
from faults.schedule import timeline
from faults.topic import FaultsTopicWriter, publish_missing
from validator.stream.fault_rows import decoded

FACTS = Facts(processes=(KnownProcess(target="link", pid=5, started="77"),))


LINK = {"type": "link", "listen": "127.0.0.1:19092", "upstream": "127.0.0.1:9092"}
SLOW = {"kind": "net_delay", "target": "link", "name": "slow", "parameters": {"delay": "1.5s", "jitter": "100ms"}}


def fault() -> Fault:
    return timeline(parse({"seed": 3, "targets": {"link": LINK}, "schedule": {"faults": [SLOW]}})).steps[0].fault


class SlowHealing:
    """Healed by its first call."""

    facts = Facts()
    has_healed = False

    def prepare(self) -> None: ...
    def inject(self) -> None: ...
    def maintain(self) -> None: ...
    def is_active(self) -> bool:
        return not self.has_healed

    def heal(self) -> None:
        self.has_healed = True

    def is_healed(self) -> bool:
        return self.has_healed


def test_a_begun_fault_is_open_until_it_is_healed(tmp_path: Path) -> None:
    with Journal.locked(tmp_path) as journal:
        entry = journal.begin(fault(), FACTS)
        journal.record_state(entry, "injected")
    with Journal.locked(tmp_path) as journal:
        (again,) = journal.open_entries()
        assert (again.fault, again.facts, again.states) == (entry.fault, FACTS, entry.states)
        journal.record_state(again, "healed")
    with Journal.locked(tmp_path) as journal:
        assert journal.open_entries() == []


def test_the_newest_fault_is_healed_first(tmp_path: Path) -> None:
    with Journal.locked(tmp_path) as journal:
        older, newer = journal.begin(fault(), Facts()), journal.begin(fault(), Facts())
        assert [entry.fault.id for entry in journal.open_entries()] == [newer.fault.id, older.fault.id]


def test_a_state_keeps_its_first_instant(tmp_path: Path) -> None:
    with Journal.locked(tmp_path) as journal:
        entry = journal.begin(fault(), Facts())
        first = journal.record_state(entry, "heal_started")
        assert journal.record_state(entry, "heal_started") == first
    assert (tmp_path / JOURNAL_FILE).read_text().count('"heal_started"') == 1


def test_the_reason_of_an_early_end_is_published_with_the_healing(tmp_path: Path) -> None:
    with Journal.locked(tmp_path) as journal:
        entry = journal.begin(fault(), Facts())
        journal.record_state(entry, "injected")
        journal.end_early(entry, "no proxy answers")
        journal.record_state(entry, "heal_started")
        journal.end_early(entry, "stopped")
    (again,) = read(tmp_path).values()
    rows = [
        decoded(again.fault.record(state, again.states["injected"], again.over_because).encode()) for state in STATES
    ]
    said = [row is not None and json.loads(str(row["parameters"])).get("over_because") for row in rows]
    assert said == [None, None, "no proxy answers", "no proxy answers"]


@pytest.mark.parametrize("cut", [1, 10, 40])
def test_an_incomplete_line_is_ignored(tmp_path: Path, cut: int) -> None:
    with Journal.locked(tmp_path) as journal:
        entry = journal.begin(fault(), FACTS)
        journal.record_state(entry, "injected")
    path = tmp_path / JOURNAL_FILE
    path.write_bytes(path.read_bytes()[:-cut])
    assert list(read(tmp_path)[entry.fault.id].states) == ([] if cut > 1 else ["injected"])
    with Journal.locked(tmp_path) as journal:
        (again,) = journal.open_entries()
        journal.record_state(again, "healed")
    assert read(tmp_path)[entry.fault.id].is_healed


def test_two_runs_do_not_share_a_journal(tmp_path: Path) -> None:
    with Journal.locked(tmp_path), pytest.raises(FaultRefused, match="uses this folder"), Journal.locked(tmp_path):
        pass
    with Journal.locked(tmp_path) as journal:
        assert journal.entries == {}


def test_the_sidecar_decodes_every_record_of_a_fault(tmp_path: Path) -> None:
    with Journal.locked(tmp_path) as journal:
        entry = journal.begin(fault(), Facts())
        for state in STATES:
            instant = journal.record_state(entry, state)
            row = decoded(entry.fault.record(state, instant).encode())
            assert row is not None
            assert row["time_us"] == round(instant.timestamp() * 1e6)
            published = {
                key: row[key] for key in ("id", "name", "kind", "target", "state", "plan", "seed", "parameters")
            }
            assert published == {
                "id": entry.fault.id,
                "name": "slow",
                "kind": "net_delay",
                "target": "link",
                "state": state,
                "plan": "written",
                "seed": 3,
                "parameters": '{"delay": "1.5s", "direction": "to_upstream", "jitter": "0.1s"}',
            }


def test_a_fault_that_was_never_injected_is_healed_and_not_published(tmp_path: Path) -> None:
    class Topic(FaultsTopicWriter):
        def __init__(self) -> None:
            self.published: list[str] = []

        def publish(self, entry: Entry, *states: State) -> None:
            self.published.extend(states)

        def flush(self) -> None:
            pass

    topic = Topic()
    with Journal.locked(tmp_path) as journal:
        begun, injected = journal.begin(fault(), Facts()), journal.begin(fault(), Facts())
        journal.record_state(injected, "injected")
        heal(begun, SlowHealing(), journal, topic, 0.0)
        assert topic.published == []
        heal(injected, SlowHealing(), journal, topic, 0.0)
        assert topic.published == ["heal_started", "healed"]
        topic.published.clear()
        publish_missing(topic, journal)
        assert topic.published == ["injected", "heal_started", "healed"]
        assert journal.open_entries() == []


def test_a_fault_that_fills_the_disk_of_the_journal_is_healed_before_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filling, append = SlowHealing(), Journal._append

    def on_a_full_disk(journal: Journal, line: dict[str, str]) -> None:
        if not filling.has_healed:
            raise OSError(errno.ENOSPC, "No space left on device")
        append(journal, line)

    with Journal.locked(tmp_path) as journal:
        entry = journal.begin(fault(), Facts())
        journal.record_state(entry, "injected")
        monkeypatch.setattr(Journal, "_append", on_a_full_disk)
        heal(entry, filling, journal, None, 0.0)
    assert filling.has_healed
    (again,) = read(tmp_path).values()
    assert set(again.states) == {"injected", "heal_started", "healed"}


def test_a_line_truncated_by_a_full_disk_does_not_spoil_the_next(tmp_path: Path) -> None:
    with Journal.locked(tmp_path) as journal:
        entry = journal.begin(fault(), Facts())
        with (tmp_path / JOURNAL_FILE).open("a") as file:
            file.write('{"what": "sta')
        journal.record_state(entry, "healed")
    assert read(tmp_path)[entry.fault.id].is_healed


OTHERS = [b'{"level": "info"}\n', b'{"what": "told", "id": "other"}\n', b"[1]\n"]


@pytest.mark.parametrize("rest", [b'{"what": "sta\xff\xfe', bytes(512), *OTHERS])
def test_garbage_of_a_power_loss_hides_no_earlier_line(tmp_path: Path, rest: bytes) -> None:
    with Journal.locked(tmp_path) as journal:
        journal.begin(fault(), FACTS)
        with (tmp_path / JOURNAL_FILE).open("ab") as file:
            file.write(rest)
    with Journal.locked(tmp_path) as journal:
        (entry,) = journal.open_entries()
        journal.record_state(entry, "healed")
    assert read(tmp_path)[entry.fault.id].is_healed


def _begun_by_another_version(change: dict[str, object]) -> dict[str, str]:
    begun = json.loads(fault().model_dump_json()) | {"id": "other"} | change
    return {"what": "begun", "fault": json.dumps(begun), "facts": "{}"}


UNREADABLE: list[tuple[list[dict[str, object]], str]] = [
    ([_begun_by_another_version({"kind": "sun_flare"})], "sun_flare"),
    ([_begun_by_another_version({"mood": "sad"})], "mood: Extra inputs"),
    ([_begun_by_another_version({}) | {"facts": '{"moons": 2}'}], "moons: Extra inputs"),
    ([{"what": "begun", "fault": "{"}], "Expecting"),
    ([{"what": "begun"}], "no 'fault'"),
    ([_begun_by_another_version({}), {"what": "facts", "id": "other", "facts": '{"moons": 2}'}], "moons: Extra"),
    ([_begun_by_another_version({}), {"what": "state", "id": "other", "state": "verified", "time": "noon"}], "noon"),
]


@pytest.mark.parametrize(("lines", "why"), UNREADABLE)
def test_lines_of_another_version_do_not_prevent_healing_the_rest(
    tmp_path: Path, lines: list[dict[str, object]], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(healing, "injection", lambda *_: SlowHealing())
    with Journal.locked(tmp_path) as journal:
        journal.begin(fault(), FACTS)
    with (tmp_path / JOURNAL_FILE).open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    with Journal.locked(tmp_path) as journal:
        after = journal.begin(fault(), FACTS)
        journal.record_state(after, "injected")
    number = len(lines) + 1
    with Journal.locked(tmp_path) as journal:
        assert len(journal.open_entries()) == 2
        with pytest.raises(NotHealed, match=rf"journal\.jsonl: line {number} is .*{why}"):
            heal_all(journal, None, LimitsSection(), lambda _: None)
        assert journal.open_entries() == []


def test_a_healed_fault_is_published_though_another_is_not_healed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unreadable line stays until a person moves the journal. The windows of other faults do not wait for that."""
    published: list[str] = []

    class Topic(FaultsTopicWriter):
        def __init__(self) -> None: ...
        def write(self, fault_id: str, record: str) -> None:
            published.append(json.loads(record)["state"])

        def flush(self) -> None:
            published.append("flushed")

    monkeypatch.setattr(healing, "injection", lambda *_: SlowHealing())
    with Journal.locked(tmp_path) as journal:
        journal.record_state(journal.begin(fault(), FACTS), "injected")
    with (tmp_path / JOURNAL_FILE).open("a") as file:
        file.write(json.dumps(UNREADABLE[0][0][0]) + "\n")
    with Journal.locked(tmp_path) as journal:
        with pytest.raises(NotHealed, match="may still be active"):
            heal_all(journal, Topic(), LimitsSection(), lambda _: None)
        assert [entry.is_published for entry in journal.entries.values()] == [True]
    assert published == ["heal_started", "healed", "injected", "heal_started", "healed", "flushed"]


@pytest.mark.parametrize("is_healed", [False, True])
def test_a_fault_whose_first_line_is_damaged_is_not_forgotten(tmp_path: Path, is_healed: bool) -> None:
    with Journal.locked(tmp_path) as journal:
        entry = journal.begin(fault(), FACTS)
        states: tuple[State, ...] = ("injected", "healed") if is_healed else ("injected",)
        for state in states:
            journal.record_state(entry, state)
    file = tmp_path / JOURNAL_FILE
    file.write_bytes(b"\0" * 20 + file.read_bytes()[20:])
    with Journal.locked(tmp_path) as journal:
        why = journal.unreadable_problem()
    assert why is None if is_healed else "line 2 is of another version" in str(why)


def test_a_run_is_refused_if_another_version_may_have_left_a_fault(tmp_path: Path) -> None:
    (tmp_path / JOURNAL_FILE).write_text(json.dumps(UNREADABLE[0][0][0]) + "\n")
    config = parse({"state": str(tmp_path), "targets": {"link": LINK}, "schedule": {"faults": [SLOW]}})
    with pytest.raises(FaultRefused, match=r"line 1 is of another version .*journal"):
        run(config, Timeline("p", 1, (), 0.0), lambda _: None, threading.Event())


def test_a_fault_healed_by_another_version_blocks_no_run(tmp_path: Path) -> None:
    lines = [*UNREADABLE[1][0], {"what": "state", "id": "other", "state": "healed", "time": "2026-01-01T00:00:00Z"}]
    (tmp_path / JOURNAL_FILE).write_text("".join(json.dumps(line) + "\n" for line in lines))
    with Journal.locked(tmp_path) as journal:
        assert journal.unreadable_problem() is None
        assert journal.open_entries() == []


def test_a_full_disk_is_reported_with_the_path_of_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with Journal.locked(tmp_path) as journal:
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match=r"No space left .*journal\.jsonl'$"):
            journal.begin(fault(), FACTS)


def test_a_fault_that_cannot_be_healed_does_not_prevent_the_later_ones() -> None:
    healed_names: list[str] = []

    def heal_one(name: str) -> None:
        if name == "gone":
            raise FileNotFoundError("no such folder")
        healed_names.append(name)

    with pytest.raises(FaultRefused, match=r"^no such folder$"):
        for_each(["a", "gone", "b"], heal_one)
    assert healed_names == ["a", "b"]


def test_a_producer_that_accepts_no_record_does_not_prevent_healing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example a producer that has failed for good, after a broker lost its records."""

    class Failed:
        def produce(self, *_: object, **__: object) -> None:
            raise KafkaException(KafkaError(KafkaError._FATAL))

        def flush(self, _: float) -> int:
            return 0

    topic = FaultsTopicWriter(KafkaSection(bootstrap_servers="127.0.0.1:1", topic="faults"))
    monkeypatch.setattr(topic, "_producer", Failed())
    with Journal.locked(tmp_path) as journal:
        entry = journal.begin(fault(), Facts())
        journal.record_state(entry, "injected")
        healed_names = SlowHealing()
        heal(entry, healed_names, journal, topic, 0.0)
        assert (healed_names.has_healed, entry.is_healed) == (True, True)
        with pytest.raises(NotPublished):
            publish_missing(topic, journal)
        assert not entry.is_published


def test_an_unreachable_broker_is_reported_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("faults.topic._LOOK_SECONDS_MAX", 0.2)
    topic = FaultsTopicWriter(KafkaSection(bootstrap_servers="127.0.0.1:1", topic="faults"))
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1 .* start the broker"):
        topic.check()
