"""Events that were unconsumed when retention dropped their cells stay in the verdict of the whole run, and leave the
verdicts of the last hour and day once they are consumed.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.unit.fed_run import Fed, FedRun
from tests.unit.reconcile_rows import MINUTE_US
from validator.model.classes import Guarantee, Verdict
from validator.model.snapshot import Snapshot

HOUR_US = 60 * MINUTE_US
UNKNOWN, PASS = Verdict.UNKNOWN, Verdict.PASS


def verdicts(shown: Snapshot) -> tuple[Verdict, Verdict, Verdict]:
    """The exactly-once verdicts over the run, the last hour and the last day."""
    exactly = Guarantee.EXACTLY_ONCE
    return shown.verdicts[exactly], shown.verdicts_over["1h"][exactly], shown.verdicts_over["24h"][exactly]


def test_unconsumed_events_of_retired_cells_stay_in_the_verdict_of_the_whole_run(tmp_path: Path) -> None:
    run = FedRun(tmp_path, settings=("engine.consumer_group=g", "state.retention=24h"))
    run.logs.committed = 2
    run.feed([Fed("click", (1,)), Fed("click", (2,), key="b"), Fed("output", (1,)), Fed("output", (2,), key="b")])
    run.feed([Fed("click", (3,)), Fed("click", (4,), 2 * MINUTE_US)])
    behind = run.feed([], after_us=3 * MINUTE_US)
    assert (behind.unconsumed_overdue, verdicts(behind)) == (1, (UNKNOWN, UNKNOWN, UNKNOWN))
    run.feed([], after_us=30 * HOUR_US)
    assert run.runner.judging.retired.unconsumed_overdue == 1, "the cell is retired"

    for restarted in (False, True):
        if restarted:
            run.restart()
        run.logs.committed = 4
        consumed = run.feed([], after_us=MINUTE_US)
        assert (consumed.unconsumed_overdue, consumed.unconsumed_due_us) == (0, None)
        assert verdicts(consumed) == (UNKNOWN, PASS, PASS)
        assert consumed.verdicts[Guarantee.AT_MOST_ONCE] is PASS
        assert any(re.match("1 event .* group g .* retention", reason) for reason in consumed.reasons)
        assert not any("more than" in reason for reason in consumed.reasons)
    ended = run.end()
    assert not any("at the end of the run" in reason for reason in ended.reasons)
