"""A state of an earlier version opens and continues, and gives the same report as a state of this version.

`state_of_12b79e6.tar.gz` was written at that commit by ``python -m tests.unit.test_recorded_state FOLDER`` and then
packed.
"""

from __future__ import annotations

import json
import sys
import tarfile
from pathlib import Path

import pytest

from tests.unit.fed_run import Fed, FedRun
from validator.model.snapshot import Snapshot
from validator.state import folder, identity
from validator.state.tables import SCHEMA_VERSION, StateTables, Table
from validator.stream.recovery import take_over

RECORDED = sorted(Path(__file__).parent.glob("state_of_*.tar.gz"))
SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
HOUR_US = 60 * MINUTE_US


def begin(run: FedRun) -> None:
    """Losses, a repeat, an unknown id, a late record, an undecodable record, and an open window."""
    clicks, answers, late = run.config.inputs[0].topic, run.config.outputs[0].topic, run.config.late[0].topic
    run.feed([Fed(clicks, (number,)) for number in range(6)])
    run.feed([Fed(answers, (0, 1, 1, 99)), Fed(late, (2,)), Fed(clicks, None)], after_us=SECOND_US)
    run.feed([Fed(clicks, (number,), window_us=HOUR_US) for number in (10, 11)], after_us=SECOND_US)
    run.feed([], after_us=HOUR_US)


def go_on(run: FedRun) -> Snapshot:
    """A result that retracts a loss, the result of the open window, and a new loss."""
    clicks, answers = run.config.inputs[0].topic, run.config.outputs[0].topic
    run.feed([Fed(answers, (3, 4)), Fed(answers, (10,), window_us=HOUR_US)], after_us=SECOND_US)
    run.feed([Fed(clicks, (20,), window_us=2 * HOUR_US)], after_us=SECOND_US)
    return run.feed([], after_us=HOUR_US)


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda path: path.name)
def test_a_state_of_an_earlier_version_is_continued(recorded: Path, tmp_path: Path) -> None:
    old = tmp_path / "old"
    with tarfile.open(recorded) as packed:
        packed.extractall(old, filter="data")
    run = FedRun(tmp_path / "new")
    begin(run)
    before = run.shown()
    expected = go_on(run)

    followed = FedRun(tmp_path / "unused")
    begin(followed)
    followed.state = old
    folder.take(old)
    identity.check_or_write(old, followed.config)
    take_over(StateTables(old))
    followed.restart()
    followed.runner.judging.judge_recovered(followed.runner.progress)
    assert followed.shown().contributions == before.contributions
    found = go_on(followed)
    assert found.contributions == expected.contributions
    assert found.verdicts == expected.verdicts
    assert followed.recorded == run.recorded
    for table in (Table.FACTS, Table.VIOLATIONS, Table.VERDICTS):
        rows = [sum(part.num_rows for part in StateTables(state).scan(table)) for state in (old, run.state)]
        assert rows[0] == rows[1], table


def test_a_state_of_a_newer_schema_is_refused(tmp_path: Path) -> None:
    run = FedRun(tmp_path / "new")
    file = run.state / identity.FILE
    folder.take(run.state)
    identity.check_or_write(run.state, run.config)
    newer = json.loads(file.read_text(encoding="utf-8")) | {"schema": SCHEMA_VERSION + 1}
    file.write_text(json.dumps(newer), encoding="utf-8")
    with pytest.raises(identity.StateMismatch, match="by a newer streamproof"):
        identity.check_or_write(run.state, run.config)


if __name__ == "__main__":
    state = Path(sys.argv[1])
    folder.take(state)
    run = FedRun(state)
    identity.check_or_write(state, run.config)
    begin(run)
