"""The committed rules in promtool: silent at first, then firing, then resolved."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

import pytest
import yaml

from dashboards.alerts import alerts, groups
from dashboards.rules import PLURAL, Alert, dashboard_of, prometheus
from dashboards.settings import Settings
from tests.pages import alert_scenarios_pipeline, alert_scenarios_sidecar
from tests.pages.alert_scenarios import Quiet, Scenario
from tests.pages.alert_scenarios_pipeline import EXACTLY_ONCE, NEW_STATE_LIVES, NEW_STATE_QUIET
from tests.pages.alert_scenarios_sidecar import ALIVE, OTHER_ALIVE, TWO_LIVES, TWO_QUIET
from tests.pages.prometheus_tools import tool

LIVES = (*alert_scenarios_pipeline.LIVES, *alert_scenarios_sidecar.LIVES)
pytestmark = pytest.mark.timeout(330)  # promtool computes for a day of samples

QUIET = (*alert_scenarios_pipeline.QUIET, *alert_scenarios_sidecar.QUIET)
RULES = Path(__file__).parents[2] / "dashboards" / "generated" / "prometheus" / "rules.yaml"
OWN_LABELS = ("window", "speed", "scope", "cause", "effect")
"""Labels that a rule sets. The other labels come from the series."""
ALL_LIVES = (*LIVES, *NEW_STATE_LIVES, *TWO_LIVES)


READABLE: Mapping[str, Callable[[float], str]] = {
    "humanize": lambda value: f"{value:g}" if value < 1000 else f"{value / 1000:.4g}k",
    "humanizePercentage": lambda value: f"{100 * value:.4g}%",
    "humanizeDuration": lambda value: f"{value // 60:g}m {value % 60:g}s",
}
"""Prometheus's formatting of the scenarios' values."""


def alert_of(scenario: Scenario) -> Alert:
    own = {name: value for name, value in scenario.labels.items() if name in OWN_LABELS}
    [alert] = [a for a in alerts(Settings()) if a.name == scenario.alert and dict(a.labels) == own]
    return alert


def rendered(template: str, scenario: Scenario, value: str) -> str:
    text = re.sub(r"{{ \.Labels\.(\w+) }}", lambda found: scenario.labels[found[1]], template)
    text = PLURAL.sub(r"\1" if value == "1" else r"\2", text) if value else text
    text = re.sub(r"{{ \.Value \| (\w+) }}", lambda found: READABLE[found[1]](float(value)), text) if value else text
    assert "{{" not in text, f"not rendered: {text}"
    return text


def fired(scenario: Scenario, value: str) -> dict[str, dict[str, str]]:
    alert = alert_of(scenario)
    return {
        "exp_labels": {**scenario.labels, "severity": scenario.severity},
        "exp_annotations": {
            "summary": rendered(alert.summary, scenario, value),
            "description": rendered(alert.description, scenario, value),
            "runbook_url": f"docs/runbooks/{scenario.alert}.md",
            "dashboard": dashboard_of(alert),
            "status_page": "",
        },
    }


def promtool(
    folder: Path,
    series: dict[str, str],
    checks: list[dict[str, object]],
    rules: Path = RULES,
    interval: str = "1m",
) -> None:
    test = {
        "rule_files": [str(rules)],
        "evaluation_interval": "30s",
        # Otherwise promtool evaluates groups in any order, and an alert may see recordings of half a minute ago.
        "group_eval_order": [group.name for group in groups(Settings())],
        "tests": [
            {
                "interval": interval,
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "alert_rule_test": checks,
            }
        ],
    }
    file = folder / "test.yaml"
    file.write_text(yaml.safe_dump(test, sort_keys=False), encoding="utf-8")
    ran = subprocess.run(
        [tool("promtool"), "test", "rules", file], capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.full
@pytest.mark.parametrize("scenario", ALL_LIVES, ids=lambda s: "-".join([s.alert, *(s.labels[x] for x in s.labels)]))
def test_an_alert_is_silent_then_fires_then_resolves(scenario: Scenario, tmp_path: Path) -> None:
    firing = dict(zip_longest(scenario.fires, scenario.values, fillvalue=""))
    beside = []
    if scenario.beside:
        plain = {name: value for name, value in scenario.labels.items() if name not in OWN_LABELS}
        beside = [fired(replace(scenario, labels=plain, severity=scenario.beside), "")]
    expected = {
        scenario.silent: [],
        **{at: [fired(scenario, value), *beside] for at, value in firing.items()},
        scenario.resolved: beside,
    }
    checks: list[dict[str, object]] = [
        {"eval_time": at, "alertname": scenario.alert, "exp_alerts": found} for at, found in expected.items()
    ]
    promtool(tmp_path, scenario.series, checks, interval=scenario.interval)


@pytest.mark.full
@pytest.mark.parametrize("quiet", [*QUIET, *NEW_STATE_QUIET, *TWO_QUIET], ids=lambda quiet: quiet.why)
def test_an_alert_stays_silent(quiet: Quiet, tmp_path: Path) -> None:
    checks: list[dict[str, object]] = [{"eval_time": at, "alertname": quiet.alert, "exp_alerts": []} for at in quiet.at]
    promtool(tmp_path, quiet.series, checks, interval=quiet.interval)


WARNING = Scenario(
    "StreamproofOverdueGrowing", {}, {"pipeline": "clickstream"}, "warning", silent="", fires=(), resolved=""
)
LOSS = Scenario(
    "StreamproofGuaranteeViolated",
    {},
    {"pipeline": "clickstream", "class": "missing"},
    "critical",
    silent="",
    fires=(),
    resolved="",
)


@pytest.mark.full
@pytest.mark.parametrize(
    ("owed", "value"),
    [
        pytest.param("0x2 1500+1500x5 9000x20", "6000", id="short windows"),
        pytest.param("0x1 6000x3 12000x20", "12000", id="windows of a minute"),
    ],
)
def test_the_warning_comes_before_the_loss_is_proven(owed: str, value: str, tmp_path: Path) -> None:
    """With the default timing, an engine dies at 0; results are overdue after 30 s and missing after 120 s."""
    series = {
        'streamproof_outstanding_events{pipeline="clickstream",state="overdue"}': owed,
        'streamproof_violations_open{pipeline="clickstream",class="missing"}': "0x7 6000x20",
        EXACTLY_ONCE: "1x40",
    }
    checks: list[dict[str, object]] = [
        {"eval_time": "90s", "alertname": WARNING.alert, "exp_alerts": [fired(WARNING, value)]},
        {"eval_time": "90s", "alertname": LOSS.alert, "exp_alerts": []},
        {"eval_time": "3m", "alertname": LOSS.alert, "exp_alerts": [fired(LOSS, "6000")]},
    ]
    promtool(tmp_path, series, checks, interval="15s")


@pytest.mark.full
def test_an_expected_pipeline_pages_until_it_is_seen(tmp_path: Path) -> None:
    scenario = next(life for life in LIVES if life.labels.get("scope") == "pipeline")
    rules = tmp_path / "rules.yaml"
    settings = Settings(pipelines=("clickstream", "other"))
    rules.write_text(prometheus(groups(settings), settings), encoding="utf-8")
    expected: dict[str, list[object]] = {
        "2m": [],
        "8m": [fired(scenario, "")],
        "2000m": [fired(scenario, "")],
        "2020m": [],
    }
    checks: list[dict[str, object]] = [
        {"eval_time": at, "alertname": scenario.alert, "exp_alerts": found} for at, found in expected.items()
    ]
    promtool(tmp_path, {OTHER_ALIVE: "1x2030", ALIVE: "_x2009 1x20"}, checks, rules)


@pytest.mark.full
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_an_alert_names_the_pages_of_its_own_sidecar(tmp_path: Path, scheme: str) -> None:
    scenario = next(life for life in LIVES if life.labels.get("cause") == "no_batch")
    seen = {
        f'streamproof_build_info{{pipeline="{name}",instance="{name}.example:9464",scheme="{scheme}"}}': "1x200"
        for name in ("clickstream", "other")
    }
    annotated = fired(scenario, "")
    annotated["exp_annotations"]["status_page"] = f"{scheme}://clickstream.example:9464/ "
    annotated["exp_annotations"]["runbook_url"] = f"{scheme}://clickstream.example:9464/runbooks/{scenario.alert}"
    check: dict[str, object] = {"eval_time": scenario.fires[0], "alertname": scenario.alert, "exp_alerts": [annotated]}
    promtool(tmp_path, {**scenario.series, **seen}, [check], interval=scenario.interval)


@pytest.mark.full
def test_two_alerts_of_one_pipeline_differ_in_their_summary() -> None:
    """A pager shows only the summary."""
    for scenario in ALL_LIVES:
        named = set(re.findall(r"{{ \.Labels\.(\w+) }}", alert_of(scenario).summary))
        assert named == {name for name in scenario.labels if name not in OWN_LABELS}, scenario
    assert len({alert.summary for alert in alerts(Settings())}) == len(alerts(Settings()))


def test_every_alert_has_a_scenario() -> None:
    assert {alert_of(scenario).title for scenario in ALL_LIVES} == {alert.title for alert in alerts(Settings())}


def test_the_rule_file_passes_promtools_linter() -> None:
    ran = subprocess.run(
        [tool("promtool"), "check", "rules", "--lint=all", "--lint-fatal", RULES],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_pipeline_of_any_name_keeps_the_rules_valid(tmp_path: Path) -> None:
    settings = Settings(pipelines=('a "b" \\ {c}\n', "d'e"))
    rules = tmp_path / "rules.yaml"
    rules.write_text(prometheus(groups(settings), settings), encoding="utf-8")
    ran = subprocess.run([tool("promtool"), "check", "rules", rules], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
