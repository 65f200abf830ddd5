"""The first pipeline of the guide: the page shows what the sidecar reports without and with ids.

`STREAMPROOF_WRITE=1 python -m pytest tests/unit/test_guide.py` rewrites this part of the page.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections import defaultdict
from pathlib import Path

import confluent_kafka
import pytest

from tests.unit.local_run import judged
from tests.unit.publish_snapshots import newest
from validator.codecs.one_record import Record
from validator.model.snapshot import Snapshot
from validator.publish import text
from validator.publish.report import build

pytestmark = pytest.mark.unit

GUIDE = Path(__file__).parents[2] / "docs" / "guide"
PAGE = GUIDE / "README.md"


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Record]]:
    """What the script writes: topic -> records."""
    found: dict[str, list[Record]] = defaultdict(list)

    class Producer:
        def __init__(self, options: object) -> None:
            del options

        def produce(self, topic: str, value: str) -> None:
            found[topic].append(Record(value.encode(), offset=len(found[topic])))

        def flush(self) -> int:
            return 0

    monkeypatch.setattr(confluent_kafka, "Producer", Producer)
    monkeypatch.setattr(sys, "argv", ["orders.py"])
    runpy.run_path(str(GUIDE / "orders.py"))
    return found


def of(name: str, logs: dict[str, list[Record]], folder: Path) -> Snapshot:
    return judged((GUIDE / f"{name}.yaml").read_text(encoding="utf-8"), logs, folder / name)


def test_the_first_pipeline_is_judged_as_the_page_shows(logs: dict[str, list[Record]], tmp_path: Path) -> None:
    shown = of("orders", logs, tmp_path)
    assert {name: count for name, count in shown.violations["confirmed"].items() if count} == {
        "missing": 1,
        "wrong_value": 1,
    }
    _, _, listed = text.render(build(shown), newest(shown)).partition("\nNewest violations")
    _, _, block = listed.partition("\n")
    page = PAGE.read_text(encoding="utf-8")
    before, command, after = page.partition("$ streamproof report state/orders\n[...]\n")
    assert command
    written, end, rest = after.partition("```")
    if os.environ.get("STREAMPROOF_WRITE"):
        PAGE.write_text(f"{before}{command}{block}{end}{rest}", encoding="utf-8")
        return
    assert written == block, "run it again with STREAMPROOF_WRITE=1"


def test_ids_name_the_events_as_the_page_says(logs: dict[str, list[Record]], tmp_path: Path) -> None:
    found = {(one.violation_class, one.ids) for one in newest(of("orders-ids", logs, tmp_path))}
    assert found == {("missing", ("17",)), ("missing", ("209",)), ("duplicate", ("205",))}
    assert "Orders 17 and 209 are missing, and 205 is a\nduplicate" in PAGE.read_text(encoding="utf-8")
