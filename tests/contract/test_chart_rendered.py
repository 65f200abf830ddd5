"""Helm's output of the chart: lint, strict schemas, the chart's own unit tests, refusals."""

from __future__ import annotations

import io
import json
import re
import subprocess
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kubernetes_tools import CHART, VALUES, helm, needed, rendered
from validator.cli.main import main
from validator.config.load import loads

RELEASES = ("1.29.0", "1.33.0", "1.37.0")
CRDS = (
    "monitoring.coreos.com_servicemonitors.yaml",
    "monitoring.coreos.com_prometheusrules.yaml",
    "chaos-mesh.org_podchaos.yaml",
    "chaos-mesh.org_networkchaos.yaml",
)
MINIMAL = CHART / "ci" / "minimal-values.yaml"
pytestmark = pytest.mark.timeout(400)
FAULTS = ["faultRunner.enabled=true", "faultRunner.namespaces={shop}", "faultRunner.config.targets.w.type=pods"]
POD = "faultRunner.config.targets.w.namespace=shop"
FAULT_OPTIONS = "faultRunner.config.kafka.options"


def objects(manifests: str) -> list[dict[str, Any]]:
    return [found for found in yaml.load_all(manifests, yaml.CSafeLoader) if found]


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Schemas in kubeconform's layout: those of the releases, and strict ones of the CRDs, in which an unknown key
    is an error."""
    to = tmp_path_factory.mktemp("schemas")
    [source] = needed("schemas").glob("lib/*/site-packages/kubernetes_validate/kubernetes-json-schema")
    templates = "".join(path.read_text(encoding="utf-8") for path in (CHART / "templates").rglob("*.yaml"))
    kinds = {"_definitions.json", *map(str.lower, re.findall(r"^kind: (\w+)", templates, re.MULTILINE))}
    for release in RELEASES:
        (to / f"v{release}").mkdir()
        for path in (source / f"v{release}-local-strict").glob("*.json"):
            if path.name.split("-")[0] in kinds:
                # Their ids and references are addresses of a host; here they are files in the same folder.
                text = path.read_text(encoding="utf-8").replace('"/api/_definitions.json', '"_definitions.json')
                text = text.replace('"$id": "https:', '"$comment": "https:')
                (to / f"v{release}" / path.name).write_text(text, encoding="utf-8")
    for path in (needed("crds") / name for name in CRDS):
        [crd] = objects(path.read_text(encoding="utf-8"))
        [version] = crd["spec"]["versions"]
        schema = strict(version["schema"]["openAPIV3Schema"])
        schema["properties"]["metadata"] = {"type": "object"}
        kind, group = crd["spec"]["names"]["kind"].lower(), crd["spec"]["group"].split(".")[0]
        for release in RELEASES:
            text = json.dumps(schema)
            (to / f"v{release}" / f"{kind}-{group}-{version['name']}.json").write_text(text, encoding="utf-8")
    return to


def strict(schema: Any) -> Any:
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(part) for key, part in schema.items()}
    if "properties" in made and "x-kubernetes-preserve-unknown-fields" not in made:
        made.setdefault("additionalProperties", False)
    return made


def problems(manifests: str, release: str, schemas: Path) -> str:
    place = f"{schemas}/v{release}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"
    command = [needed("bin/kubeconform"), "-strict", "-kubernetes-version", release, "-schema-location", place]
    return subprocess.run(command, check=False, input=manifests, capture_output=True, text=True, timeout=300).stdout


# A release takes some seconds of processor time: the default run checks the newest, `scripts/test all` all.
@pytest.mark.parametrize("release", [*(pytest.param(r, marks=pytest.mark.full) for r in RELEASES[:-1]), RELEASES[-1]])
def test_manifests_are_valid(release: str, schemas: Path) -> None:
    assert problems("\n---\n".join(map(rendered, VALUES)), release, schemas) == ""


def test_a_field_unknown_to_every_release_is_found(schemas: Path) -> None:
    broken = rendered(CHART / "ci" / "secured-values.yaml").replace("replicas: 1", "replicaz: 1")
    found = problems(broken.replace("endpoints:", "endpointz:"), RELEASES[-1], schemas)
    assert "replicaz" in found
    assert "endpointz" in found


@pytest.mark.parametrize("values", VALUES, ids=lambda file: file.stem)
def test_lint_finds_nothing_and_the_sidecar_reads_its_file(values: Path, tmp_path: Path, schemas: Path) -> None:
    linted = helm("lint", "--strict", CHART, "--values", values)
    assert linted.returncode == 0, linted.stdout
    named = [
        (made["kind"], made["metadata"].get("namespace"), made["metadata"]["name"])
        for made in objects(rendered(values))
    ]
    assert len(named) == len(set(named))
    given = yaml.safe_load(values.read_text(encoding="utf-8"))
    [config] = [
        found["data"]
        for found in objects(rendered(values))
        if found["kind"] == "ConfigMap" and "pipeline.yaml" in found["data"]
    ]
    variables = dict.fromkeys(given.get("secrets", {}).get("env", {}), "hunter2" * 4)
    read = loads(config["pipeline.yaml"], tmp_path, environment=variables)
    assert (read.pipeline, read.metrics.address) == (given["config"]["pipeline"], "0.0.0.0")
    assert read.limits.records_per_batch == given["config"].get("limits", {}).get("records_per_batch", 2_000_000)
    assert "hunter2" not in config["pipeline.yaml"]
    if "executor.yaml" in config:
        pod = yaml.safe_load(config["executor.yaml"])
        named_pod = yaml.safe_dump(pod | {"metadata": {**pod["metadata"], "name": "a"}})
        assert [problems(named_pod, release, schemas) for release in RELEASES] == ["", "", ""]


def test_dashboards_and_rules_are_the_generated_ones() -> None:
    manifests = objects(rendered(CHART / "ci" / "secured-values.yaml"))
    boards = {name: text for found in manifests if found["kind"] == "ConfigMap" for name, text in found["data"].items()}
    for path in (CHART / "files" / "dashboards").glob("*.json"):
        assert json.loads(boards[path.name]) == json.loads(path.read_text(encoding="utf-8"))
    [rule] = [found["spec"] for found in manifests if found["kind"] == "PrometheusRule"]
    text = (CHART / "files" / "rules.yaml").read_text(encoding="utf-8")
    assert rule == yaml.safe_load(text.replace("docs/runbooks/", "https://example.org/runbooks/"))
    assert text.count("docs/runbooks/") > 5


def test_objects_of_the_fault_runner_are_valid(tmp_path: Path, schemas: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [config] = [
        found["data"]["faults.yaml"]
        for found in objects(rendered(CHART / "ci" / "secured-values.yaml"))
        if found["kind"] == "ConfigMap" and "faults.yaml" in found["data"]
    ]
    (tmp_path / "faults.yaml").write_text(config, encoding="utf-8")
    monkeypatch.setenv("KAFKA_PASSWORD", "hunter2")
    with redirect_stdout(io.StringIO()) as printed:
        assert main(["faults", "plan", str(tmp_path / "faults.yaml"), "--render"]) == 0
    made = printed.getvalue()
    assert {found["kind"] for found in objects(made)} == {"PodChaos", "NetworkChaos"}
    assert problems(made, RELEASES[-1], schemas) == ""
    assert "latencyy" in problems(made.replace("latency:", "latencyy:"), RELEASES[-1], schemas)


def test_the_charts_own_unit_tests_pass() -> None:
    command = [needed("bin/helm-unittest"), "--strict", "."]
    done = subprocess.run(
        command,
        check=False,
        cwd=CHART,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("assignments", "words"),
    [
        (["confg.pipeline=a"], "additional properties 'confg' not allowed"),
        (["config.pipline=a"], "at '/config': additional properties 'pipline' not allowed"),
        (["config.pipeline=null"], "at '/config/pipeline': got null, want string"),
        (["config.guarantee=exactly-once"], "at '/config/guarantee': value must be one of"),
        (["config.oracle.kind=tumbling"], "at '/config/oracle/kind': value must be one of 'distinct', 'filter'"),
        (["config.oracle.slide=5s"], "at '/config/oracle': additional properties 'slide' not allowed"),
        (["config.timing.idle_after=10"], "at '/config/timing/idle_after': got number, want string"),
        (["config.state.path=/data"], "at '/config/state': additional properties 'path' not allowed"),
        (["config.metrics.port=1"], "at '/config/metrics': additional properties 'port' not allowed"),
        (["config.spark.master=yarn"], "at '/config/spark/master': 'yarn' does not match pattern"),
        (["size=huge"], "at '/size': value must be one of 'small', 'medium', 'large'"),
        (["persistence.accessMode=ReadOnlyMany"], "at '/persistence/accessMode': value must be one of"),
        (["terminationGracePeriodSeconds=10"], "at '/terminationGracePeriodSeconds': minimum: got 10, want 35"),
        (["replicas=2"], "additional properties 'replicas' not allowed"),
        (["config.kafka.options.sasl\\.password=hunter2"], "write ${NAME} there and name the Secret as secrets.env"),
        (["config.kafka.options.sasl\\.password=hunter2$${"], "write ${NAME} there and name the Secret as secrets.env"),
        (["config.kafka.options.sasl\\.password=$$${{hunter2}"], "write ${NAME} there and name the Secret"),
        (["config.kafka.options.sasl\\.password=hunter2${"], "write ${NAME} there and name the Secret as secrets.env"),
        (["config.kafka.options.sasl\\.password=12345678"], "sasl.password': got number, want string"),
        (["config.kafka.options.check\\.crcs=true"], "check.crcs': got boolean, want string"),
        (["config.spark.options.spark\\.ui\\.port=4040"], "spark.ui.port': got number, want string"),
        (["config.kafka.options.sasl\\.password=${PASSWORD}"], "add secrets.env.PASSWORD: {secret: NAME, key: KEY}"),
        (["config.metrics.authorization.credentials=hunter2"], "authorization: credentials has its value"),
        (["config.kafka.options.ssl\\.ca\\.location=ca.pem"], "ssl.ca.location names the file ca.pem, and no Secret"),
        ([f"config.metrics.tls_server_config.{k}_file=a" for k in ("key", "cert")], "add secrets.files.a: {secret"),
        (["secrets.files.pipeline\\.yaml.secret=a", "secrets.files.pipeline\\.yaml.key=b"], "the chart writes this"),
        (["secrets.env.A-B.secret=a", "secrets.env.A-B.key=b"], "at '/secrets/env': additional properties 'A-B'"),
        (["config.spark.master=k8s://https://kubernetes.default.svc"], "executors.image is empty"),
        (["faultRunner.enabled=true"], "faultRunner.namespaces is empty"),
        (FAULTS[:2], "faultRunner.config.targets is empty"),
        ([*FAULTS, "faultRunner.config.targets.w.namespace=bank"], "bank is not in faultRunner.namespaces"),
        ([*FAULTS, "faultRunner.config.targets.w.type=process"], "reaches pods and topics only"),
        ([*FAULTS, f"{FAULT_OPTIONS}.sasl\\.password=12345678"], "sasl.password': got number, want string"),
        ([*FAULTS, POD, f"{FAULT_OPTIONS}.sasl\\.password=hunter2"], "the Secret as faultRunner.secrets.env"),
    ],
)  # fmt: skip
def test_invalid_values_are_refused_in_one_sentence(assignments: list[str], words: str) -> None:
    done = helm("template", "trial", CHART, "--values", MINIMAL, *(f"--set={given}" for given in assignments))
    assert done.returncode == 1
    assert words in done.stderr
    assert "hunter2" not in done.stderr


def test_a_user_name_of_digits_is_not_changed_into_another(tmp_path: Path) -> None:
    """YAML reads 0123456 as an octal number, and Helm passes 42798 to the template."""
    values = tmp_path / "values.yaml"
    values.write_text("config: {kafka: {options: {sasl.username: 0123456}}}", encoding="utf-8")
    done = helm("template", "trial", CHART, "--values", MINIMAL, "--values", values)
    assert done.returncode == 1
    assert "at '/config/kafka/options/sasl.username': got number, want string" in done.stderr
    values.write_text("config: {kafka: {options: {sasl.username: '0123456'}}}", encoding="utf-8")
    assert '"sasl.username": "0123456"' in rendered_with(values)


@pytest.mark.parametrize("given", [[], ["metrics.example.org"], ["trial-streamproof.observing.svc", "*.example.org"]])
def test_allowed_hosts_add_to_the_names_of_the_service(given: list[str], tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump({"config": {"metrics": {"allowed_hosts": given}}}), encoding="utf-8")
    [text] = [
        found["data"]["pipeline.yaml"]
        for found in objects(rendered_with(values))
        if found["kind"] == "ConfigMap" and "pipeline.yaml" in found["data"]
    ]
    hosts = json.loads(text)["metrics"]["allowed_hosts"]
    service = "trial-streamproof.observing"
    own = ["trial-streamproof", service, f"{service}.svc", f"{service}.svc.cluster.local"]
    assert sorted(hosts) == sorted({*own, *given})
    assert loads(text, tmp_path, environment={}).metrics.allowed_hosts == tuple(hosts)


@pytest.mark.parametrize("place", ["config.kafka.options", "config.spark.options", FAULT_OPTIONS])
@pytest.mark.parametrize("value", ["12345678", "{12345678}"])
def test_a_secret_that_is_not_a_text_is_refused_without_the_schema_too(place: str, value: str) -> None:
    assignments = (*FAULTS, POD, f"{place}.a\\.password={value}")
    sets = [f"--set={given}" for given in assignments]
    done = helm("template", "trial", CHART, "--skip-schema-validation", "--values", MINIMAL, *sets)
    assert done.returncode == 1
    assert f"{place}: a.password has its value in the values" in done.stderr
    assert value.strip("{}") not in done.stderr


def test_what_is_no_secret_or_refers_to_one_is_accepted(tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    given = {
        "config": {
            "kafka": {"options": {"sasl.password": "$${${PASSWORD}", "ssl.key.password": "${file:key-password}"}},
            "spark": {"options": {"spark.key.checked": "true"}},
            "canary": None,
            "metrics": {"authorization": {"credentials": None, "credentials_file": "token"}},
        },
        "secrets": {
            "env": {"PASSWORD": {"secret": "kafka", "key": "password"}},
            "files": {name: {"secret": "kafka", "key": name} for name in ("key-password", "token")},
        },
    }
    values.write_text(yaml.safe_dump(given), encoding="utf-8")
    assert '"sasl.password": "$${${PASSWORD}"' in rendered_with(values)


def rendered_with(values: Path) -> str:
    done = helm("template", "trial", CHART, "--namespace", "observing", "--values", MINIMAL, "--values", values)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("assignment", "problem"),
    [
        (
            "config.metrics.tls_server_config.cert_file=a",
            "'/config/metrics/tls_server_config': missing property 'key_file'",
        ),
        (
            "config.metrics.authorization.credential=a",
            "'/config/metrics/authorization': additional properties 'credential' not allowed",
        ),
        ("config.canary.input=a", "'/config/canary': missing property 'output'"),
        ("config.canary=a", "'/config/canary': got string, want null or object"),
    ],
)
def test_a_mistake_in_an_optional_section_is_the_only_problem(assignment: str, problem: str) -> None:
    done = helm("template", "trial", CHART, "--values", MINIMAL, f"--set={assignment}")
    assert done.returncode == 1
    _, streamproof, *found = done.stderr.partition("Error: ")[2].strip().splitlines()
    assert (streamproof, found) == ("streamproof:", [f"- at {problem}"])
