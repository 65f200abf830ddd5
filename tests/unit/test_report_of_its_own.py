"""The Python API returns the report of its own run, never that of an earlier one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.publish_snapshots import clean
from validator.api import NotVerified, Verdict, verify
from validator.config.examples import EXAMPLES
from validator.publish import report


def test_a_run_that_did_not_start_does_not_return_the_report_of_an_earlier_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python puts the working folder first on the path of `python -m`. A module there that hides one of the standard
    library ends the process with status 1, which is also the status of the verdict `fail`."""
    config = tmp_path / "pipeline.yaml"
    config.write_text(EXAMPLES["clickstream"])
    (tmp_path / "argparse.py").write_text("raise RuntimeError('not the standard library')\n")
    state = tmp_path / "state"
    state.mkdir()
    report.write(state, clean())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    with pytest.raises(NotVerified, match="not the standard library") as found:
        verify(config, state=state)
    assert found.value.report is not None
    assert found.value.report.verdict is Verdict.PASS
