"""Every expression of rules and dashboards, in a real Prometheus that scrapes the real collector during a broken
run."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest
import requests
import yaml
from prometheus_client import start_http_server

from dashboards.faults import in_phases
from dashboards.live import QueryResult, check, not_loaded
from dashboards.queries import substituted
from dashboards.settings import Settings
from dashboards.site import GENERATED, ROOT, RULES_FILE
from tests.pages.prometheus_tools import series, start_prometheus, tool, until
from tests.unit.publish_snapshots import BOUNDS, broken, clean
from validator.cli.main import main
from validator.model.classes import PLANTED
from validator.model.snapshot import CanaryMeasures, FaultWindow, Histogram, Snapshot
from validator.publish.metrics import SnapshotCollector, registry

SETTINGS = Settings()
LAST_TO_COME = (
    # Two scrapes of the broken run, and one evaluation of the rules.
    'increase(streamproof_violations_confirmed_total{class="missing"}[5m]) > 0',
    "rate(streamproof_reclassified_total[5m]) > 0",
    'ALERTS{alertname="StreamproofGuaranteeViolated",alertstate="firing"}',
)


def lively(snapshot: Snapshot) -> Snapshot:
    """Return ``snapshot`` with the current time, and with every measure that only some runs have."""
    measures = {
        "failure_cost_seconds": 29.1,
        "downtime_seconds": 12.0,
        "recovery_seconds": 70.0,
        "recovered": 1.0,
        "throughput_penalty_ratio": 0.4,
        "latency_penalty_ratio": 6.2,
        "resolution_seconds": 1.5,
    }
    return replace(
        snapshot,
        taken_us=time.time_ns() // 1000,
        batches=snapshot.batches + 1,
        reclassified_total={("pending", "missing"): 3},
        detection_delay=Histogram(BOUNDS, (0, 2, 0, 0), 1.0, 0.6),
        classified_total={**snapshot.contributions, "expected": 9000},
        fault_measures={"f-1": measures},
        canary=CanaryMeasures(time.time_ns() // 1000, 360_000_000, 0.75, dict.fromkeys(PLANTED, 0.75), 900_000, 1),
    )


def recovering() -> Snapshot:
    """Return a run whose fault is healed, and whose recovery is not decided yet."""
    now = time.time_ns() // 1000
    over = FaultWindow("f-0", "slow-broker", "network_delay", "broker-1", now - 9_000_000, None, None, now - 1_000_000)
    return replace(clean(), taken_us=now, faults=(over,))


def has_been_in(url: str, phase: str) -> bool:
    return has_series(url, f"last_over_time(({substituted(in_phases()[phase])})[1h:1s])")


def has_series(url: str, expression: str) -> bool:
    return bool(series(url, expression))


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prometheus that scraped a run with a break, and evaluates the committed rules every second."""
    tool("prometheus")  # skips before anything is started
    folder = tmp_path_factory.mktemp("prometheus")
    collector = SnapshotCollector("clickstream")
    collector.update(replace(clean(), taken_us=time.time_ns() // 1000))
    server, thread = start_http_server(0, "127.0.0.1", registry(collector))
    rules = yaml.safe_load((GENERATED / RULES_FILE).read_text(encoding="utf-8"))
    for group in rules["groups"]:
        group["interval"] = "1s"
    (folder / "rules.yaml").write_text(yaml.safe_dump(rules), encoding="utf-8")
    target = {"job_name": "streamproof", "static_configs": [{"targets": [f"127.0.0.1:{server.server_port}"]}]}
    content = {"global": {"scrape_interval": "1s"}, "rule_files": ["rules.yaml"], "scrape_configs": [target]}
    try:
        process, at = start_prometheus(folder, content)
        with process:
            until(lambda: has_series(at, 'streamproof_violations_open{class="missing"} == 0'), process)
            # A dashboard compares a fault's phases. This run has them one after the other.
            for snapshot, phase in ((None, "control"), (recovering(), "recovery"), (lively(broken()), "failure")):
                if snapshot is not None:
                    collector.update(snapshot)
                until(partial(has_been_in, at, phase), process)
            for last in LAST_TO_COME:
                until(partial(has_series, at, last), process)
            yield at
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def answers(url: str) -> list[QueryResult]:
    return list(check(url, SETTINGS))


@pytest.mark.full
def test_prometheus_accepts_every_expression(answers: list[QueryResult]) -> None:
    assert [answer for answer in answers if answer.problem] == []
    assert len(answers) > 60


@pytest.mark.full
def test_every_panel_annotation_and_recording_rule_has_series(answers: list[QueryResult]) -> None:
    assert [a.where for a in answers if not a.series and not a.where.startswith("alert ")] == []


@pytest.mark.full
def test_exactly_the_alerts_of_this_run_have_series(answers: list[QueryResult]) -> None:
    # The output topic is not read through, the input was last read in January, a fault is active, and the canary is
    # missed.
    fitting = {
        "StreamproofGuaranteeViolated", "StreamproofFaultNotHealed", "StreamproofSidecarBlind (unread_topic)",
        "StreamproofSidecarBehind", "StreamproofCanaryMissed (missed)", "StreamproofCanaryMissed (false_alarm)",
    }  # fmt: skip
    firing = {answer.where.removeprefix("alert ") for answer in answers if answer.series} & {
        answer.where.removeprefix("alert ") for answer in answers if answer.where.startswith("alert ")
    }
    assert firing == fitting


@pytest.mark.full
def test_the_queries_of_the_runbooks_are_accepted_and_give_the_start(url: str) -> None:
    pages = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "runbooks").glob("*.md")}
    asked = [(name, query) for name, text in pages.items() for query in re.findall("promtool query .* '(.+)'", text)]
    assert len(asked) > 10
    for name, query in asked:
        params = {"query": query.replace("PIPELINE", "clickstream")}
        answered = requests.get(f"{url}/api/v1/query", params=params, timeout=10).json()
        assert answered["status"] == "success", (name, answered)
        instants = [float(found["value"][1]) for found in answered["data"]["result"]]
        assert all(0 <= at <= time.time() + 1 for at in instants), (name, instants)


@pytest.mark.full
def test_the_queries_of_the_pages_for_operators_have_series(url: str) -> None:
    """With a shorter range: this Prometheus has scraped for seconds."""
    text = "".join((ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in ("operations", "sizing"))
    asked = set(re.findall(r"^ {4}((?:sum|predict_linear)\b.*)$|`(predict_linear\(.+?\))`", text, re.MULTILINE))
    assert len(asked) >= 3
    for query in ("".join(found) for found in asked):
        params = {"query": query.replace("[6h:5m]", "[1m:1s]")}
        found = requests.get(f"{url}/api/v1/query", params=params, timeout=10).json()
        assert found["status"] == "success", (query, found)
        assert [one["metric"] for one in found["data"]["result"]] == [{"pipeline": "clickstream"}], query


@pytest.mark.full
def test_the_rules_run_and_the_violation_fires(url: str) -> None:
    assert not_loaded(url, SETTINGS) == []
    answered = requests.get(f"{url}/api/v1/alerts", timeout=10).json()["data"]["alerts"]
    fired = {
        (alert["labels"]["alertname"], alert["labels"].get("class")) for alert in answered if alert["state"] == "firing"
    }
    assert ("StreamproofGuaranteeViolated", "missing") in fired


@pytest.mark.full
def test_the_check_command_finds_no_empty_expression(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dashboards", "check", "--prometheus", url]) == 0
    said = capsys.readouterr().out
    assert "empty" not in said
    assert "note" not in said
    assert " valid, " in said
