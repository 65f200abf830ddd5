"""The compose file of the guide names what Kafka, streamproof and the rendered files have. Docker does not run here."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.broker_storage import JARS_LOCK
from validator.config.examples import EXAMPLES
from validator.config.load import loads
from validator.stream.jars import find_java, resolve

pytestmark = pytest.mark.contract
ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "docs" / "guide" / "compose.yaml"
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(FILE.read_text(encoding="utf-8"))["services"]


def test_the_image_of_kafka_gets_options_that_kafka_has() -> None:
    # The image makes `node.id` of KAFKA_NODE_ID. The class prints the table of Kafka's documentation.
    jars = os.pathsep.join(map(str, resolve(JARS_LOCK)))
    command = [find_java().executable, "-cp", jars, "kafka.server.KafkaConfig"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    options = set(re.findall(r'id="brokerconfigs_([a-z0-9._]+)"', printed))
    given = {name.removeprefix("KAFKA_").lower().replace("_", ".") for name in SERVICES["kafka"]["environment"]}
    assert len(options) > 100
    assert given <= options


def test_the_sidecar_gets_settings_of_a_configuration_that_fit_the_services() -> None:
    service = SERVICES["streamproof"]
    loaded = loads(EXAMPLES["clickstream"], "/etc/streamproof", environment=service["environment"])
    host = loaded.kafka.bootstrap_servers.partition(":")[0]
    assert f"//{loaded.kafka.bootstrap_servers}" in SERVICES[host]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    [volume] = [one for one in service["volumes"] if one.startswith("proof:")]
    assert loaded.state.path.is_relative_to(volume.split(":")[1])
    scraped = yaml.safe_load((FILE.parent / "prometheus.yaml").read_text(encoding="utf-8"))["scrape_configs"][0]
    assert scraped["static_configs"][0]["targets"] == [f"127.0.0.1:{loaded.metrics.port}"]
    assert service["network_mode"] == "service:prometheus"


def test_every_mounted_file_of_the_monitoring_is_rendered() -> None:
    mounted = [volume.split(":")[0] for service in SERVICES.values() for volume in service.get("volumes", ())]
    monitoring = [Path(source).relative_to("monitoring") for source in mounted if source.startswith("./monitoring")]
    assert len(monitoring) == 3
    assert [place for place in monitoring if not (ROOT / "dashboards" / "generated" / place).exists()] == []
    assert {source for source in mounted if "/" in source and "monitoring" not in source} == {
        "./prometheus.yaml", "./pipeline.yaml"
    }  # fmt: skip


def test_docker_accepts_the_file() -> None:
    clients = (["docker", "compose"], ["docker-compose"])
    run = partial(subprocess.run, check=False, capture_output=True, text=True)
    client = next((it for it in clients if shutil.which(it[0]) and not run([*it, "version"]).returncode), None)
    if client is None:
        pytest.skip("there is no `docker compose` here")
    done = run([*client, "-f", str(FILE), "config", "--quiet"])
    assert done.returncode == 0, done.stderr
