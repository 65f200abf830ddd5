"""The examples of docs/verdicts.md and of the oracles' pages: each table is a history, and the reference must return
every verdict in it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final

import pytest

from tests.property.distinct import DistinctReferee
from tests.property.enriched import EnrichedReferee, EnrichedTiming, stating
from tests.property.history import Ending, Record, TableRow, Timing, TopicPartition
from tests.property.intervals import InnerInterval, IntervalTiming
from tests.property.join_reference import REFERENCES, InnerJoin
from tests.property.passthrough import PassthroughReferee, PassthroughTiming
from tests.property.reference import Judgement, Reference
from tests.property.running import RunningReferee, RunningTiming, cell_of
from tests.property.sessions import SessionReferee
from tests.property.sliding import SlidingReferee, SlidingTiming
from tests.property.tiny import (
    CLICKS,
    COUNTS,
    TIMING,
    Story,
    event,
    late,
    rejected,
    result,
    tombstone,
    undecodable,
)

pytestmark = pytest.mark.property

DOCS: Final = Path(__file__).parents[2] / "docs"
PAGE: Final = DOCS / "verdicts.md"
TWINS: Final[dict[str, tuple[Timing, type[Reference]]]] = {
    "distinct": (TIMING, DistinctReferee),
    "enrichment": (EnrichedTiming(**asdict(TIMING), behind_us=5, ahead_us=5), EnrichedReferee),
    "interval_join": (IntervalTiming(**asdict(TIMING), after_us=5), InnerInterval),
    "passthrough": (PassthroughTiming(**asdict(TIMING)), PassthroughReferee),
    "running_aggregate": (RunningTiming(**asdict(TIMING)), RunningReferee),
    "session_window": (TIMING, SessionReferee),
    "sliding_window": (SlidingTiming(**asdict(TIMING), slide_us=5), SlidingReferee),
    "windowed_join": (TIMING, InnerJoin),
}
"""Page of an oracle -> the initial timing of its tables, and the reference that judges them."""
RECORD = re.compile(r"(event|late|rejected) ([\w/]+) at (-?\d+)(?: of (\w+))?(?: on (\d))?$")
RESULT = re.compile(r"result (-?\d+): ([\w/, ]+?)(?: stating (\w+))?(?: on (\d))?$")
TABLE_ROW = re.compile(r"row (\w+) at (-?\d+): (\w+)$")
OF_KEY = re.compile(r"(result|withdrawal) of (\w+)(?:: ([\w, ]+?))?(?: on (\d))?$")
ENDS = re.compile(r"(unread|open|markers|committed|expired) (\w+)/(\d) (\d+)$")
VERDICT = re.compile(r"([\w/]+)@(-?\d+|[a-z]+): (.+)$")


@dataclass(slots=True)
class Table:
    """One table of a page, with the settings in the lines before it."""

    page: Path
    title: str
    settings: dict[str, str]
    rows: list[list[str]] = field(default_factory=list)

    def story(self) -> Story:
        """A story with the table's settings and no steps."""
        timing, reference = TWINS.get(self.page.stem, (TIMING, Reference))
        if "Join" in self.settings:
            reference = REFERENCES[self.settings["Join"]]  # type: ignore[index]
        for setting in self.settings.get("Timing", "").split(", ") if "Timing" in self.settings else ():
            name, value = setting.split()
            timing = replace(timing, **{name: value})  # type: ignore[arg-type]
        places = tuple(place(text) for text in self.settings.get("Topics", "").split(", ") if text)
        story = Story(timing, places or (CLICKS, COUNTS), reference)
        if "Begins" in self.settings:
            where, offset = self.settings["Begins"].split()
            story.begins(place(where), int(offset))
        return story


def place(text: str) -> TopicPartition:
    topic, partition = text.split("/")
    return topic, int(partition)


def tables(page: Path) -> Iterator[Table]:
    """The tables of a page whose header begins with T. Other tables are not histories."""
    title, table = "", None
    settings: dict[str, str] = {}
    for line in page.read_text().splitlines():
        if line.startswith("|"):
            if line.startswith("| T |"):
                table, settings = Table(page, title, settings), {}
                yield table
            elif table is not None and not line.startswith("|---"):
                table.rows.append([cell.strip() for cell in line.strip("|").split("|")])
            continue
        table = None
        if line.startswith("#"):
            title = line.strip("# ")
        elif found := re.match(r"(Timing|Topics|Begins|Ending|Join): (.+)$", line):
            settings[found[1]] = found[2]


def play(story: Story, row: list[str]) -> None:
    """Add one row of a table to the story."""
    records: list[Record] = []
    ends: dict[str, dict[TopicPartition, int]] = {}
    for part in row[1].split("; "):
        if found := RECORD.match(part):
            id_, time_us = found[2], int(found[3])
            if found[1] == "event":
                records.append(event(id_, time_us, found[4] or "k", partition=int(found[5] or 0)))
            else:
                records.append((late if found[1] == "late" else rejected)(id_, time_us))
        elif found := RESULT.match(part):
            one = result(int(found[1]), *found[2].split(", "), partition=int(found[4] or 0))
            records.append(one if found[3] is None else stating(one, found[3]))
        elif found := TABLE_ROW.match(part):
            records.append(TableRow("rows", 0, -1, 0, found[1], int(found[2]), found[3]))
        elif found := OF_KEY.match(part):
            partition = int(found[4] or 0)
            if found[1] == "result":
                records.append(result(0, *found[3].split(", "), key=found[2], partition=partition))
            else:
                records.append(tombstone(found[2], partition))
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


def check(judgement: Judgement, said: str, reference: Reference) -> None:
    """Compare a row's verdicts with the reference's judgement. `results@0` has the classes of results of a cell."""
    for part in said.split("; ") if said != "nothing" else ():
        found = VERDICT.match(part)
        assert found, part
        id_ = found[1]
        cell = cell_of(found[2], id_) if found[2].isalpha() else (int(found[2]), "k")
        if id_ == "results":
            classes = Counter(reference.result_classes(cell))
            classes["inconsistent"] = classes.pop("wrong_value", 0)
            told = [words.split() for words in found[3].split(" + ")]
            assert +classes == Counter({name: int(times[0]) if times else 1 for name, *times in told}), part
            continue
        counts: Counter[str] = Counter()
        for words in found[3].split(" + "):
            name, *times = words.strip().split()
            counts[name.strip("*")] = int(times[0]) if times else 1
            is_confirmed = any((at.kind, at.id) == (name.strip("*"), id_) for at in judgement.confirmed)
            assert is_confirmed is name.startswith("**"), part
        assert judgement.contributions[cell][id_] == counts, part


def played() -> list[Table]:
    """The tables of all pages."""
    return [table for page in (PAGE, *sorted((DOCS / "oracles").glob("[a-z]*.md"))) for table in tables(page)]


def test_the_examples_of_every_oracle_page_are_run() -> None:
    # `time_zone` is the page of a parameter; `test_wall_clock.py` reads its table.
    pages = {page.stem for page in (DOCS / "oracles").glob("[a-z]*.md")} - {"time_zone", "python"}
    assert pages == TWINS.keys()
    assert pages <= {table.page.stem for table in played()}


@pytest.mark.parametrize("table", [pytest.param(table, id=table.title) for table in played()])
def test_the_examples_agree_with_the_reference(table: Table) -> None:
    story, ending = table.story(), table.settings.get("Ending", "none")
    for number, row in enumerate(table.rows, 1):
        play(story, row)
        is_last = number == len(table.rows)
        last: Ending = ending if is_last else "none"  # type: ignore[assignment]
        check(story.judge(last), row[2], story.reference(story.history(), len(story.steps) - 1, last))


def test_every_class_has_an_example() -> None:
    text = PAGE.read_text()
    for name in (
        "processed", "late", "rejected", "duplicate", "misplaced", "unknown_id", "unresolved", "pending", "overdue",
        "blocked", "unconsumed", "dropped_late", "missing", "out_of_scope",
    ):  # fmt: skip
        assert re.search(rf"@-?\d+: [^|]*\b{name}\b", text), name
