"""The journal reads back what was written, and does not accept a line that a kill cut off."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from generator import journal
from generator.config import GeneratorConfigError, parse
from generator.run import _clear
from generator.sends import LATE

pytestmark = pytest.mark.unit

HEADER = {"topic": "click", "keys": [["/help"], ["/index", "region-1"]], "id_prefix": None}


def write(path: Path, numbers: list[int], *, totals: bool = True, header: dict[str, object] | None = None) -> None:
    n = len(numbers)
    with journal.JournalWriter(path, header or HEADER) as writer:
        for low in range(0, n, 3):
            part = numbers[low : low + 3]
            writer.write(
                number=part,
                time_ms=[10 * x for x in part],
                offset=[x if x % 2 else -1 for x in part],
                key=[x % 2 for x in part],
                partition=[x % 3 for x in part],
                kind=[LATE] * len(part),
                outcome=[journal.ACKNOWLEDGED if x % 2 else journal.INDETERMINATE for x in part],
            )
        if totals:
            writer.finish({"sends": n})


@given(numbers=st.lists(st.integers(0, 2**58), max_size=20))
def test_a_journal_is_read_as_it_was_written(tmp_path_factory: pytest.TempPathFactory, numbers: list[int]) -> None:
    path = tmp_path_factory.mktemp("journal") / "producer-0000.journal"
    write(path, numbers)
    sends = list(journal.read(path))
    assert [s.id for s in sends] == numbers
    assert [s.time_ms for s in sends] == [10 * x for x in numbers]
    assert [s.offset for s in sends] == [x if x % 2 else None for x in numbers]
    assert [s.outcome for s in sends] == ["acknowledged" if x % 2 else "indeterminate" for x in numbers]
    assert all(s.topic == "click" and s.kind == LATE for s in sends)
    assert journal.JournalReader(path).totals() == {"sends": len(numbers)}


def test_text_ids_and_composite_keys_are_read_back(tmp_path: Path) -> None:
    write(tmp_path / "a.journal", [1], header={**HEADER, "id_prefix": "click-"})
    (send,) = journal.read(tmp_path)
    assert (send.id, send.key) == ("click-1", ("/index", "region-1"))


def test_keys_without_a_bound_are_read_back(tmp_path: Path) -> None:
    write(tmp_path / "a.journal", [1], header={**HEADER, "keys": [], "key_form": "%d"})
    assert [send.key for send in journal.read(tmp_path)] == [("1",)]


def test_a_folder_is_read_file_after_file(tmp_path: Path) -> None:
    write(tmp_path / "producer-0001.journal", [4])
    write(tmp_path / "producer-0000.journal", [3])
    assert [s.id for s in journal.read(tmp_path)] == [3, 4]


@pytest.mark.parametrize("cut", [1, 5, 30])
def test_a_kill_leaves_whole_blocks_and_no_totals(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "a.journal"
    write(path, [1, 2, 3, 4, 5, 6], totals=False)
    path.write_bytes(path.read_bytes()[:-cut])
    assert [s.id for s in journal.read(path)] == [1, 2, 3]
    assert journal.JournalReader(path).totals() is None


def test_a_damaged_journal_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.journal"
    write(path, [1, 2, 3])
    data = bytearray(path.read_bytes())
    data[data.index(b"ROWS") + 20] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(journal.JournalError, match="damaged"):
        list(journal.read(path))


def test_another_file_is_not_a_journal(tmp_path: Path) -> None:
    (tmp_path / "a.journal").write_text("hello")
    with pytest.raises(journal.JournalError, match="not a journal"):
        list(journal.read(tmp_path))


def test_a_foreign_summary_is_not_removed(tmp_path: Path) -> None:
    config = parse({"kafka": {"bootstrap_servers": "b:9092"}, "journal": str(tmp_path)})
    (tmp_path / "summary.json").write_text("mine")
    with pytest.raises(GeneratorConfigError, match=r"^journal: .*summary.json"):
        _clear(config)
    assert (tmp_path / "summary.json").read_text() == "mine"
