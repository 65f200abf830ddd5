"""What is to heal and does not answer is asked again while the proof is waited for; what refuses is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults.errors import FaultRefused, NotHealed, Unreachable
from faults.facts import Facts
from faults.fault import Fault
from faults.healing import Patience, heal_each
from faults.journal import Entry, Journal
from faults.kinds.base import for_each
from faults.parameters import NO_PARAMETERS


class Engine:
    """An injection that is told what to raise: ``heals`` by its healing, ``proofs`` by its proof, in their order."""

    def __init__(self, heals: list[Exception], proofs: list[Exception]) -> None:
        self.facts = Facts()
        self.heals, self.proofs = heals, proofs
        self.healed = 0

    def prepare(self) -> None:
        """Nothing to find."""

    def inject(self) -> None:
        """Nothing to break."""

    def hold(self) -> None:
        """Nothing to hold."""

    def is_in(self) -> bool:
        return True

    def heal(self) -> None:
        if self.heals:
            raise self.heals.pop(0)
        self.healed += 1

    def is_gone(self) -> bool:
        if self.proofs:
            raise self.proofs.pop(0)
        return self.healed > 0


AWAY = [Unreachable("s: nobody answers.") for _ in range(3)]


def healed(folder: Path, *engines: Engine, seconds: float = 20.0) -> list[str]:
    """Names of what is healed, in its order. Raises NotHealed."""
    names: list[str] = []
    with Journal.locked(folder) as journal:
        entries = [_entry(journal, f"f{number}") for number in range(len(engines))]
        pairs = list(zip(entries, engines, strict=True))
        heal_each(pairs, journal, None, Patience(seconds, advice="look"), lambda entry: names.append(entry.fault.name))
    return names


def _entry(journal: Journal, name: str) -> Entry:
    fault = Fault(id=name, name=name, kind="process_kill", targets={}, parameters=NO_PARAMETERS, plan="p", seed=1)
    entry = journal.begin(fault, Facts())
    journal.reach(entry, "injected")
    return entry


@pytest.mark.parametrize(("heals", "proofs"), [(AWAY, []), ([], AWAY), (AWAY[:1], AWAY[:1])])
def test_who_does_not_answer_is_asked_again(tmp_path: Path, heals: list[Exception], proofs: list[Exception]) -> None:
    engine = Engine([*heals], [*proofs])
    assert healed(tmp_path, engine) == ["f0"]
    assert (engine.heals, engine.proofs) == ([], [])


def test_who_does_not_answer_in_time_is_told_with_what_to_do(tmp_path: Path) -> None:
    away = Engine([Unreachable("s: nobody answers.")] * 10_000, [])
    with pytest.raises(NotHealed, match=r"s: nobody answers\. It was asked again for 0\.05 s; look"):
        healed(tmp_path, away, seconds=0.05)
    assert away.healed == 0


def test_who_refuses_is_not_asked_again(tmp_path: Path) -> None:
    engine = Engine([FaultRefused("no.")], [])
    with pytest.raises(NotHealed, match=r"f0 on  is not healed: no\."):
        healed(tmp_path, engine)
    assert engine.healed == 0


def test_the_others_are_healed_before_one_is_waited_for(tmp_path: Path) -> None:
    away, other = Engine(AWAY[:2], []), Engine([], [])
    asked: list[int] = []
    away.is_gone = lambda: asked.append(other.healed) or True  # type: ignore[method-assign, func-returns-value]
    assert healed(tmp_path, away, other) == ["f1", "f0"]
    assert asked == [1]


def test_one_that_never_answers_keeps_no_other_from_being_asked_again(tmp_path: Path) -> None:
    lost, back = Engine([Unreachable("p: no proxy answers.")] * 10_000, []), Engine(AWAY[:2], [])
    names: list[str] = []
    with Journal.locked(tmp_path) as journal:
        pairs = [(_entry(journal, "lost"), lost), (_entry(journal, "back"), back)]

        def nobody_comes() -> None:
            if names:
                raise NotHealed("nobody starts the proxy again.")

        patience = Patience(20.0, nobody_comes)
        with pytest.raises(NotHealed, match=r"^lost on  is not healed: nobody starts the proxy again\.$"):
            heal_each(pairs, journal, None, patience, lambda entry: names.append(entry.fault.name))
    assert names == ["back"]


def test_of_many_that_cannot_be_mended_one_that_may_be_later_counts() -> None:
    def mend(error: Exception) -> None:
        raise error

    with pytest.raises(Unreachable, match=r"^a\. b\.$"):
        for_each([FaultRefused("a."), Unreachable("b."), FaultRefused("a.")], mend)
    with pytest.raises(FaultRefused, match=r"^a\.$") as caught:
        for_each([FaultRefused("a.")], mend)
    assert not isinstance(caught.value, Unreachable)
