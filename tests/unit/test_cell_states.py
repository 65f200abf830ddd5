"""Each cell's share of the totals (`validator.core.cell_states`), and the integer type in which it is stored."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.unit.read_through import Suspected, read_through
from tests.unit.reconcile_rows import MINUTE_US, fact, facts
from validator.core.cell_states import signed_for
from validator.core.judging import Judging
from validator.oracles.tumbling_window import TumblingWindow
from validator.reconcile.judge import Rules
from validator.state.known_facts import KnownFacts
from validator.state.tables import StateTables, Table


def test_a_share_fits_its_type_which_is_signed_and_the_smallest() -> None:
    for bits in range(63):
        for most in ((1 << bits) - 1, 1 << bits):
            found = signed_for(most)
            assert np.issubdtype(found, np.signedinteger), most
            assert most <= np.iinfo(found).max
            assert found == np.int8 or most > np.iinfo(f"int{4 * found.itemsize}").max


def test_events_in_results_late_records_and_rejected_records_are_handled(tmp_path: Path) -> None:
    tables = StateTables(tmp_path)
    rows = facts(
        fact("input", [1, 2, 3, 4], batch=0, lookup_us=0),
        *(
            fact(side, [event_id], batch=0, lookup_us=0)
            for side, event_id in (("output", 1), ("late", 2), ("rejected", 3))
        ),
    )
    tables.append(rows, Table.FACTS, writer="test", version=0)
    rules = Rules(oracle=TumblingWindow.of(MINUTE_US), overdue_after_us=20, missing_after_us=40)
    judging = Judging(KnownFacts(tables, first_batch=0), rules)
    judging.step(rows, read_through(0), Suspected())
    judging.step(None, read_through(41), Suspected())
    sums = judging.sums
    assert {name: sums.counts[name] for name in ("processed", "late", "rejected", "missing")} == dict.fromkeys(
        ("processed", "late", "rejected", "missing"), 1
    )
    assert (sums.settled_expected, sums.settled_handled) == (4, 3)
