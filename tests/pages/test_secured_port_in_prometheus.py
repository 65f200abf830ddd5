"""A Prometheus scrapes a port with certificate and token, using the guide's job. The links then begin with https."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dashboards.live import check
from dashboards.settings import Settings
from testbed.certificates import Authority
from tests.pages.prometheus_tools import series, start_prometheus, tool, until
from tests.unit.publish_snapshots import broken, config
from validator.config.model import Metrics
from validator.publish.publisher import Publisher

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "README.md"
TOKEN = "a-token-of-24-characters"


def job() -> dict[str, Any]:
    found = re.search(
        r"^## A port with certificate and token\n.*?^```yaml\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL
    )
    assert found is not None
    [scrape_job] = yaml.safe_load(found[1])
    assert isinstance(scrape_job, dict)
    return scrape_job


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """The port. `ca.pem` and `token` are in the folder, with the guide's names."""
    tool("prometheus")  # skips before anything is started
    if shutil.which("openssl") is None:
        pytest.skip("no openssl command on the PATH")
    made = Authority(tmp_path).issue("sidecar", address="127.0.0.1")
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    metrics = {
        "port": 0,
        "tls_server_config": {"cert_file": str(made.certificate), "key_file": str(made.key)},
        "authorization": {"credentials_file": str(tmp_path / "token")},
    }
    state = tmp_path / "state"
    state.mkdir()
    publisher = Publisher(config(state).model_copy(update={"metrics": Metrics.model_validate(metrics)}), state)
    publisher.publish(broken())
    try:
        yield publisher.start().port
    finally:
        publisher.stop()


@pytest.mark.full
def test_the_scrape_job_of_the_guide_works_with_certificate_and_token(tmp_path: Path, port: int) -> None:
    target = f"127.0.0.1:{port}"
    scrape_job = job()
    assert (scrape_job["tls_config"].pop("server_name"), len(scrape_job["static_configs"])) == ("proof.example.org", 1)
    scrape_job["static_configs"] = [{"targets": [target]}]
    content = {"global": {"scrape_interval": "1s"}, "scrape_configs": [scrape_job]}
    process, url = start_prometheus(tmp_path, content)
    with process:
        until(lambda: bool(series(url, f'streamproof_build_info{{instance="{target}"}} == 1')), process)
        [info] = series(url, "streamproof_build_info")
        schemes = [answer.series for answer in check(url, Settings()) if answer.where.endswith("variable scheme")]
    assert info["metric"]["scheme"] == "https"
    assert schemes == [1, 1, 1, 1]


@pytest.mark.full
def test_without_the_token_the_scrape_fails(tmp_path: Path, port: int) -> None:
    scrape_job = {**job(), "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
    del scrape_job["authorization"], scrape_job["tls_config"]["server_name"]
    process, url = start_prometheus(tmp_path, {"global": {"scrape_interval": "1s"}, "scrape_configs": [scrape_job]})
    with process:
        until(lambda: bool(series(url, "up == 0")), process)
        assert series(url, "streamproof_build_info") == []
