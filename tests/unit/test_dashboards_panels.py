"""The dashboards' JSON: stable uids, no overlapping panels, only known and used variables, links to runbooks."""

from __future__ import annotations

import json
import re
from itertools import combinations
from typing import Any

import pytest

from dashboards.alerts import alerts
from dashboards.panels import COLUMNS, Dashboard, Panel, Query, Row
from dashboards.queries import FAULT_TAG, PUSHED_FAULTS, addresses, expressions, label_values, substituted
from dashboards.rules import annotations_of, dashboard_of
from dashboards.settings import Settings
from dashboards.site import dashboards, files
from tests.unit.dashboards_chosen import in_grafana
from validator.publish.catalogue import PREFIX
from validator.publish.metrics import METRIC_WITH_EXEMPLARS

BOARDS = dashboards(Settings())
LINKED = dashboards(Settings(runbooks="https://example.org/books"))
each_board = pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)


def test_the_uids_of_dashboards_are_stable() -> None:
    assert [board.uid for board in BOARDS] == [
        "streamproof-overview", "streamproof-pipeline", "streamproof-faults", "streamproof-sidecar",
    ]  # fmt: skip


@each_board
def test_the_file_of_a_dashboard_equals_its_model(board: Dashboard) -> None:
    assert json.loads(files(Settings())[f"grafana/dashboards/{board.uid}.json"]) == board.build()


@each_board
def test_panels_have_unique_ids_and_do_not_overlap(board: Dashboard) -> None:
    panels = board.build()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [panel["gridPos"] for panel in panels]
    assert all(p["x"] >= 0 and p["x"] + p["w"] <= COLUMNS for p in places)
    assert not [(a, b) for a, b in combinations(places, 2) if overlap(a, b)]


def overlap(a: dict[str, int], b: dict[str, int]) -> bool:
    return (
        a["x"] < b["x"] + b["w"] and b["x"] < a["x"] + a["w"] and a["y"] < b["y"] + b["h"] and b["y"] < a["y"] + a["h"]
    )


def test_panels_that_do_not_fit_in_a_line_go_to_the_next() -> None:
    panels = tuple(
        Panel("stat", str(i), "", (Query("1"),), width=width, height=3) for i, width in enumerate((10, 10, 10))
    )
    board = Dashboard("u", "t", "", (), (Row("r", panels), Row("s", panels[:1])))
    places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in board.build()["panels"]]
    assert places == [(0, 0), (0, 1), (10, 1), (0, 4), (0, 7), (0, 8)]


@pytest.mark.parametrize("board", [*BOARDS, *LINKED], ids=lambda board: board.uid)
def test_variables_of_expressions_and_legends_exist(board: Dashboard) -> None:
    names = {variable.name for variable in board.variables}
    assert {"datasource", "pipeline"} <= names
    for where, expression in expressions(board):
        used = set(re.findall(r"\$\{?(\w+)", expression)) - {"__rate_interval", "__range", "__interval"}
        assert used <= names, where
        assert "${pipeline:" in expression, f"{where} shows pipelines that were not chosen"
        assert "$" not in substituted(expression), where
    urls = [url for _, url in addresses(board)] + [link.url for link in board.links]
    linked = {name for url in urls for name in re.findall(r"\$\{(\w+)\}", url)}
    assert linked <= names | {"__data"}
    asked = [text for _, text in expressions(board)] + [tag for layer in board.tagged for tag in layer.tags]
    found = {name for text in asked for name in re.findall(r"\$\{?(\w+)", text)}
    unused = names - linked - {"datasource"} - found
    assert not unused


@each_board
@pytest.mark.parametrize(
    ("name", "other"),
    [("orders(eu)", "orderseu"), ("a.b", "axb"), ("a\\d", "a1"), ("bob's", "bobs"), ('the "b"', "the b"), ("a/b", "a")],
)
def test_a_name_with_a_meaning_in_promql_is_matched_literally(board: Dashboard, name: str, other: str) -> None:
    selectors = [(where, selector) for where, selector, _ in label_values(board) if "$" in selector]
    for where, expression in [*expressions(board), *selectors]:
        asked = re.findall(r"pipeline(=~?)`([^`]*)`", in_grafana(expression, name))
        assert len(asked) == expression.count("${pipeline:"), where
        for operator, text in asked:
            found = [n for n in (name, other) if (n == text if operator == "=" else re.fullmatch(text, n))]
            assert found == [name], where


def test_a_link_to_a_pipeline_takes_any_name() -> None:
    [overview] = [board for board in BOARDS if board.uid == "streamproof-overview"]
    assert {url for _, url in addresses(overview)} == {
        "/d/streamproof-pipeline?var-pipeline=${__data.fields.pipeline:percentencode}"
    }


@pytest.mark.parametrize("uid", ["streamproof-pipeline", "streamproof-faults"])
def test_a_count_of_violations_links_to_their_ids(uid: str) -> None:
    [board] = [board for board in BOARDS if board.uid == uid]
    counting = [panel for panel in board.panels if any("_violations_" in query.expression for query in panel.queries)]
    assert len(counting) > 2
    for panel in counting:
        links = [link["url"] for link in panel.build(1, 0, 0)["fieldConfig"]["defaults"]["links"]]
        assert links == ["${scheme}://${instance}/violations.json", "${scheme}://${instance}/"], panel.title


def test_only_counts_of_confirmed_violations_show_exemplars() -> None:
    shown = {
        (panel.title, panel.unit, target["range"])
        for board in BOARDS
        for panel in board.panels
        for target, query in zip(panel.build(1, 0, 0)["targets"], panel.queries, strict=True)
        if target.get("exemplar") and f"{PREFIX}{METRIC_WITH_EXEMPLARS}" in query.expression
    }
    # An exemplar's value is a count of contributions, so it is off the scale beside a ratio.
    titles = ("confirmed violations", "confirmed violations by phase", "confirmed violations by class")
    assert shown == {(title, "short", True) for title in titles}
    asked = [target for board in BOARDS for panel in board.build()["panels"] for target in panel.get("targets", [])]
    assert sum(bool(target.get("exemplar")) for target in asked) == len(shown)


def test_cells_are_described_under_an_existing_heading() -> None:
    for board in BOARDS:
        for panel in board.panels:
            assert set(panel.cells) <= set(panel.columns.values()), panel.title
            overrides = panel.build(1, 0, 0)["fieldConfig"]["overrides"]
            assert [override["matcher"]["options"] for override in overrides] == list(panel.cells)


def test_an_alert_names_a_dashboard_that_names_its_runbook() -> None:
    for alert in alerts(Settings()):
        [board] = [board for board in BOARDS if board.uid == dashboard_of(alert)]
        assert f"{alert.name}.md" in board.description
        annotated = annotations_of(alert, Settings(grafana="https://grafana.example.org/"))
        assert annotated["dashboard"] == (
            f"https://grafana.example.org/d/{board.uid}?var-pipeline={{{{ .Labels.pipeline | urlquery }}}}"
        )


@each_board
def test_every_query_uses_the_chosen_data_source(board: Dashboard) -> None:
    model = board.build()
    asked = [target["datasource"] for panel in model["panels"] for target in panel.get("targets", [])]
    # Pushed annotations are stored in Grafana, not in Prometheus.
    asked += [a["datasource"] for a in model["annotations"]["list"] if a["name"] != PUSHED_FAULTS.name]
    assert asked
    assert all(source == {"type": "prometheus", "uid": "${datasource}"} for source in asked)


@each_board
def test_a_panel_is_explained_and_a_legend_names_labels_that_the_expression_keeps(board: Dashboard) -> None:
    for panel in board.panels:
        assert panel.description.endswith("."), panel.title
        for query in panel.queries:
            for label in re.findall("{{(\\w+)}}", query.legend):
                assert re.search(rf"by \([^)]*\b{label}\b", query.expression), (panel.title, label)


@each_board
def test_a_table_shows_as_many_columns_as_it_queries(board: Dashboard) -> None:
    for panel in board.panels:
        if panel.kind == "table":
            values = [name for name in panel.columns if name.startswith("Value #")]
            assert [name[-1] for name in values] == [target["refId"] for target in built(board, panel.title)["targets"]]


def built(board: Dashboard, title: str) -> dict[str, Any]:
    [found] = [panel for panel in board.build()["panels"] if panel["title"] == title and panel["type"] == "table"]
    return dict(found)


@pytest.mark.parametrize("uid", ["streamproof-overview", "streamproof-pipeline", "streamproof-faults"])
def test_fault_windows_are_annotations(uid: str) -> None:
    [board] = [board for board in BOARDS if board.uid == uid]
    annotation, *pushed = board.build()["annotations"]["list"]
    assert "streamproof_fault_active" in annotation["target"]["expr"]
    assert "{{pipeline}}" in annotation["textFormat"]
    for layer in pushed:
        assert layer["target"]["tags"] == [FAULT_TAG, "pipeline:$pipeline_tag"]


def test_runbooks_are_links_once_their_address_is_known() -> None:
    for plain, linked in zip(BOARDS, LINKED, strict=True):
        beside = [link["url"] for link in plain.build()["links"] if link["type"] == "link"]
        # Every sidecar serves the pages too.
        assert beside
        assert any(variable.name == "instance" for variable in plain.variables)
        assert all(re.fullmatch(r"\$\{scheme\}://\$\{instance\}/runbooks/Streamproof\w+", url) for url in beside)
        assert "docs/runbooks/Streamproof" in plain.build()["description"]
        urls = [link["url"] for link in linked.build()["links"] if link["type"] == "link"]
        assert urls
        assert all(re.fullmatch(r"https://example\.org/books/Streamproof\w+\.md", url) for url in urls)
