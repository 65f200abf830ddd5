"""The Helm chart: checks that do not need Helm."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from faults import config as fault_configuration
from faults.backends.chaos_mesh import KIND_OF
from scripts.lib.chart import FaultRunner, Values
from tests.kubernetes_tools import CHART, VALUES
from validator import __version__
from validator.config.load import loads

TEMPLATES = "".join(path.read_text(encoding="utf-8") for path in (CHART / "templates").rglob("*.*"))
FREE = ("config", "faultRunner.config", "resources", "faultRunner.resources")
"""Values whose keys the chart does not define."""


def read(name: str) -> Any:
    return yaml.safe_load((CHART / name).read_text(encoding="utf-8"))


def paths(model: type[BaseModel], above: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        path, inner = above + name, field.annotation
        yield path
        if isinstance(inner, type) and issubclass(inner, BaseModel) and path not in FREE:
            yield from paths(inner, f"{path}.")


def test_values_yaml_has_the_defaults_of_the_schema() -> None:
    defaults = Values(config={}).model_dump(mode="json")
    for resources in (defaults["resources"], defaults["faultRunner"]["resources"]):
        for part in [part for part, amounts in resources.items() if not amounts]:
            del resources[part]
    assert read("values.yaml") == defaults


def test_templates_use_every_value_and_no_other() -> None:
    known = set(paths(Values))
    named = {found.rstrip(".") for found in re.findall(r"\.Values\.([A-Za-z.]+)", TEMPLATES)}
    named = {next((free for free in FREE if name.startswith(f"{free}.")), name) for name in named}
    assert named - known == set()
    # Inside `with`, and in a template's arguments, a value is named without its parents.
    below = set(re.findall(r"\.([A-Za-z]+)\b", re.sub(r"\.Values\.[A-Za-z.]+", "", TEMPLATES)))
    leaves = {path for path in known if not any(other.startswith(f"{path}.") for other in known)}
    assert {path for path in leaves - named if path.rpartition(".")[2] not in below} == set()


@pytest.mark.parametrize("file", VALUES, ids=lambda file: file.stem)
def test_the_sidecar_and_the_fault_runner_accept_what_ci_values_configure(file: Path, tmp_path: Path) -> None:
    values = Values.model_validate(yaml.safe_load(file.read_text(encoding="utf-8")))
    own = {"state": {"path": "state"}}
    config = loads(
        yaml.safe_dump(values.config | own), tmp_path, environment=dict.fromkeys(values.secrets.env, "x" * 32)
    )
    assert config.pipeline == values.config["pipeline"]
    if values.faultRunner.enabled:
        targets = fault_configuration.parse(values.faultRunner.config).targets
        assert {target.type for target in targets.values()} <= {"pods", "topic"}


def test_the_fault_runner_is_off_by_default_and_has_the_rights_for_its_objects() -> None:
    assert FaultRunner().enabled is False
    [resources] = re.findall(r"apiGroups: \[chaos-mesh\.org\]\n +resources: \[(.*)\]", TEMPLATES)
    assert set(resources.split(", ")) == {kind.lower() for kind in KIND_OF.values()}


def test_the_chart_has_this_version_and_no_copied_file() -> None:
    assert read("Chart.yaml")["appVersion"] == __version__
    generated = CHART.parents[1] / "dashboards" / "generated"
    assert (CHART / "files" / "rules.yaml").resolve() == generated / "prometheus" / "rules.yaml"
    assert (CHART / "files" / "dashboards").resolve() == generated / "grafana" / "dashboards"


def test_each_size_leaves_memory_beside_its_workers() -> None:
    """At least 1.5 GiB remain beside the workers' heap: for the driver, its JVM and the workers' other memory."""
    sizes = read("files/sizes.yaml")
    assert set(sizes) == set(Values.model_fields["size"].annotation.__args__)  # type: ignore[union-attr]
    for size in sizes.values():
        limit = int(size["resources"]["limits"]["memory"].removesuffix("Gi")) << 30
        assert limit - size["cores"] * size["worker_bytes"] >= 3 << 29
