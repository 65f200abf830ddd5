"""docs/verdicts.md, played: every table is a history, and every verdict in it is the reference's."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.property.history import Ending, Record, TopicPartition
from tests.property.reference import Judgement
from tests.property.tiny import CLICKS, COUNTS, TIMING, Story, event, late, rejected, result, undecodable

pytestmark = pytest.mark.property

PAGE = Path(__file__).parents[2] / "docs" / "verdicts.md"
RECORD = re.compile(r"(event|late|rejected) (\w+) at (-?\d+)(?: on (\d))?$")
RESULT = re.compile(r"result (-?\d+): ([\w, ]+?)(?: on (\d))?$")
ENDS = re.compile(r"(unread|open|markers|committed|expired) (\w+)/(\d) (\d+)$")
VERDICT = re.compile(r"(\w+)@(-?\d+): (.+)$")


@dataclass(slots=True)
class Table:
    """One table of the page and the lines before it that set the stage."""

    title: str
    settings: dict[str, str]
    rows: list[list[str]] = field(default_factory=list)

    def story(self) -> Story:
        """The stage, empty."""
        timing = TIMING
        if "Timing" in self.settings:
            name, value = self.settings["Timing"].split()
            timing = replace(timing, **{name: value})  # type: ignore[arg-type]
        places = tuple(place(text) for text in self.settings.get("Topics", "").split(", ") if text)
        story = Story(timing, places or (CLICKS, COUNTS))
        if "Begins" in self.settings:
            where, offset = self.settings["Begins"].split()
            story.begins(place(where), int(offset))
        return story


def place(text: str) -> TopicPartition:
    topic, partition = text.split("/")
    return topic, int(partition)


def tables() -> Iterator[Table]:
    title, table = "", None
    settings: dict[str, str] = {}
    for line in PAGE.read_text().splitlines():
        if line.startswith("|"):
            if table is None:
                table, settings = Table(title, settings), {}
                yield table
            if not line.startswith(("| T", "|---")):
                table.rows.append([cell.strip() for cell in line.strip("|").split("|")])
            continue
        table = None
        if line.startswith("#"):
            title = line.strip("# ")
        elif found := re.match(r"(Timing|Topics|Begins|Ending): (.+)$", line):
            settings[found[1]] = found[2]


def play(story: Story, row: list[str]) -> None:
    """Let one row happen."""
    records: list[Record] = []
    ends: dict[str, dict[TopicPartition, int]] = {}
    for part in row[1].split("; "):
        if found := RECORD.match(part):
            id_, time_us = found[2], int(found[3])
            if found[1] == "event":
                records.append(event(id_, time_us, partition=int(found[4] or 0)))
            else:
                records.append((late if found[1] == "late" else rejected)(id_, time_us))
        elif found := RESULT.match(part):
            records.append(result(int(found[1]), *found[2].split(", "), partition=int(found[3] or 0)))
        elif found := ENDS.match(part):
            ends.setdefault(found[1], {})[found[2], int(found[3])] = int(found[4])
        elif part.startswith("undecodable "):
            records.append(undecodable(part.split()[1]))
        else:
            assert part == "nothing", part
    story.step(
        int(row[0]),
        *records,
        unread=ends.get("unread"),
        held=ends.get("open"),
        markers=ends.get("markers"),
        expired=ends.get("expired"),
        committed=ends.get("committed"),
    )


def check(judgement: Judgement, said: str) -> None:
    """Compare what a row says with what the reference found."""
    for part in said.split("; "):
        found = VERDICT.match(part)
        assert found, part
        id_, cell = found[1], (int(found[2]), "k")
        counts: Counter[str] = Counter()
        for words in found[3].split(" + "):
            name, *times = words.strip().split()
            counts[name.strip("*")] = int(times[0]) if times else 1
            is_confirmed = any((at.kind, at.id) == (name.strip("*"), id_) for at in judgement.confirmed)
            assert is_confirmed is name.startswith("**"), part
        assert judgement.contributions[cell][id_] == counts, part


@pytest.mark.parametrize("table", [pytest.param(table, id=table.title) for table in list(tables())])
def test_the_page_says_what_the_reference_finds(table: Table) -> None:
    story, ending = table.story(), table.settings.get("Ending", "none")
    for number, row in enumerate(table.rows, 1):
        play(story, row)
        is_last = number == len(table.rows)
        last: Ending = ending if is_last else "none"  # type: ignore[assignment]
        check(story.judge(last), row[2])


def test_every_class_has_an_example() -> None:
    text = PAGE.read_text()
    for name in (
        "processed", "late", "rejected", "duplicate", "misplaced", "unknown_id", "unresolved", "pending", "overdue",
        "blocked", "unconsumed", "dropped_late", "missing", "out_of_scope",
    ):  # fmt: skip
        assert re.search(rf"@-?\d+: [^|]*\b{name}\b", text), name
