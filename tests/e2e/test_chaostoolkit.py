"""The committed experiment, run by the real Chaos Toolkit with a real sidecar; then a foreign experiment that
corrupts the data, to which only the project's control is added."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.faults.stage import ROOT, Stage, state_of
from tests.integration.sidecar_fixtures import Live, Pipeline
from tests.integration.steady_load import SteadyLoad

DOCS = ROOT / "docs" / "chaos-toolkit"
TOOLKIT = ("chaostoolkit==1.19.0", "chaostoolkit-lib==1.44.0")
INSTALL_SECONDS = 120
RUN_SECONDS = 150
FOREIGN = """\
from confluent_kafka import Producer

def answer_twice(servers, topic, value):
    producer = Producer({"bootstrap.servers": servers})
    producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0
"""

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def toolkit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the Chaos Toolkit, which no lock file of the project includes. Skips if it cannot be installed."""
    folder = tmp_path_factory.mktemp("toolkit")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    installed = subprocess.run(
        [*command, "--target", folder, *TOOLKIT],
        check=False, capture_output=True, text=True, timeout=INSTALL_SECONDS, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if installed.returncode:
        pytest.skip(f"the Chaos Toolkit cannot be installed here: {installed.stderr[-300:]}")
    return folder


def test_the_toolkit_discovers_what_experiments_can_use(toolkit: Path, tmp_path: Path) -> None:
    found = tmp_path / "discovery.json"
    command = [sys.executable, "-m", "chaostoolkit", "--no-version-check", "--settings", tmp_path / "none.yaml"]
    ran = subprocess.run(
        [*command, "discover", "--no-install", f"--discovery-path={found}", "streamproof"],
        cwd=tmp_path, check=False, capture_output=True, text=True, timeout=RUN_SECONDS, stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(toolkit)},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    activities = {(entry["type"], entry["mod"], entry["name"]) for entry in json.loads(found.read_text())["activities"]}
    assert activities >= {
        ("probe", "chaosstreamproof.probes", "verdict"),
        ("probe", "chaosstreamproof.probes", "reliability"),
        ("probe", "chaosstreamproof.probes", "violations_since"),
        ("action", "chaosstreamproof.actions", "run_fault"),
        ("action", "chaosstreamproof.actions", "heal"),
        ("action", "chaosstreamproof.actions", "wait_until_judged"),
    }


def chaos(toolkit: Path, folder: Path, experiment: dict[str, Any], **environment: str) -> tuple[int, dict[str, Any]]:
    """Return exit status and journal of `chaos run`. The extension is found through the installed streamproof."""
    (folder / "experiment.json").write_text(json.dumps(experiment))
    command = [sys.executable, "-m", "chaostoolkit", "--no-version-check", "--settings", folder / "none.yaml", "run"]
    ran = subprocess.run(
        [*command, "--rollback-strategy=always", f"--journal-path={folder / 'journal.json'}", "experiment.json"],
        cwd=folder, check=False, capture_output=True, text=True, timeout=RUN_SECONDS, stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (toolkit, folder))), **environment},
    )  # fmt: skip
    journal = json.loads((folder / "journal.json").read_text())
    print(ran.stdout, ran.stderr)
    return ran.returncode, journal


def url_of(live: Live) -> str:
    return str(json.loads((live.state / "endpoint.json").read_text(encoding="utf-8"))["url"])


def test_experiments_gain_data_verdicts(pipeline: Pipeline, toolkit: Path, tmp_path: Path) -> None:
    topic = f"{pipeline.name}-faults"
    pipeline.create()
    pipeline.broker.create_topics({topic: 1})
    stage = Stage(tmp_path)
    stage.add_worker("worker")
    faults = yaml.safe_load((DOCS / "faults.yaml").read_text())
    faults["targets"]["worker"]["pid_file"] = "worker.pid"
    faults["kafka"] = {"bootstrap_servers": pipeline.servers, "topic": topic}
    (tmp_path / "faults.yaml").write_text(yaml.safe_dump(faults))
    example = json.loads((DOCS / "experiment.json").read_text())
    try:
        with pipeline.live(f"faults.topic={topic}") as live, SteadyLoad(pipeline):
            live.until(lambda report: report["verdicts"]["exactly_once"] == "pass")
            environment = {"STREAMPROOF_URL": url_of(live), "STREAMPROOF_JUDGED_AFTER": "6"}

            status, journal = chaos(toolkit, tmp_path, example, **environment)
            assert (status, journal["status"], journal["deviated"]) == (0, "completed", False)
            outputs = {run["activity"]["name"]: run["output"] for run in (*journal["run"], *journal["rollbacks"])}
            assert outputs["stop a worker"][0]["kind"] == "process_pause"
            assert outputs["violations of the last quarter of an hour"] == 0
            assert outputs["heal what is left"] == 0
            assert state_of(stage.pid("worker")) == "S"
            reported = live.until(lambda report: any(fault["healed"] for fault in report["faults"]))["faults"][0]
            assert (reported["kind"], reported["target"], reported["violations"]) == ("process_pause", "worker", {})

            (tmp_path / "somebody_elses.py").write_text(FOREIGN)
            status, journal = chaos(toolkit, tmp_path, with_a_foreign_action(example, pipeline, topic), **environment)
            assert (status, journal["deviated"]) == (1, True)
            last = journal["steady_states"]["after"]["probes"][0]
            assert (last["output"], last["tolerance_met"]) == ("fail", False)
            closed = live.until(
                lambda report: len(report["faults"]) == 2 and all(f["healed"] for f in report["faults"])
            )
            [foreign] = [fault for fault in closed["faults"] if fault["kind"] == "answer_twice"]
            assert (foreign["name"], foreign["target"]) == ("answer twice", "the sink")
            assert foreign["violations"] == {"duplicate": 1}
    finally:
        stage.clear()


def with_a_foreign_action(example: dict[str, Any], pipeline: Pipeline, topic: str) -> dict[str, Any]:
    """Return the example with another tool's action instead of the project's, and the control as documented."""
    value = json.dumps({"page": "a", "windowStart": "1970-01-01T00:00:00.000", "clickIds": ["0-a-0"]})
    action = {
        "type": "action",
        "name": "answer twice",
        "provider": {
            "type": "python",
            "module": "somebody_elses",
            "func": "answer_twice",
            "arguments": {"servers": pipeline.servers, "topic": pipeline.output, "value": value},
        },
    }
    controls = json.loads((DOCS / "control.json").read_text())["controls"]
    controls[0]["provider"]["arguments"] |= {
        "bootstrap_servers": pipeline.servers, "topic": topic, "targets": {"answer twice": "the sink"}, "momentary": [],
    }  # fmt: skip
    return {**example, "title": "Somebody else's", "controls": controls, "method": [action, *example["method"][1:]]}


def test_the_toolkit_describes_what_the_extension_offers(toolkit: Path, tmp_path: Path) -> None:
    script = "import json; from chaosstreamproof import discover; print(json.dumps(discover()['activities']))"
    environment = {**os.environ, "PYTHONPATH": str(toolkit)}
    activities = json.loads(subprocess.check_output([sys.executable, "-c", script], cwd=tmp_path, env=environment))
    offered = [(activity["type"], activity["name"], activity["arguments"][0]) for activity in activities]
    config, source = {"name": "config", "type": "string"}, {"name": "source", "type": "string"}
    assert offered == [
        ("action", "heal", config), ("action", "run_fault", config), ("action", "wait_until_judged", source),
        ("probe", "reliability", source), ("probe", "verdict", source), ("probe", "violations_since", source),
    ]  # fmt: skip


def test_without_the_faults_topic_an_experiment_ends_before_its_method(
    pipeline: Pipeline, toolkit: Path, tmp_path: Path
) -> None:
    (tmp_path / "somebody_elses.py").write_text(FOREIGN)
    example = json.loads((DOCS / "experiment.json").read_text())
    experiment = with_a_foreign_action(example, pipeline, "no-such-topic")
    status, journal = chaos(toolkit, tmp_path, experiment)
    assert status != 0
    assert journal["status"] == "interrupted"
    assert journal["run"] == []
