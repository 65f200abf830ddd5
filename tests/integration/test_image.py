"""The image's file tree, run as a container: another user, nothing writable, and only Kafka in reach."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from confluent_kafka import Producer

from testbed.broker import EmbeddedBroker
from testbed.secured_broker import SecuredBroker
from tests.integration import image_tree
from tests.integration.image_tree import Container, beside, first_process
from tests.integration.sidecar_fixtures import answer, click
from tests.kubernetes_tools import rendered

pytestmark = [
    pytest.mark.full,  # Debian and 16 packages are downloaded and installed: minutes the first time
    pytest.mark.timeout(1500),
    pytest.mark.skipif(bool(image_tree.missing_tools()), reason=image_tree.missing_tools() or "-"),
]
GRACE_SECONDS: Final = 30.0
SIZE_MOST: Final = 720_000_000
PORT: Final = 9464
CONFIG: Final = """\
pipeline: clicks
guarantee: exactly_once
kafka: {{bootstrap_servers: "{servers}"}}
inputs: [{{topic: in, fields: {{id: id, key: page, event_time: timestamp}}}}]
outputs: [{{topic: out, fields: {{key: page, window_start: windowStart, ids: [clickIds]}}}}]
oracle: {{kind: tumbling_window, size: 10s}}
timing: {{idle_after: 2s, overdue_after: 2s, missing_after: 4s, tick: 300ms}}
state: {{path: /var/lib/streamproof/clicks}}
metrics: {{address: 127.0.0.1, port: {port}}}
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return image_tree.built(tmp_path_factory.mktemp("image"))


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[str]:
    """A broker in a network that contains nothing else."""
    with image_tree.own_network(), EmbeddedBroker(folder=tmp_path / "broker") as broker:
        broker.create_topics({"in": 1, "out": 1})
        yield broker.bootstrap_servers


@pytest.fixture
def container(tree: Path, tmp_path: Path) -> Container:
    return Container(tree, tmp_path / "container")


def produce(servers: str, topic: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def report(container: Container) -> dict[str, dict[str, int]]:
    path = container.work / "state" / "clicks" / "report.json"
    found: dict[str, dict[str, int]] = json.loads(path.read_text()) if path.exists() else {}
    return found


def until(process: subprocess.Popen[str], holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 240
    while not holds():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.1)


def test_the_tree_holds_only_files_that_are_needed(tree: Path, container: Container) -> None:
    files = [path for path in tree.rglob("*") if path.is_file() and not path.is_symlink()]
    names = [str(path.relative_to(tree)) for path in files]
    size = sum(path.stat().st_size for path in files)
    print(f"image tree: {size / 1e6:.0f} MB in {len(files)} files")
    assert size < SIZE_MOST
    # Only the package, the commands and the licence are copied from the checkout.
    assert {"/".join(name.split("/")[:3]) for name in names} == {
        "opt/streamproof/LICENSE", "opt/streamproof/jars", "opt/streamproof/lib", "opt/streamproof/pyvenv.cfg",
        "usr/local/bin",
    }  # fmt: skip
    own = [name for name in names if "/site-packages/streamproof/" in name]
    assert [name for name in own if "/tests/" in name or "conftest" in name] == []
    hidden = {".netrc", ".git", ".env", "pip.conf", "credentials", "direct_url.json"}
    assert [name for name in names if hidden & set(name.split("/"))] == []
    assert [path for path in files if path.stat().st_mode & 0o7022] == [], "nothing is set-uid or writable by others"
    said = container.run(
        "sh", "-c", "touch /x /opt/streamproof/x /etc/streamproof/x; grep Cap /proc/self/status; id -u"
    )
    assert said.stderr.count("Read-only file system") == 3, said
    assert set(re.findall(r"Cap\w+:\s*(\w+)", said.stdout)) == {"0" * 16}
    assert said.stdout.split()[-1] == str(image_tree.USER_ID)


def test_once_needs_no_network_but_kafka(servers: str, container: Container) -> None:
    produce(servers, "in", *(click(number, number) for number in range(30)))
    produce(servers, "out", answer(range(10), 0), answer(range(10, 20), 1), answer([*range(20, 29), "ghost"], 2))
    (container.work / "config" / "pipeline.yaml").write_text(CONFIG.format(servers=servers, port=PORT))
    done = container.run("streamproof", "validate", "/etc/streamproof/pipeline.yaml", "--once")
    assert done.returncode == 1, done
    found = report(container)["contributions"]
    assert (found["expected"], found["missing"], found["unknown_id"]) == (30, 1, 1)
    assert container.run("streamproof", "report", "/var/lib/streamproof/clicks").returncode == 1
    explained = container.run("streamproof", "explain", "/var/lib/streamproof/clicks", "--id", "ghost")
    assert (explained.returncode, "ghost" in explained.stdout) == (0, True), explained


def test_the_image_runs_live_until_sigterm(servers: str, container: Container) -> None:
    (container.work / "config" / "pipeline.yaml").write_text(CONFIG.format(servers=servers, port=PORT))
    with container.start("streamproof", "validate", "/etc/streamproof/pipeline.yaml") as process:
        produce(servers, "in", *(click(number, number) for number in range(30)))
        produce(servers, "out", answer(range(10), 0), answer(range(10, 20), 1))
        until(process, lambda: report(container).get("contributions", {}).get("processed") == 20)
        first = first_process(process)
        assert beside(first, "streamproof-health").returncode == 0
        inside = beside(
            first, "sh", "-c", "cat /proc/1/comm; cat /proc/[0-9]*/status | grep ^Uid; ls /sys/class/net"
        ).stdout
        assert inside.startswith("tini\n")
        assert set(re.findall(r"Uid:\s*(\d+)", inside)) == {str(image_tree.USER_ID)}
        asked = time.monotonic()
        # A kubelet or a container engine sends SIGTERM to the first process.
        os.kill(first, signal.SIGTERM)
        _, said = process.communicate(timeout=2 * GRACE_SECONDS)
        print(f"ended {time.monotonic() - asked:.1f} s after SIGTERM")
        assert time.monotonic() - asked < GRACE_SECONDS
    assert process.returncode == 0, said


def test_a_signal_at_the_start_ends_the_container(container: Container) -> None:
    (container.work / "config" / "pipeline.yaml").write_text(CONFIG.format(servers="127.0.0.1:1", port=PORT))
    with container.start("streamproof", "validate", "/etc/streamproof/pipeline.yaml") as process:
        name = ""
        while name != "tini":
            assert process.poll() is None
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            name = Path(f"/proc/{children[0]}/comm").read_text().strip() if children else ""
        os.kill(int(children[0]), signal.SIGTERM)
        process.communicate(timeout=GRACE_SECONDS)
    assert process.returncode in {130, 143}


def of_the_page(servers: str) -> dict[str, Any]:
    """The values of the first installation in docs/kubernetes.md, for the brokers at ``servers``."""
    page = (image_tree.ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    [text] = re.findall(r"^ *```yaml\n(.*?)^ *```", page, re.MULTILINE | re.DOTALL)
    found: dict[str, Any] = yaml.safe_load(text)
    found["config"]["kafka"]["bootstrap_servers"] = servers
    return found


def mounted(container: Container, config: str, files: Mapping[str, str]) -> None:
    """Write the pod's folder of the configuration, which only the pod's group may read."""
    for name, text in {"pipeline.yaml": config, **files}.items():
        path = container.work / "config" / name
        path.write_text(text, encoding="utf-8")
        os.chown(path, 0, image_tree.USER_ID)
        path.chmod(0o440)


def test_the_pod_of_the_chart_on_a_secured_broker(tree: Path, tmp_path: Path) -> None:
    """The first installation of docs/kubernetes.md, with the rights of docs/security.md and no others: `helm test`,
    then the sidecar."""
    container, password = Container(tree, tmp_path / "container"), 'pass"word \\ 1='
    with image_tree.own_network(), SecuredBroker(tmp_path) as broker:
        values = of_the_page(broker.servers_of("SCRAM"))
        (tmp_path / "values.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
        manifests = list(yaml.safe_load_all(rendered(tmp_path / "values.yaml")))
        [config] = [made["data"]["pipeline.yaml"] for made in manifests if made["kind"] == "ConfigMap"]
        [sidecar] = [made["spec"]["template"]["spec"] for made in manifests if made["kind"] == "StatefulSet"]
        [verify] = [made["spec"] for made in manifests if made["kind"] == "Pod"]
        [certificate] = values["secrets"]["files"]
        mounted(container, config, {certificate: broker.authority.certificate.read_text(encoding="utf-8")})

        topics, user = ("orders", "orders-per-minute"), values["config"]["kafka"]["options"]["sasl.username"]
        broker.create_topics(dict.fromkeys(topics, 1))
        broker.add_user(user, password)
        for topic in topics:
            for right in ("READ", "DESCRIBE_CONFIGS"):
                broker.allow(user, right, "TOPIC", topic)
        orders = [{"id": n, "customer": "c", "created_at": f"2026-01-31T02:0{n // 10}:00Z"} for n in range(30)]
        produce(broker.bootstrap_servers, "orders", *map(json.dumps, orders))
        answers = [
            {"customer": "c", "window_start": f"2026-01-31T02:0{w}:00Z", "order_ids": list(range(w * 10, w * 10 + 10))}
            for w in range(2)
        ]
        produce(broker.bootstrap_servers, "orders-per-minute", *map(json.dumps, answers))

        for pod in (verify, sidecar):
            [of_it] = pod["containers"]
            command = (*of_it["command"], *of_it["args"])
            environment = {one["name"]: one.get("value", password) for one in of_it["env"]}
            assert environment.keys() >= values["secrets"]["env"].keys()
            if pod is verify:
                done = container.run(*command, environment=environment)
                assert done.returncode == 0, done
                said = done.stdout + done.stderr
                continue
            with container.start(*command, environment=environment) as process:
                until(process, lambda: processed(container) == 20)
                assert beside(first_process(process), "streamproof-health").returncode == 0
                os.kill(first_process(process), signal.SIGTERM)
                lines = process.communicate(timeout=2 * GRACE_SECONDS)
            assert process.returncode == 0, lines
            said += "".join(lines)
        assert password not in said
    for path in (container.work / "state").rglob("*"):
        assert path.is_dir() or password.encode() not in path.read_bytes(), path


def processed(container: Container) -> int:
    path = container.work / "state" / "state" / "report.json"
    return int(json.loads(path.read_text())["contributions"]["processed"]) if path.exists() else 0


def test_a_jar_that_differs_from_the_lock_stops_the_start(servers: str, container: Container) -> None:
    (container.work / "config" / "pipeline.yaml").write_text(CONFIG.format(servers=servers, port=PORT))
    [jar] = (container.tree / "opt" / "streamproof" / "jars").rglob("kafka-clients-*.jar")
    other = container.work / "other.jar"
    other.write_bytes(jar.read_bytes()[:-1] + b"x")
    over = [f"{other}=/{jar.relative_to(container.tree)}"]
    done = container.run("streamproof", "validate", "/etc/streamproof/pipeline.yaml", "--once", over=over)
    assert done.returncode == 3
    assert re.search(r"kafka-clients-\S+\.jar is missing or is not ", done.stderr), done
