"""A healing without an answer is retried until the proof times out; a refused one is not."""

from __future__ import annotations

import errno
import signal
import threading
import time
from datetime import datetime
from pathlib import Path

import pytest

from faults import heal_task, runner
from faults.config import parse
from faults.errors import FaultRefused, NotHealed, Unreachable
from faults.facts import Facts
from faults.fault import Fault, State
from faults.heal_task import BackgroundCall
from faults.healing import HealPolicy, heal_faults
from faults.journal import Entry, Journal, read
from faults.kinds.base import Injection, for_each
from faults.parameters import NO_PARAMETERS
from faults.resumed import ResumedProcesses
from faults.schedule import timeline


class Engine:
    """An injection whose healing raises the exceptions ``heals`` and whose proof raises ``proofs``, in order."""

    def __init__(self, heals: list[Exception], proofs: list[Exception]) -> None:
        self.facts = Facts()
        self.heals, self.proofs = heals, proofs
        self.healed = 0

    def prepare(self) -> None:
        """Nothing to find."""

    def inject(self) -> None:
        """Nothing to break."""

    def maintain(self) -> None:
        """Nothing to hold."""

    def is_active(self) -> bool:
        return True

    def heal(self) -> None:
        if self.heals:
            raise self.heals.pop(0)
        self.healed += 1

    def is_healed(self) -> bool:
        if self.proofs:
            raise self.proofs.pop(0)
        return self.healed > 0


AWAY = [Unreachable("s: nobody answers.") for _ in range(3)]


def healed(folder: Path, *engines: Engine, seconds: float = 20.0) -> list[str]:
    """Heal the faults and return their names in the order of healing. Raises NotHealed."""
    names: list[str] = []
    with Journal.locked(folder) as journal:
        entries = [_entry(journal, f"f{number}") for number in range(len(engines))]
        pairs = list(zip(entries, engines, strict=True))
        heal_faults(
            pairs, journal, None, HealPolicy(seconds, advice="look"), lambda entry: names.append(entry.fault.name)
        )
    return names


def _entry(journal: Journal, name: str) -> Entry:
    fault = Fault(id=name, name=name, kind="process_kill", targets={}, parameters=NO_PARAMETERS, plan="p", seed=1)
    entry = journal.begin(fault, Facts())
    journal.record_state(entry, "injected")
    return entry


@pytest.mark.parametrize(("heals", "proofs"), [(AWAY, []), ([], AWAY), (AWAY[:1], AWAY[:1])])
def test_healing_is_retried_after_an_unreachable_target(
    tmp_path: Path, heals: list[Exception], proofs: list[Exception]
) -> None:
    engine = Engine([*heals], [*proofs])
    assert healed(tmp_path, engine) == ["f0"]
    assert (engine.heals, engine.proofs) == ([], [])


def test_a_target_unreachable_for_too_long_is_reported_with_the_next_step(tmp_path: Path) -> None:
    away = Engine([Unreachable("s: nobody answers.")] * 10_000, [])
    with pytest.raises(NotHealed, match=r"s: nobody answers\. .* 0\.05 s; "):
        healed(tmp_path, away, seconds=0.05)
    assert away.healed == 0


def test_a_refusal_is_not_retried(tmp_path: Path) -> None:
    engine = Engine([FaultRefused("no.")], [])
    with pytest.raises(NotHealed, match=r"f0 on  is not healed: no\."):
        healed(tmp_path, engine)
    assert engine.healed == 0


def test_other_faults_are_healed_before_waiting_for_one(tmp_path: Path) -> None:
    away, other = Engine(AWAY[:2], []), Engine([], [])
    asked: list[int] = []
    away.is_healed = lambda: asked.append(other.healed) or True  # type: ignore[method-assign, func-returns-value]
    assert healed(tmp_path, away, other) == ["f1", "f0"]
    assert asked == [1]


def test_an_unreachable_target_does_not_prevent_retries_of_the_others(tmp_path: Path) -> None:
    lost, back = Engine([Unreachable("p: no proxy answers.")] * 10_000, []), Engine(AWAY[:2], [])
    names: list[str] = []
    with Journal.locked(tmp_path) as journal:
        pairs = [(_entry(journal, "lost"), lost), (_entry(journal, "back"), back)]

        def no_thread() -> None:
            if names:
                raise NotHealed("nobody starts the proxy again.")

        patience = HealPolicy(20.0, no_thread)
        with pytest.raises(NotHealed, match=r"^lost on .*: nobody starts the proxy again\.$"):
            heal_faults(pairs, journal, None, patience, lambda entry: names.append(entry.fault.name))
    assert names == ["back"]


def test_a_hanging_call_does_not_delay_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A healing or proof that hangs blocks no other fault. Its fault continues once the late answer is known."""
    monkeypatch.setattr(heal_task, "_ALONE_SECONDS", 0.01)
    slow_to_heal, slow_to_show, other = Engine([], []), Engine([], []), Engine([], [])
    real_heal, others_healed = slow_to_heal.heal, threading.Event()
    threads: list[str] = []

    def heal_late() -> None:
        others_healed.wait(20)
        threads.append("mended")
        real_heal()

    def show_late() -> bool:
        others_healed.wait(20)
        threads.append("shown")
        return True

    slow_to_heal.heal = heal_late  # type: ignore[method-assign]
    slow_to_show.is_healed = show_late  # type: ignore[method-assign]
    said: list[str] = []
    names: list[str] = []
    with Journal.locked(tmp_path) as journal:
        pairs = [(_entry(journal, f"f{n}"), engine) for n, engine in enumerate((slow_to_heal, slow_to_show, other))]

        def healed_one(entry: Entry) -> None:
            names.append(entry.fault.name)
            if entry.fault.name == "f2":
                assert threads == []
                others_healed.set()

        heal_faults(pairs, journal, None, HealPolicy(20.0, say=said.append), healed_one)
    assert names[0] == "f2"
    assert sorted(names[1:]) == ["f0", "f1"]
    [waits] = said
    assert waits.startswith("waiting, 20 s at most: f0 on ")
    assert "has not returned" in waits


def test_a_call_that_never_returns_is_reported_as_not_healed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heal_task, "_ALONE_SECONDS", 0.01)
    monkeypatch.setattr(heal_task, "_CALL_SECONDS_MAX", 0.1)
    hung, other, end = Engine([], []), Engine([], []), threading.Event()
    hung.heal = lambda: end.wait(20) and None  # type: ignore[method-assign, return-value]
    with pytest.raises(NotHealed, match=r"^f0 on .* timed out "):
        healed(tmp_path, hung, other, seconds=0.05)
    end.set()
    assert other.healed == 1


def test_the_proof_timeout_begins_when_the_fault_is_healed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heal_task, "_ALONE_SECONDS", 0.01)
    late = Engine([], [])
    real_heal = late.heal
    late.heal = lambda: (time.sleep(0.3), real_heal())[1]  # type: ignore[method-assign, func-returns-value]
    assert healed(tmp_path, late, seconds=0.1) == ["f0"]


def test_a_healed_fault_that_cannot_be_recorded_is_reported_as_healed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached = Journal.record_state

    def full_at_the_end(journal: Journal, entry: Entry, state: State) -> datetime:
        if state == "healed":
            raise OSError(errno.ENOSPC, "No space left on device", str(journal.folder))
        return reached(journal, entry, state)

    monkeypatch.setattr(Journal, "record_state", full_at_the_end)
    with pytest.raises(NotHealed, match=r"^f0 on  is healed, .* journal .*No space left"):
        healed(tmp_path, Engine([], []))


def test_of_several_failed_healings_the_retryable_one_is_raised() -> None:
    def real_heal(error: Exception) -> None:
        raise error

    with pytest.raises(Unreachable, match=r"^a\. b\.$"):
        for_each([FaultRefused("a."), Unreachable("b."), FaultRefused("a.")], real_heal)
    with pytest.raises(FaultRefused, match=r"^a\.$") as caught:
        for_each([FaultRefused("a.")], real_heal)
    assert not isinstance(caught.value, Unreachable)


def test_faults_are_healed_one_by_one_if_no_thread_can_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system may be unable to start a thread, for lack of memory or because of a limit of processes."""

    def none_left(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", none_left)
    assert healed(tmp_path, Engine([], []), Engine(AWAY[:1], [])) == ["f0", "f1"]


def test_a_call_stays_pending_after_an_interrupted_wait() -> None:
    end = threading.Event()
    asked = BackgroundCall(lambda: end.wait(20))
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(KeyboardInterrupt):
            asked.is_done(20.0)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert not asked.is_done(0.0)
    end.set()
    assert asked.is_done(20.0)
    assert asked.result() is True


@pytest.mark.parametrize("out", ["heal", "is_healed"])
def test_a_pending_call_of_an_earlier_healing_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str
) -> None:
    """A group is healed early and once more at its end, and a process may run `heal` after a run that gave up."""
    monkeypatch.setattr(heal_task, "_ALONE_SECONDS", 0.01)
    monkeypatch.setattr(heal_task, "_CALL_SECONDS_MAX", 0.1)
    hung, end = Engine([], []), threading.Event()
    real, at_work, most = {"heal": hung.heal, "is_healed": hung.is_healed}, [0], [0]

    def call(name: str) -> object:
        at_work[0] += 1
        most[0] = max(most[0], at_work[0])
        if name == out:
            end.wait(20)
        at_work[0] -= 1
        return real[name]()

    hung.heal = lambda: call("heal")  # type: ignore[method-assign, return-value]
    hung.is_healed = lambda: call("is_healed")  # type: ignore[method-assign, return-value]
    names: list[str] = []
    with Journal.locked(tmp_path) as journal:
        pairs = [(_entry(journal, f"slow-{out}"), hung)]

        def again(seconds: float) -> None:
            heal_faults(pairs, journal, None, HealPolicy(seconds), lambda entry: names.append(entry.fault.name))

        for _ in range(2):
            with pytest.raises(NotHealed, match="healing timed out after"):
                again(0.05)
        threading.Timer(0.3, end.set).start()
        again(20.0)
    assert names == [f"slow-{out}"]
    assert most == [1]


def test_a_probe_that_began_in_time_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heal_task, "_ALONE_SECONDS", 0.01)
    slow = Engine([], [])
    slow.is_healed = lambda: (time.sleep(1.2), True)[1]  # type: ignore[method-assign]
    assert healed(tmp_path, slow, seconds=0.8) == ["f0"]


def test_slow_probes_are_not_reported_as_unreachable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heal_task, "_ALONE_SECONDS", 0.01)
    slow = Engine([], [])
    slow.is_healed = lambda: (time.sleep(0.3), False)[1]  # type: ignore[method-assign]
    with pytest.raises(NotHealed, match=r"no probe .* 0\.2 s"):
        healed(tmp_path, slow, seconds=0.2)


def test_a_hanging_call_does_not_keep_others_of_its_group_active(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, second_healed = Engine([], []), Engine([], []), threading.Event()
    ready, real_heal = iter((first, second)), second.heal
    answers: list[bool] = []
    first.heal = lambda: answers.append(second_healed.wait(10))  # type: ignore[method-assign]
    first.is_healed = second_healed.is_set  # type: ignore[method-assign]
    second.heal = lambda: (second_healed.set(), real_heal())[1]  # type: ignore[method-assign, func-returns-value]
    monkeypatch.setattr(runner, "injection", lambda *_: next(ready))
    parts = [{"kind": "process_pause", "target": t, "for": lasts} for t, lasts in (("a", "200ms"), ("b", "1s"))]
    content = {
        "state": str(tmp_path),
        "targets": {name: {"type": "process", "pid_file": f"/nowhere/{name}"} for name in ("a", "b")},
        "limits": {"targets_at_once": 2},
        "schedule": {"faults": [{"together": parts}]},
    }
    (step,) = timeline(config := parse(content)).steps
    with Journal.locked(tmp_path) as journal:
        resumed = ResumedProcesses(lambda _: None)
        runner._one(step, config, journal, None, lambda _: None, threading.Event(), HealPolicy(20.0), resumed)
        assert journal.open_entries() == []
    assert answers[0]


def test_a_state_is_recorded_once_another_healing_has_freed_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Removing a large file takes a while. A fault that is healed meanwhile must not be injected again by
    maintenance."""
    monkeypatch.setattr(heal_task, "_ALONE_SECONDS", 0.01)
    filling, other, append = Engine([], []), Engine([], []), Journal._append
    real_heal, held = filling.heal, list[int]()
    filling.heal = lambda: (time.sleep(0.5), real_heal())[1]  # type: ignore[method-assign, func-returns-value]
    other.maintain = lambda: held.append(1)  # type: ignore[method-assign]

    def on_a_full_disk(journal: Journal, line: dict[str, str]) -> None:
        if not filling.healed:
            raise OSError(errno.ENOSPC, "No space left on device")
        append(journal, line)

    with Journal.locked(tmp_path) as journal:
        pairs: list[tuple[Entry, Injection]] = [(_entry(journal, "other"), other), (_entry(journal, "fills"), filling)]
        monkeypatch.setattr(Journal, "_append", on_a_full_disk)
        patience = HealPolicy(20.0, lambda: runner._hold_once(pairs))
        heal_faults(pairs, journal, None, patience, lambda _: None)
        assert journal.open_entries() == []
    assert all(list(entry.states) == ["injected", "heal_started", "healed"] for entry in read(tmp_path).values())
    assert held == []


@pytest.mark.parametrize("fails", ["heal", "is_healed"])
def test_an_unexpected_error_does_not_prevent_the_proof_of_the_others(tmp_path: Path, fails: str) -> None:
    """The exception must name the fault and reach the caller, whose watchdog then heals."""
    defect, other = Engine([], []), Engine([], AWAY[:1])
    setattr(defect, fails, lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError) as raised:
        healed(tmp_path, defect, other)
    [note] = raised.value.__notes__
    assert note.startswith("f0 on  is not healed: ZeroDivisionError: ")
    assert {name: entry.is_healed for name, entry in read(tmp_path).items()} == {"f0": False, "f1": True}


def test_a_target_that_is_slow_to_fail_is_reported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped proxy, for example, is called again every few seconds."""
    monkeypatch.setattr(heal_task, "_ALONE_SECONDS", 0.01)
    away, real_heal, said = Engine(AWAY[:], []), Engine.heal, list[str]()
    away.heal = lambda: (time.sleep(0.1), real_heal(away))[1]  # type: ignore[method-assign, func-returns-value]
    with Journal.locked(tmp_path) as journal:
        pairs = [(_entry(journal, "away"), away)]
        heal_faults(pairs, journal, None, HealPolicy(20.0, say=said.append), lambda _: None)
    pending, unreachable = said
    assert "has not returned" in pending
    assert unreachable.endswith(": s: nobody answers.")


def test_the_timeout_begins_when_the_pending_call_has_returned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The call of an earlier healing was still running until then."""
    monkeypatch.setattr(heal_task, "_ALONE_SECONDS", 0.01)
    slow, real_heal, end = Engine([], []), Engine.heal, threading.Event()
    slow.heal = lambda: (end.wait(20), time.sleep(0.2), real_heal(slow))[2]  # type: ignore[method-assign, func-returns-value]
    names: list[str] = []
    with Journal.locked(tmp_path) as journal:
        pairs = [(_entry(journal, "late"), slow)]
        with pytest.raises(NotHealed, match="timed out"):
            heal_faults(pairs, journal, None, HealPolicy(0.05, awaits_calls=False), lambda _: None)
        threading.Timer(0.5, end.set).start()
        heal_faults(pairs, journal, None, HealPolicy(0.3), lambda entry: names.append(entry.fault.name))
    assert names == ["late"]
    assert slow.healed == 2
