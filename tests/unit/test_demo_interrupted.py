"""After Ctrl-C the demo prints the report of the last batch, if there is one."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.demo.options import plan_of
from testbed.demo.pipeline import Demo
from testbed.demo.screen import Screen
from testbed.stop import Stop
from tests.unit.publish_snapshots import broken, newest
from validator.cli.parser import parse
from validator.publish.report import build

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("has_report", [True, False])
def test_ctrl_c_prints_the_report_of_the_last_batch(
    has_report: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(Demo, "_run_in", interrupted)
    shown = io.StringIO()
    demo = Demo(plan_of(parse(["demo"])), tmp_path, Screen(shown), Stop())
    published = (build(broken()), newest(broken())) if has_report else None
    monkeypatch.setattr(demo, "_sidecar", SimpleNamespace(read_report=lambda: published))
    with pytest.raises(KeyboardInterrupt):
        demo.run()
    said = "interrupted: this is the report of the last batch" in shown.getvalue()
    assert (said, "What broke" in shown.getvalue()) == (has_report, has_report)
