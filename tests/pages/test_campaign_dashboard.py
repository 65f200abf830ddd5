"""The dashboard of a campaign in a real Prometheus that scrapes the port of a campaign, and its names and variables."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path

import pytest
import requests

from dashboards import campaign
from dashboards.panels import Panel
from dashboards.queries import expressions, label_values, substituted
from dashboards.settings import Settings
from dashboards.site import files
from testbed.campaign.cell import Cell
from testbed.campaign.live import LiveMetrics, LiveServer
from testbed.campaign.matrix import Run
from testbed.campaign.sampler import GROUP, Sample
from testbed.engines import flink, spark_job
from testbed.engines.jvm import SOURCES
from testbed.engines.registry import REGISTRY
from tests.pages.prometheus_tools import series, start_prometheus, until

BOARD = campaign.dashboard(Settings())
RUN = Run(Cell("kafka_streams", "sst", "exactly_once", "crash"), 1, 7)
OTHER = "flink"
CHOSEN = "kafka_streams"


def in_grafana(expression: str, engine: str) -> str:
    """The expression with one selected engine, and the runs that Grafana has for the selection All."""
    return substituted(expression.replace("${engine:regex}", engine))


def served(live: LiveMetrics, second: int) -> None:
    """Add a sample of everything that the board shows, and one of each counter."""
    uses = dict.fromkeys(("processor_seconds", "collection_seconds"), second + 1.0)
    levels = dict.fromkeys(("memory_bytes", "heap_bytes", "disk_written_bytes", "network_sent_bytes"), 7)
    group = Sample(second, GROUP, lag_events=5, produced_events=30, consumed_events=20)
    live.add([Sample(second, "worker-0", **uses, **levels), group])  # type: ignore[arg-type]
    names = {name for of in campaign.COUNTERS.values() for name in of}
    live.count("engine", [(second, "worker-0", name, float(second)) for name in sorted(names)])
    live.count("reach", [(second, "reach", "connect-seconds", 0.25)])


def test_counters_are_those_of_the_engines() -> None:
    code = {"flink": flink, "spark": spark_job}
    sources = {name: Path(str(module.__file__)).read_text(encoding="utf-8") for name, module in code.items()}
    for name, source in (("kafka_streams", "KafkaStreamsJob"), ("spark_dstreams", "SparkDStreamsJob")):
        sources[name] = (SOURCES / f"{source}.java").read_text(encoding="utf-8")
    assert campaign.COUNTERS.keys() <= REGISTRY.keys()
    for engine, names in campaign.COUNTERS.items():
        # Flink's counts of checkpoints have the names of its REST interface after `checkpoints-`.
        missing = [name for name in names if re.sub("^(checkpoints-).*", r"\1", name) not in sources[engine]]
        assert missing == [], engine


def test_the_file_equals_the_model_and_is_no_board_for_production() -> None:
    [(path, text)] = [(path, text) for path, text in files(Settings()).items() if campaign.UID in path]
    assert json.loads(text) == BOARD.build()
    assert not path.startswith("grafana/dashboards/")


def test_panels_do_not_overlap_and_have_known_variables() -> None:
    places = [panel["gridPos"] for panel in BOARD.build()["panels"]]
    for a, b in combinations(places, 2):
        beside = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
        assert beside or a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
    names = {variable.name for variable in BOARD.variables}
    for where, expression in expressions(BOARD):
        assert set(re.findall(r"\$\{(\w+)", expression)) == {"pipeline", "engine"} <= names, where
    for panel in BOARD.panels:
        assert panel.description.endswith("."), panel.title
        assert all(re.search(rf"by \([^)]*\b{label}\b", expression) for expression, label in legends(panel))


def legends(panel: Panel) -> list[tuple[str, str]]:
    return [(query.expression, label) for query in panel.queries for label in re.findall(r"{{(\w+)}}", query.legend)]


@pytest.mark.full
@pytest.mark.timeout(300)
def test_every_panel_has_series_of_the_selected_engine_and_none_of_another(tmp_path: Path) -> None:
    live = LiveMetrics()
    with LiveServer(live, 0) as server, live.of(RUN):
        address = server.url.removeprefix("http://").removesuffix("/metrics")
        target = {"job_name": "campaign", "static_configs": [{"targets": [address]}]}
        process, url = start_prometheus(tmp_path, {"global": {"scrape_interval": "1s"}, "scrape_configs": [target]})
        with process:
            second = 0

            def found(expression: str) -> bool:
                nonlocal second
                second += 1
                served(live, second)
                return bool(series(url, in_grafana(expression, CHOSEN)))

            for where, expression in expressions(BOARD):
                until(lambda asked=expression: found(asked), process)
                engines = {one["metric"]["engine"] for one in series(url, in_grafana(expression, CHOSEN))}
                assert engines == {CHOSEN}, where
                assert series(url, in_grafana(expression, OTHER)) == [], where
            for where, selector, label in label_values(BOARD):
                asked = {"match[]": in_grafana(selector, CHOSEN)}
                values = requests.get(f"{url}/api/v1/label/{label}/values", params=asked, timeout=10).json()["data"]
                assert values == [CHOSEN if label == "engine" else RUN.name], where
