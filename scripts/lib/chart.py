"""Generates two files of the chart `helm/streamproof`: ``values.schema.json``, and the names of secret options.

``python scripts/lib/chart.py`` writes both; with `check` it only compares. The schema of ``config`` is that of
`streamproof config schema`, without the keys that the chart sets, and with texts as the only values of options. The
models below describe the other values.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field, StringConstraints

from validator.config.options import SECRET_WORDS
from validator.config.schema import json_schema
from validator.model.kafka_options import FILE_OPTIONS
from validator.settings.fields import Frozen

CHART: Final = Path(__file__).parents[2] / "helm" / "streamproof"
SCHEMA: Final = CHART / "values.schema.json"
SECRETS: Final = CHART / "files" / "secrets.json"
SET_BY_THE_CHART: Final = {"State": ("path",), "Metrics": ("address", "port")}
"""Section of the configuration -> its keys that the chart sets, and that the values may not have."""
TEXT: Final = {"type": "string"}
"""An option of a client or of Spark. `streamproof` reads a number as it is written in the file, but Helm does not pass
it on as it was written: 0123456 becomes 42798."""
MASTERS: Final = r"^(local(\[([0-9]+|\*)\])?|spark://[^/]+|k8s://https?://[^/]+)$"

Quantity = Annotated[str, StringConstraints(pattern=r"^[0-9]+(\.[0-9]+)?([kMGTPE]i?|m)?$")]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=253)]
"""Name of an object of Kubernetes."""
EnvironmentName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
FileName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][-A-Za-z0-9._]*(/[A-Za-z0-9_][-A-Za-z0-9._]*)*$")]
Texts = dict[str, str]


class _Part(Frozen):
    model_config = ConfigDict(use_attribute_docstrings=True)


class Image(_Part):
    """The container image of streamproof."""

    repository: Annotated[str, StringConstraints(min_length=1)] = "streamproof"
    tag: str = ""
    digest: Annotated[str, StringConstraints(pattern="^(sha256:[0-9a-f]{64})?$")] = ""
    pullPolicy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"  # noqa: N815
    pullSecrets: tuple[Name, ...] = ()  # noqa: N815


class SecretKey(_Part):
    """A key of a Secret in the release's namespace."""

    secret: Name
    key: Annotated[str, StringConstraints(pattern=r"^[-._a-zA-Z0-9]+$")]


class Secrets(_Part):
    """Settings from Secrets. The values name the Secrets and never contain their content."""

    env: dict[EnvironmentName, SecretKey] = Field(default_factory=dict)
    """Environment variables: `${NAME}` in the configuration."""
    files: dict[FileName, SecretKey] = Field(default_factory=dict)
    """Files beside the configuration, by the names that the configuration uses."""


class Resources(_Part):
    """Requests and limits of a container, as Kubernetes has them."""

    requests: dict[str, Quantity | int | float] = Field(default_factory=dict)
    limits: dict[str, Quantity | int | float] = Field(default_factory=dict)


class Persistence(_Part):
    """The volume of the state."""

    enabled: bool = True
    size: Quantity = "20Gi"
    storageClass: str = ""  # noqa: N815
    accessMode: Literal["ReadWriteOnce", "ReadWriteOncePod", "ReadWriteMany"] = "ReadWriteOnce"  # noqa: N815
    existingClaim: str = ""  # noqa: N815


class Account(_Part):
    """The service account of the sidecar."""

    create: bool = True
    name: str = ""
    annotations: Texts = Field(default_factory=dict)


class Executors(_Part):
    """Spark's executors, if `config.spark.master` begins with `k8s://`."""

    image: str = ""
    """An image with the same versions of Spark and Python as the sidecar's; required with such a master."""
    instances: Annotated[int, Field(ge=1)] = 2
    cores: Annotated[int, Field(ge=1)] = 1
    memory: Annotated[str, StringConstraints(pattern="^[0-9]+[mg]$")] = "1g"
    """Heap of an executor's JVM."""
    memoryOverhead: Annotated[str, StringConstraints(pattern="^[0-9]+[mg]$")] = "2g"  # noqa: N815
    """Memory of an executor's Python workers."""


class DisruptionBudget(_Part):
    """The PodDisruptionBudget."""

    enabled: bool = True
    maxUnavailable: Literal[0, 1] = 1  # noqa: N815
    """0 blocks every drain of the node until an operator deletes the pod."""


class Network(_Part):
    """The NetworkPolicy."""

    enabled: bool = False
    readers: list[dict[str, Any]] = Field(default_factory=list)
    """NetworkPolicyPeers that may read metrics and pages; none: the release's namespace."""
    kafka: list[dict[str, Any]] = Field(default_factory=list)
    """NetworkPolicyPeers of the brokers; none: any address, on `kafkaPorts`."""
    kafkaPorts: list[Annotated[int, Field(gt=0, lt=65_536)]] = Field(default_factory=list)  # noqa: N815
    """Ports that the brokers advertise; none: those of `config.kafka.bootstrap_servers`."""
    egress: list[dict[str, Any]] = Field(default_factory=list)
    """Further NetworkPolicyEgressRules, such as the token endpoint of OAUTHBEARER."""


class ServiceMonitor(_Part):
    """The ServiceMonitor of prometheus-operator."""

    enabled: bool = False
    interval: Annotated[str, StringConstraints(pattern=r"^[0-9]+(ms|s|m)$")] = "15s"
    labels: Texts = Field(default_factory=dict)
    endpoint: dict[str, Any] = Field(default_factory=dict)
    """Further keys of its endpoint: `tlsConfig` and `authorization`, if `config.metrics` requires them."""


class Rules(_Part):
    """The PrometheusRule: alerts on every pipeline, so enable it in one release of a cluster."""

    enabled: bool = False
    labels: Texts = Field(default_factory=dict)
    runbooks: str = ""
    """Address under which docs/runbooks is published."""


class Boards(_Part):
    """Grafana's dashboards as ConfigMaps, for every pipeline: enable them in one release of a cluster."""

    enabled: bool = False
    labels: Texts = Field(default_factory=lambda: {"grafana_dashboard": "1"})
    """Labels by which Grafana's sidecar finds them."""
    annotations: Texts = Field(default_factory=dict)


class FaultRunner(_Part):
    """The fault runner, which breaks pods through Chaos Mesh. One CronJob runs the faults, the other heals them. Both
    are suspended; `schedule` resumes the first."""

    enabled: bool = False
    namespaces: list[Name] = Field(default_factory=list)
    """The only namespaces in which it may break pods."""
    config: dict[str, Any] = Field(default_factory=dict)
    """The fault configuration (docs/faults.md), less `state`."""
    secrets: Secrets = Secrets()
    schedule: str = ""
    """Cron schedule of the runs; empty: runs are only started by hand."""
    timeZone: str = "Etc/UTC"  # noqa: N815
    resources: Resources = Resources(requests={"cpu": "100m", "memory": "256Mi"}, limits={"memory": "512Mi"})
    volume: Quantity = "1Gi"
    """Size of the volume of its journal."""
    terminationGracePeriodSeconds: Annotated[int, Field(ge=1)] = 120  # noqa: N815
    """Must be above `limits.healed_within` of its configuration, because a stopped runner heals first."""


class Verification(_Part):
    """What `helm test` does."""

    command: Literal["doctor", "once"] = "doctor"
    """`doctor` reads the newest records of every topic; `once` verifies the whole topics of a pipeline at rest."""


class Values(_Part):
    """Values of the chart streamproof."""

    fullnameOverride: Annotated[str, StringConstraints(pattern="^([a-z]([-a-z0-9]*[a-z0-9])?)?$", max_length=42)] = ""  # noqa: N815
    image: Image = Image()
    config: dict[str, Any]
    """The configuration (docs/configuration.md), less `state.path`, `metrics.address` and `metrics.port`."""
    secrets: Secrets = Secrets()
    size: Literal["small", "medium", "large"] = "small"
    """Row of files/sizes.yaml: cores and memory (docs/kubernetes.md)."""
    resources: Resources = Resources()
    """Requests and limits that replace those of the row."""
    logFormat: Literal["text", "json"] = "text"  # noqa: N815
    """Lines of the sidecar's log: for people, or JSON objects."""
    persistence: Persistence = Persistence()
    terminationGracePeriodSeconds: Annotated[int, Field(ge=35)] = 45  # noqa: N815
    """A sidecar that is stopped ends within 30 s."""
    serviceAccount: Account = Account()  # noqa: N815
    podLabels: Texts = Field(default_factory=dict)  # noqa: N815
    podAnnotations: Texts = Field(default_factory=dict)  # noqa: N815
    nodeSelector: Texts = Field(default_factory=dict)  # noqa: N815
    tolerations: list[dict[str, Any]] = Field(default_factory=list)
    affinity: dict[str, Any] = Field(default_factory=dict)
    priorityClassName: str = ""  # noqa: N815
    executors: Executors = Executors()
    podDisruptionBudget: DisruptionBudget = DisruptionBudget()  # noqa: N815
    networkPolicy: Network = Network()  # noqa: N815
    serviceMonitor: ServiceMonitor = ServiceMonitor()  # noqa: N815
    rules: Rules = Rules()
    dashboards: Boards = Boards()
    faultRunner: FaultRunner = FaultRunner()  # noqa: N815
    test: Verification = Verification()


def values_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of the chart's values."""
    schema, configuration = Values.model_json_schema(), json_schema()
    # Pydantic accepts a key that matches none of its patterns.
    for settings in schema["$defs"]["Secrets"]["properties"].values():
        settings["additionalProperties"] = False
    definitions: dict[str, Any] = configuration.pop("$defs")
    del configuration["$id"]  # references inside a part with an id of its own would not leave it
    for part, keys in SET_BY_THE_CHART.items():
        for key in keys:
            del definitions[part]["properties"][key]
        definitions[part]["required"] = [key for key in definitions[part].get("required", ()) if key not in keys]
    configuration["required"].remove("state")
    configuration["properties"]["oracle"] = _by_kind(configuration["properties"]["oracle"])
    for definition in (configuration, *definitions.values()):
        for settings in definition.get("properties", {}).values():
            _one_problem(settings, definitions)
    definitions["Spark"]["properties"]["master"]["pattern"] = MASTERS
    for part in ("Kafka", "Spark"):
        definitions[part]["properties"]["options"]["additionalProperties"] = TEXT
    options = {"type": "object", "additionalProperties": TEXT}
    kafka = {"type": "object", "properties": {"options": options}}
    schema["$defs"]["FaultRunner"]["properties"]["config"]["properties"] = {"kafka": kafka}
    del configuration["$schema"]
    schema["properties"]["config"] = {"$ref": "#/$defs/Configuration"}
    # Helm adds this key to the values of every chart.
    schema["properties"]["global"] = {"type": "object"}
    clash = definitions.keys() & schema["$defs"].keys()
    assert not clash, clash
    schema["$defs"] |= definitions | {"Configuration": configuration}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _one_problem(settings: dict[str, Any], definitions: dict[str, Any]) -> None:
    """Change the schema of an optional section, so that a validator reports its errors without those of `null`."""
    match settings.get("anyOf"):
        case [{"$ref": str(place)} as section, {"type": "null"}]:
            if definitions[place.rpartition("/")[2]].get("type") == "object":
                del settings["anyOf"]
                settings |= {"type": ["null", "object"], "if": {"type": "object"}, "then": section}


def _by_kind(oracle: dict[str, Any]) -> dict[str, Any]:
    """The schema of the oracle as one `if` per kind, so that a validator only reports the errors of the chosen kind."""
    kinds = oracle["discriminator"]["mapping"]
    return {
        "type": "object",
        "description": oracle["description"],
        "required": ["kind"],
        "properties": {"kind": {"enum": sorted(kinds)}},
        "allOf": [
            {"if": {"properties": {"kind": {"const": kind}}, "required": ["kind"]}, "then": {"$ref": part}}
            for kind, part in sorted(kinds.items())
        ],
    }


def files() -> dict[Path, str]:
    """Path -> content."""
    secrets = {"words": list(SECRET_WORDS), "paths": list(FILE_OPTIONS)}
    return {
        SCHEMA: json.dumps(values_schema(), indent=1, ensure_ascii=False) + "\n",
        SECRETS: json.dumps(secrets, indent=1) + "\n",
    }


def main(arguments: list[str]) -> int:
    """Write the files, or with `check` compare them. Returns the exit status."""
    if arguments != ["check"]:
        for path, text in files().items():
            path.write_text(text, encoding="utf-8")
        return 0
    found = [p for p, text in files().items() if not p.is_file() or p.read_text(encoding="utf-8") != text]
    for path in found:
        sys.stderr.write(f"{path} is not current; run `python scripts/lib/chart.py`.\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
