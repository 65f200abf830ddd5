"""Windows whose newest result counts, and a null value that withdraws one of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit import fed_run
from tests.unit.fed_run import Fed, FedRun
from tests.unit.local_run import judged
from tests.unit.pipeline_shapes import SHAPES, log
from validator.codecs.columns import TOMBSTONE
from validator.config.examples import EXAMPLES
from validator.model.classes import Guarantee, Verdict

OUTPUT = "outputs.0={topic: out, emission: cumulative, fields: {key: $key, window_start: start, ids: ids}}"


@pytest.mark.parametrize("withdraws", [True, False])
def test_a_null_value_that_names_no_window_is_a_doubt_about_losses(
    withdraws: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row_of = fed_run._row

    def with_tombstones(one: Fed, *others: Any) -> dict[str, Any]:
        return {**row_of(one, *others), **({"status": TOMBSTONE} if one.ids is None else {})}

    monkeypatch.setattr(fed_run, "_row", with_tombstones)
    run = FedRun(tmp_path, ("inputs.0.topic=in", OUTPUT, "late=[]"))
    run.feed([Fed("in", (1,)), Fed("out", (1,)), *([Fed("out", None)] if withdraws else [])])
    found = run.end()
    kept = Verdict.UNKNOWN if withdraws else Verdict.PASS
    assert found.results["tombstone"] == withdraws
    assert [found.verdicts[name] for name in Guarantee] == [Verdict.PASS, kept, kept]
    reason = "1 null value on topic out may have withdrawn any result, since a null value names no window"
    assert any(reason in one for one in found.reasons) == withdraws


@pytest.mark.parametrize("stated_again", [False, True])
def test_a_null_value_whose_key_names_the_window_withdraws_its_count(stated_again: bool, tmp_path: Path) -> None:
    logs = SHAPES["kafka-streams-windowed"]().logs
    results = logs["view-counts"]
    last = results[-1]
    more = [last._replace(value=None), *([last] if stated_again else [])]
    found = judged(EXAMPLES["kafka-streams-windowed"], {**logs, "view-counts": log([*results, *more])}, tmp_path)
    lost = 0 if stated_again else int.from_bytes(last.value or b"")
    assert found.violations["confirmed"] == {**dict.fromkeys(found.violations["confirmed"], 0), "missing": lost}
    assert found.contributions["missing"] == lost
    assert found.verdicts[Guarantee.EXACTLY_ONCE] is (Verdict.PASS if stated_again else Verdict.FAIL)
