"""`dashboards check`: its requests to Prometheus other than PromQL queries, and its messages if there is no data."""

from __future__ import annotations

from typing import Any

import pytest

from dashboards import live
from dashboards.queries import label_values
from dashboards.settings import Settings
from dashboards.site import dashboards
from validator.cli.main import main

Asked = list[tuple[str, dict[str, str]]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """The requests to a fake Prometheus that has one series for each query, one pipeline and none of its instances."""
    heard: Asked = []

    def get(url: str, what: str, query: dict[str, str]) -> dict[str, Any]:
        heard.append((what, query))
        data = {"query": {"result": [1]}, "label/pipeline/values": ["orders"], "rules": {"groups": []}}
        return {"status": "success", "data": data.get(what, [])}

    monkeypatch.setattr(live, "_get", get)
    return heard


def test_variables_are_queried_for_their_values(asked: Asked) -> None:
    found = {
        answer.where: answer.series for answer in live.check("prometheus", Settings()) if "variable" in answer.where
    }
    assert found == {
        "streamproof-overview: variable pipeline": 1,
        "streamproof-overview: variable instance": 0,
        "streamproof-overview: variable scheme": 0,
        "streamproof-pipeline: variable pipeline": 1,
        "streamproof-pipeline: variable pipeline_tag": 1,
        "streamproof-pipeline: variable instance": 0,
        "streamproof-pipeline: variable scheme": 0,
        "streamproof-faults: variable pipeline": 1,
        "streamproof-faults: variable pipeline_tag": 1,
        "streamproof-faults: variable instance": 0,
        "streamproof-faults: variable scheme": 0,
        "streamproof-sidecar: variable pipeline": 1,
        "streamproof-sidecar: variable instance": 0,
        "streamproof-sidecar: variable scheme": 0,
    }
    assert ("label/pipeline/values", {"match[]": "streamproof_build_info"}) in asked
    assert ("label/instance/values", {"match[]": "streamproof_build_info{pipeline=~`.*`}"}) in asked
    assert ("label/scheme/values", {"match[]": "streamproof_build_info{instance=~`.*`}"}) in asked


def test_a_variable_without_values_is_reported_as_empty(asked: Asked, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dashboards", "check", "--prometheus", "prometheus"]) == 0
    assert "empty    streamproof-pipeline: variable instance\n" in capsys.readouterr().out


def test_every_query_of_a_variable_is_label_values() -> None:
    for board in dashboards(Settings()):
        asking = [variable for variable in board.variables if variable.kind == "query"]
        assert len(label_values(board)) == len(asking) > 0
