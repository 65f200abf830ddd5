"""Rules, runbooks and their reference: only known metrics, every alert explained, generated files current."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from dashboards import reference, site
from dashboards.alerts import alerts, groups, recordings
from dashboards.grafana_rules import inline_recordings, uid_of
from dashboards.live import all_expressions
from dashboards.promql import UnknownSeriesError, breaking, select, unknown_series
from dashboards.rules import PLURAL, Alert
from dashboards.settings import Settings, SettingsError
from tests.unit.publish_snapshots import clean
from validator.model.classes import PLANTED, VIOLATES, Guarantee
from validator.publish.catalogue import PREFIX
from validator.publish.samples import at_start, of

ROOT = Path(__file__).parents[2]
RUNBOOKS = ROOT / "docs" / "runbooks"
SETTINGS = Settings()
ALERTS = alerts(SETTINGS)
RECORDED = frozenset(rule.name for rule in recordings())


@pytest.mark.parametrize(("where", "expression"), all_expressions(SETTINGS))
def test_an_expression_uses_only_series_of_the_catalogue(where: str, expression: str) -> None:
    assert PREFIX in expression, f"{where} asks nothing of ours"
    assert unknown_series(expression) == []


def test_an_alert_uses_only_recorded_series() -> None:
    assert {name: unknown_series(alert.expression, RECORDED) for alert in ALERTS for name in [alert.title]} == {
        alert.title: [] for alert in ALERTS
    }


@pytest.mark.parametrize(
    ("expression", "unknown"),
    [
        (f"{PREFIX}no_such_metric", [f"{PREFIX}no_such_metric"]),
        (f"rate({PREFIX}latency_seconds[5m])", [f"{PREFIX}latency_seconds"]),  # a histogram has no series of that name
        (f"{PREFIX}events_total_bucket", [f"{PREFIX}events_total_bucket"]),
        ("pipeline:streamproof_no:rule", ["pipeline:streamproof_no:rule"]),
        (f'{PREFIX}latency_seconds_bucket{{le="{PREFIX}x"}} > time()', []),
    ],
)
def test_a_series_outside_the_catalogue_is_found(expression: str, unknown: list[str]) -> None:
    assert unknown_series(expression, RECORDED) == unknown


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("no_such", {}),
        ("latency_seconds", {}),
        ("events_total", {"klass": "missing"}),
        ("events_total", {"class": "lost"}),
        ("events_total", {"class": ("missing", "lost")}),
    ],
)
def test_a_selector_outside_the_catalogue_cannot_be_built(name: str, match: dict[str, str]) -> None:
    with pytest.raises(UnknownSeriesError):
        select(name, match)


def test_a_selector_renders_as_promql() -> None:
    assert select("events_total", {"class": ("late", "missing")}, "5m") == (
        'streamproof_events_total{class=~"late|missing"}[5m]'
    )
    assert select("build_info", {"pipeline": "$pipeline"}) == "streamproof_build_info{pipeline=`${pipeline:raw}`}"
    assert select("build_info", {"pipeline": ("$pipeline",)}) == "streamproof_build_info{pipeline=~`${pipeline:regex}`}"


def test_a_name_of_any_text_is_quoted() -> None:
    assert select("build_info", {"pipeline": 'a "b" \\ c\n'}) == r'streamproof_build_info{pipeline="a \"b\" \\ c\n"}'


def test_each_guarantee_alerts_on_the_classes_of_the_tolerance_table() -> None:
    parts = dict(zip(VIOLATES, breaking().split("\nor\n"), strict=True))
    for guarantee, part in parts.items():
        assert f'guarantee_declared{{guarantee="{guarantee.value}"}} == 1' in part
        found = re.search(r'class=~"([^"]+)"', part)
        assert found is not None
        assert set(found[1].split("|")) == VIOLATES[guarantee]


def test_the_declared_guarantee_is_a_series() -> None:
    shown = of(clean()).plain["guarantee_declared"]
    assert shown == {(name,): float(name is Guarantee.EXACTLY_ONCE) for name in Guarantee}
    assert "guarantee_declared" not in at_start().plain, "before the first batch nobody knows it"


def test_names_titles_and_uids_are_fit_for_use() -> None:
    assert all(re.fullmatch("Streamproof[A-Z][A-Za-z]+", alert.name) for alert in ALERTS)
    assert len({alert.title for alert in ALERTS}) == len(ALERTS)
    assert len({uid_of(alert) for alert in ALERTS}) == len(ALERTS)
    assert all(re.fullmatch("[a-z0-9_-]{1,40}", uid_of(alert)) for alert in ALERTS), [uid_of(a) for a in ALERTS]


WITHOUT_NUMBER = {
    "StreamproofVerdictUnknown", "StreamproofFaultNotHealed", "StreamproofSidecarSilent", "StreamproofSidecarBlind",
    "StreamproofCoverageIncomplete",
}  # fmt: skip
"""These alerts watch a condition: their value has no meaning."""


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.title)
def test_an_alert_names_pipeline_and_class_in_plain_templates(alert: Alert) -> None:
    text = f"{alert.summary}|{alert.description}"
    left = re.sub(r"{{ \.(Labels\.[a-z]+|Value \| humanize(Percentage|Duration)?) }}", "", PLURAL.sub(r"\1|\2", text))
    assert not set("{}$") & set(left), "only .Labels and .Value work in Prometheus and in Grafana"
    if alert.labels.get("scope") != "fleet":
        assert "{{ .Labels.pipeline }}" in alert.description
    assert "class" in alert.description, "of which class, or where the classes are to be seen"
    if alert.name == "StreamproofGuaranteeViolated":
        assert "{{ .Labels.class }}" in alert.description
    assert ("{{ .Value | " in alert.description) == (alert.name not in WITHOUT_NUMBER)


def test_templates_of_grafana_use_the_number_of_the_query() -> None:
    content = yaml.safe_load(site.files(SETTINGS)["grafana/provisioning/alerting/streamproof.yaml"])
    texts = {rule["title"]: rule["annotations"]["description"] for g in content["groups"] for rule in g["rules"]}
    assert "batch for {{ .Values.query.Value | humanizeDuration }}:" in texts["StreamproofSidecarStalled"]
    # In Grafana `.Value` is a text of all values, and `.Values.query` is a value with labels, not a number.
    assert not [text for text in texts.values() if " .Value " in text or "{{ .Values.query |" in text]
    assert "{{ if eq .Values.query.Value 1.0 }}violation{{" in texts["StreamproofGuaranteeViolated"]


def test_a_silent_sidecar_pages() -> None:
    assert {a.severity for a in ALERTS if a.name == "StreamproofSidecarSilent"} == {"critical"}


def test_grafana_needs_no_recorded_series() -> None:
    text = site.files(SETTINGS)["grafana/provisioning/alerting/streamproof.yaml"]
    assert not [name for name in RECORDED if name in text]
    assert all(not unknown_series(inline_recordings(alert.expression)) for alert in ALERTS)


def test_grafanas_file_has_every_alert_once() -> None:
    content = yaml.safe_load(site.files(SETTINGS)["grafana/provisioning/alerting/streamproof.yaml"])
    rules = [rule for group in content["groups"] for rule in group["rules"]]
    assert {rule["uid"] for rule in rules} == {uid_of(alert) for alert in ALERTS}
    assert len(rules) == len(ALERTS)
    for rule in rules:
        assert rule["condition"] in {step["refId"] for step in rule["data"]}
        # Grafana would expand `$name` as an environment variable.
        assert not any("$" in text for text in rule["annotations"].values())


def test_objective_and_runbooks_reach_the_rules() -> None:
    settings = Settings(0.9999, "https://example.org/books/")
    burn = [a for a in alerts(settings) if a.name == "StreamproofErrorBudgetBurn"]
    assert all("0.0001" in a.expression and "objective of 0.9999" in a.description for a in burn)
    rules = yaml.safe_load(site.files(settings)[site.RULES_FILE])["groups"][1]["rules"]
    assert rules[0]["annotations"]["runbook_url"] == ("https://example.org/books/StreamproofGuaranteeViolated.md")


def test_an_unpublished_runbook_links_to_the_page_of_the_sidecar() -> None:
    rules = yaml.safe_load(site.files(SETTINGS)[site.RULES_FILE])["groups"][1]["rules"]
    assert rules[0]["annotations"]["runbook_url"] == (
        '{{ with query (printf `streamproof_build_info{pipeline=%q,instance!=""}` .Labels.pipeline) }}'
        "{{ with . | first }}{{ .Labels.scheme }}://{{ .Labels.instance }}"
        "/runbooks/StreamproofGuaranteeViolated{{ end }}"
        "{{ else }}docs/runbooks/StreamproofGuaranteeViolated.md{{ end }}"
    )


@pytest.mark.parametrize("ratio", [0, 1, 1.5, -1, float("nan")])
def test_an_objective_without_a_budget_is_refused(ratio: float) -> None:
    with pytest.raises(SettingsError, match="--objective"):
        Settings(ratio)


@pytest.mark.parametrize("name", ["", "$pipeline"])
def test_a_name_that_cannot_be_queried_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match="--pipeline"):
        Settings(pipelines=(name,))


def test_every_alert_has_its_runbook_and_every_runbook_its_alert() -> None:
    assert {path.stem for path in RUNBOOKS.glob("*.md")} == {alert.name for alert in ALERTS}


@pytest.mark.parametrize("name", sorted({alert.name for alert in ALERTS}))
def test_a_runbook_says_what_to_look_at_and_what_to_do_with_commands(name: str) -> None:
    # tests/contract/test_documented_commands.py checks that `streamproof` accepts them, for all pages.
    text = (RUNBOOKS / f"{name}.md").read_text(encoding="utf-8")
    headings = re.findall("^## (.*)$", text, re.MULTILINE)
    assert headings == ["What it means", "What to look at", "What to do", "When it ends"]
    assert re.findall(r"^\s*\$ (.*)$", text, re.MULTILINE)
    known = re.findall(rf"{PREFIX}\w+", text)
    assert unknown_series(" + ".join(known)) == []
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert (RUNBOOKS / link).exists(), link


def test_every_runbook_says_in_the_same_words_where_its_commands_run() -> None:
    said = {path.read_text(encoding="utf-8").split("\n\n")[2] for path in RUNBOOKS.glob("*.md")}
    [where] = said
    for name in ("status_page", "SIDECAR:9464", "CONFIG", "STATE", "PIPELINE"):
        assert name in where


@pytest.mark.parametrize("name", sorted({alert.name for alert in ALERTS}))
def test_a_runbook_first_says_since_when_by_a_command(name: str) -> None:
    text = (RUNBOOKS / f"{name}.md").read_text(encoding="utf-8")
    first = re.search(r"## What to look at\n1\. Since when\? .*?```console\n(.*?)```", text, re.DOTALL)
    assert first is not None
    for command in first[1].strip().splitlines():
        assert re.match(r" *\$ (promtool query instant http://PROMETHEUS:9090 '|curl -s http://SIDECAR:9464/)", command)
        assert "PIPELINE" in command or "curl" in command or name == "StreamproofSidecarSilent"


def test_a_runbook_that_asks_for_the_log_says_how_to_read_it() -> None:
    texts = {path.stem: path.read_text(encoding="utf-8") for path in RUNBOOKS.glob("*.md")}
    asking = {name for name, text in texts.items() if re.search("last words|its log say|kubectl", text)}
    assert len(asking) >= 4
    for name in asking:
        # SIDECAR stands for an address.
        assert set(re.findall(r"kubectl logs (\w+)", texts[name])) == {"POD"}, name
        assert "$ journalctl -u 'streamproof@*' | " in texts[name], name


def test_the_runbook_of_an_unknown_verdict_says_when_nothing_is_wrong() -> None:
    [alert] = [alert for alert in ALERTS if alert.name == "StreamproofVerdictUnknown"]
    text = (RUNBOOKS / f"{alert.name}.md").read_text(encoding="utf-8")
    [said] = re.findall(r"state is new and the windows.*?(?=\n- |\n## )", text, re.DOTALL)
    assert f"waits {alert.pending_for.removesuffix('m')} minutes" in said
    assert "`timing.missing_after`" in said
    assert "for:" in said


@pytest.mark.parametrize("violation", sorted({*PLANTED, "undecodable"}))
def test_the_runbook_of_a_violation_says_what_to_do_for_its_class(violation: str) -> None:
    text = (RUNBOOKS / "StreamproofGuaranteeViolated.md").read_text(encoding="utf-8")
    assert f"\n- `{violation}`: " in text.split("## What to do", 1)[1]


def test_the_committed_files_are_current() -> None:
    assert site.differences(site.GENERATED, SETTINGS) == [], "run `python -m dashboards.site`"
    assert site.REFERENCE.read_text(encoding="utf-8") == reference.render(SETTINGS)


def test_an_outdated_missing_or_extra_file_is_found(tmp_path: Path) -> None:
    site.write(tmp_path, SETTINGS)
    assert site.differences(tmp_path, SETTINGS) == []
    (tmp_path / site.RULES_FILE).write_text("groups: []\n")
    (tmp_path / "grafana" / "dashboards" / "streamproof-faults.json").unlink()
    (tmp_path / "stray.json").write_text("{}")
    absent, outdated, extra = (s.removeprefix(f"{tmp_path}/") for s in site.differences(tmp_path, SETTINGS))
    assert absent.startswith("grafana/dashboards/streamproof-faults.json does not exist")
    assert outdated.startswith("prometheus/rules.yaml is not current")
    assert extra.startswith("stray.json is not a generated")


def test_the_reference_lists_every_alert() -> None:
    text = reference.render(SETTINGS)
    assert all(f"runbooks/{alert.name}.md" in text for alert in ALERTS)


def test_rules_are_in_groups_of_one_interval_with_recordings_first() -> None:
    names = [group.name for group in groups(SETTINGS)]
    assert names == ["streamproof-recording", "streamproof-pipeline", "streamproof-sidecar"]
