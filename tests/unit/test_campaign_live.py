"""What a running campaign serves to Prometheus."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from bench import campaign
from testbed.campaign import command
from testbed.campaign.cell import Cell
from testbed.campaign.live import LiveMetrics, LiveServer
from testbed.campaign.matrix import Run
from testbed.campaign.plan import PlanError
from testbed.campaign.sampler import GROUP, Sample
from tests.unit.campaign_results import PLAN
from validator.cli.parser import parse

pytestmark = pytest.mark.unit

RUN = Run(Cell("flink", "sst", "exactly_once", "crash", (("parallelism", "3"),)), 1, 7)
Series = dict[tuple[str, str], float]


def scraped(url: str) -> Series:
    """(metric, values of its labels by name of the label, without the pipeline) -> value."""
    with urllib.request.urlopen(url, timeout=5) as answer:
        text = answer.read().decode()
    return {
        (
            sample.name,
            ",".join(value for name, value in sorted(sample.labels.items()) if name != "pipeline"),
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@contextmanager
def sidecar(body: bytes) -> Iterator[str]:
    """The address of a port whose metrics are ``body``."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/metrics" else 404)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - that of the base class
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()


def test_uses_add_up_levels_do_not_and_the_series_end_with_their_run() -> None:
    live = LiveMetrics()
    with LiveServer(live, 0) as server:
        assert scraped(server.url) == {}
        with live.of(RUN):
            live.add([Sample(1, "worker-0", 0.5, 100), Sample(1, "worker-1", 0.25, 50),
                      Sample(1, GROUP, lag_events=9, produced_events=30, consumed_events=21)])  # fmt: skip
            live.add([Sample(2, "worker-0", 0.75, 80),
                      Sample(2, GROUP, lag_events=4, produced_events=30, consumed_events=35)])  # fmt: skip
            live.count("engine", [(2, "job", "checkpoints-completed", 3.0)])
            live.count("reach", [(2, "reach", "connect-seconds", 0.25)])
            found = scraped(server.url)
        assert found["streamproof_campaign_run", "flink,crash,exactly_once,parallelism 3,sst"] == 1
        assert found["streamproof_campaign_processor_seconds_total", "worker-0"] == 1.25
        assert found["streamproof_campaign_processor_seconds_total", "worker-1"] == 0.25
        assert found["streamproof_campaign_memory_bytes", "worker-0"] == 80
        assert ("streamproof_campaign_memory_bytes", "worker-1") not in found, "it has ended"
        assert found["streamproof_campaign_lag_events", GROUP] == 4
        assert found["streamproof_campaign_produced_events_total", GROUP] == 60
        assert found["streamproof_campaign_consumed_events_total", GROUP] == 56
        assert found["streamproof_campaign_engine", "checkpoints-completed,job"] == 3
        assert found["streamproof_campaign_engine", "connect-seconds,reach"] == 0.25
        assert scraped(server.url) == {}
        with live.of(RUN):
            live.add([Sample(9, "worker-0", 0.5)])
            assert scraped(server.url)["streamproof_campaign_processor_seconds_total", "worker-0"] == 0.5
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(server.url.replace("/metrics", "/other"), timeout=5)


def test_the_metrics_of_the_runs_sidecar_are_served_too() -> None:
    live = LiveMetrics()
    with LiveServer(live, 0) as server, sidecar(b'streamproof_fault_active{fault="crash"} 1\n') as url:
        with live.of(RUN):
            live.ask(lambda: None)
            assert ("streamproof_fault_active", "crash") not in scraped(server.url)
            live.ask(lambda: url)
            found = scraped(server.url)
            assert found["streamproof_fault_active", "crash"] == 1
            assert found["streamproof_campaign_run", "flink,crash,exactly_once,parallelism 3,sst"] == 1
        assert scraped(server.url) == {}


def test_a_port_that_is_taken_is_refused_before_the_first_run(tmp_path: Path) -> None:
    live = LiveMetrics()
    with LiveServer(live, 0) as server:
        port = int(server.url.split(":")[2].partition("/")[0])
        path = tmp_path / "night.yaml"
        path.write_text(yaml.safe_dump({**PLAN, "engines": ["reference"], "faults": ["none"]}), encoding="utf-8")
        with pytest.raises(PlanError, match=f"--metrics-port {port}: .*use another port"):
            command.run(parse(["campaign", str(path), "--metrics-port", str(port)]))
    assert list(tmp_path.iterdir()) == [path], "no folder of results"


@pytest.mark.parametrize("port", ["70000", "-1", "x"])
def test_a_number_that_is_no_port_is_refused_in_one_sentence(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    for read in (parse, campaign.main):
        with pytest.raises(SystemExit) as refused:
            read([*(["campaign"] if read is parse else []), "quick", f"--metrics-port={port}"])
        assert refused.value.code == 2
        assert f"argument --metrics-port: '{port}' is not a port" in capsys.readouterr().err
