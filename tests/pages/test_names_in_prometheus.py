"""A pipeline with any name, selected in a dashboard: Prometheus returns its series and no other's."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from dashboards.promql import Match, select
from dashboards.queries import CHOSEN, PIPELINE
from tests.pages.prometheus_tools import tool
from tests.unit.dashboards_chosen import in_grafana

NAMES = ("bob's", 'the "b"', "a\\d", "a/b (eu)", "a.b|c", "$x {y} [z]", "größe")
OTHERS = ("bobs", "the b", "a1", "axb", "a.b", "c")


def of(name: str) -> str:
    return f"streamproof_build_info{{pipeline={json.dumps(name, ensure_ascii=False)}}}"


@pytest.mark.full
@pytest.mark.parametrize(
    ("match", "chosen"),
    [*((PIPELINE, (name,)) for name in NAMES), *((CHOSEN, (name,)) for name in NAMES), (CHOSEN, NAMES[:3])],
    ids=lambda part: ",".join(part) if isinstance(part, tuple) else None,
)
def test_a_chosen_pipeline_of_any_name_is_found(match: Match, chosen: tuple[str, ...], tmp_path: Path) -> None:
    test = {
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": of(name), "values": "1"} for name in (*NAMES, *OTHERS)],
                "promql_expr_test": [
                    {
                        "expr": in_grafana(select("build_info", match), *chosen),
                        "eval_time": "0m",
                        "exp_samples": [{"labels": of(name), "value": 1} for name in chosen],
                    }
                ],
            }
        ]
    }
    file = tmp_path / "test.yaml"
    file.write_text(yaml.safe_dump(test, allow_unicode=True), encoding="utf-8")
    ran = subprocess.run(
        [tool("promtool"), "test", "rules", file], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
