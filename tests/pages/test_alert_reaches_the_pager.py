"""From a repeated result on a Kafka topic to a message on the pager, with real components: broker, sidecar,
Prometheus with the generated rules, Alertmanager with the guide's configuration. Before that, a healthy run under
load sends no message."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from dashboards.alerts import alerts, groups
from dashboards.rules import prometheus, seconds_of
from dashboards.settings import Settings
from dashboards.site import ROOT
from faults.fault import State, record
from testbed.ports import free_port
from testbed.processes import OwnedProcess
from tests.integration.sidecar_fixtures import Live, Pipeline, answer
from tests.integration.steady_load import SteadyLoad
from tests.pages.alert_receiver import Received, Receiver
from tests.pages.prometheus_tools import alertmanager, series, start_prometheus, tool, until
from validator.cli.main import main
from validator.publish.next_steps import RUNBOOK

GUIDE = ROOT / "docs" / "guide"
SETTINGS = Settings(runbooks="https://runbooks.example.org")
FASTER = 60  # every `for` and the interval of rule evaluations are divided by this
LONGEST_WAIT_SECONDS = max(seconds_of(alert.pending_for) for alert in alerts(SETTINGS)) / FASTER
WAIT_SECONDS = 150.0


@contextmanager
def monitoring(folder: Path, target: str, pager: Receiver) -> Iterator[tuple[str, str]]:
    """Run the guide's Prometheus and Alertmanager on free ports with short intervals; yield the URLs of both."""
    manager_at = f"127.0.0.1:{free_port()}"
    config = yaml.safe_load((GUIDE / "alertmanager.yaml").read_text(encoding="utf-8"))
    config["route"] |= {"group_wait": "0s", "group_interval": "1s"}
    for receiver in config["receivers"]:
        for webhook in receiver["webhook_configs"]:
            webhook["url"] = webhook["url"].replace("http://127.0.0.1:8080", pager.url)
    (folder / "alertmanager.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    scrape = yaml.safe_load((GUIDE / "prometheus.yaml").read_text(encoding="utf-8"))
    rules = folder / scrape["rule_files"][0]
    rules.parent.mkdir(parents=True)
    rules.write_text(prometheus(groups(SETTINGS), SETTINGS, FASTER), encoding="utf-8")
    scrape["global"]["scrape_interval"] = "2s"
    scrape["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"] = [manager_at]
    scrape["scrape_configs"][0]["static_configs"][0]["targets"] = [target]
    command = [*alertmanager(), f"--config.file={folder / 'alertmanager.yaml'}",
               f"--storage.path={folder / 'silences'}", f"--web.listen-address={manager_at}",
               "--cluster.listen-address="]  # fmt: skip
    with ExitStack() as stack:
        manager = stack.enter_context(OwnedProcess(command, log=folder / "alertmanager.log"))
        until(lambda: is_ready(f"http://{manager_at}"), manager)
        process, url = start_prometheus(folder, scrape)
        stack.enter_context(process)
        until(lambda: is_ready(url), process)
        yield url, f"http://{manager_at}"


def is_ready(url: str) -> bool:
    try:
        return requests.get(f"{url}/-/ready", timeout=5).ok
    except requests.RequestException:
        return False


def number(url: str, expression: str) -> float:
    return sum(float(found["value"][1]) for found in series(url, expression))


def target_of(live: Live) -> str:
    served = json.loads((live.state / "endpoint.json").read_text(encoding="utf-8"))["url"]
    return str(served).removeprefix("http://").rstrip("/")


def violated(pager: Receiver, status: str) -> list[Received]:
    return [one for one in pager.heard if one.name == "StreamproofGuaranteeViolated" and one.status == status]


@pytest.mark.full
@pytest.mark.timeout(420)
def test_a_violation_reaches_the_pager_and_a_healthy_run_under_load_does_not(pipeline: Pipeline) -> None:
    tool("prometheus"), alertmanager()  # skips before anything is started
    pipeline.create()
    faults = f"{pipeline.name}-faults"
    pipeline.broker.create_topics({faults: 1})
    # A result that is two seconds late must not alert. On a busy machine, some results are that late.
    settings = (f"faults.topic={faults}", "timing.overdue_after=20s", "timing.missing_after=40s")
    with Receiver() as pager, pipeline.live(*settings) as live, SteadyLoad(pipeline):
        live.until(lambda report: report["verdicts"]["exactly_once"] == "pass")
        with monitoring(pipeline.folder, target_of(live), pager) as (url, manager_url):
            until(lambda: number(url, "streamproof_build_info") == 1, seconds=WAIT_SECONDS)
            handled_before = number(url, 'streamproof_contributions{class="processed"}')
            # Wait longer than the longest `for` of all rules. The rules are evaluated, and results arrive, during the
            # whole wait.
            looks = f"count_over_time(streamproof_guarantee_declared[{2 * LONGEST_WAIT_SECONDS:.0f}s])"
            enough = 1.2 * LONGEST_WAIT_SECONDS / 2
            until(lambda: bool(number(url, f"max({looks})") > enough), seconds=WAIT_SECONDS, what="a healthy spell")
            assert number(url, 'streamproof_contributions{class="processed"}') > handled_before + 1000
            assert number(url, 'sum(rate(streamproof_events_total{class="processed"}[30s]))') > 50
            assert number(url, "ALERTS") == 0
            assert requests.get(f"{manager_url}/api/v2/alerts", timeout=10).json() == []
            assert pager.heard == []

            put_fault(pipeline, faults, "1", "injected", ("duplicate",))
            pipeline.answers(answer(["0-b-0"], 0, "b"))  # as the fault's plan expects
            # Five scrapes, with twenty evaluations of the rules.
            expected = 'count_over_time((streamproof_violations_expected{class="duplicate"} == 1)[60s:2s])'
            until(lambda: number(url, expected) >= 5, seconds=WAIT_SECONDS, what="what the plan expects")
            assert number(url, 'streamproof_violations_open{class="duplicate"}') == 1
            assert not violated(pager, "firing"), "a plan that expects the class mutes it"
            put_fault(pipeline, faults, "1", "healed", ("duplicate",))

            put_fault(pipeline, faults, "2", "injected")
            pipeline.answers(answer(["0-a-0"], 0, "a"))  # a duplicate
            until(lambda: bool(violated(pager, "firing")), seconds=WAIT_SECONDS, what="the alert")
            received = violated(pager, "firing")[0]
            assert received.receiver == "on-call"
            assert received.labels["pipeline"] == pipeline.name
            assert received.labels["class"] == "duplicate"
            assert received.labels["severity"] == "critical"
            assert received.annotations["summary"] == f"{pipeline.name} breaks its guarantee: duplicate"
            assert "1 confirmed violation of class duplicate" in received.annotations["description"]
            assert received.annotations["runbook_url"] == f"{SETTINGS.runbooks}/StreamproofGuaranteeViolated.md"
            page = received.annotations["status_page"].strip()
            assert page == f"http://{target_of(live)}/"
            assert requests.get(page, timeout=10).ok
            assert "StreamproofGuaranteeViolated" in requests.get(f"{page}{RUNBOOK}", timeout=10).text

            put_fault(pipeline, faults, "2", "healed")
            acknowledge(live.state, "a")
            until(lambda: bool(violated(pager, "resolved")), seconds=WAIT_SECONDS, what="the end of the alert")
    # One duplicate is within the error budget. On a slow machine, the fault may last longer than its alert's `for`.
    others = {one.name for one in pager.heard} - {"StreamproofFaultNotHealed"}
    assert others == {"StreamproofGuaranteeViolated"}


def put_fault(pipeline: Pipeline, topic: str, fault: str, state: State, expects: tuple[str, ...] = ()) -> None:
    name, now = f"kill-worker-{fault}", datetime.now(UTC)
    pipeline.put(topic, record(fault, name, "process_kill", "worker-0", state, now, expects=expects), key=fault)


def acknowledge(state: Path, key: str) -> None:
    listed: dict[str, Any] = json.loads((state / "violations.json").read_text(encoding="utf-8"))
    confirmed = [entry for entry in listed["violations"] if entry["state"] == "confirmed"]
    [violation] = [entry for entry in confirmed if entry["key"] == key]
    assert main(["ack", str(state), violation["id"], "--reason", "ticket 7"]) == 0
