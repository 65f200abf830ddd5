"""Other users of the host can see no secret of a sidecar and its JVM, and cannot call them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.integration.sidecar_fixtures import Pipeline, answer, click, read_report

pytestmark = pytest.mark.integration

SECRETS = {
    "PLANTED_KAFKA": "planted-4711-kafka",
    "PLANTED_SPARK": "planted-4711 spark=\\ü",
    "PLANTED_JAVA": "planted-4711-java",
    "PLANTED_TOKEN": "planted-4711-token",
}
PLANTED = b"planted-4711"
CONFIG = """\
pipeline: {name}
guarantee: exactly_once
kafka: {{bootstrap_servers: "{servers}", options: {{ssl.key.password: "${{PLANTED_KAFKA}}"}}}}
inputs: [{{topic: {name}-in, fields: {{id: id, key: page, event_time: timestamp}}}}]
outputs: [{{topic: {name}-out, fields: {{key: page, window_start: windowStart, ids: [clickIds]}}}}]
oracle: {{kind: tumbling_window, size: 10s}}
state: {{path: "a state"}}
spark:
  master: local[2]
  options:
    spark.driver.memory: 1g
    spark.hadoop.fs.s3a.secret.key: "${{PLANTED_SPARK}}"
    spark.driver.extraJavaOptions: -Djavax.net.ssl.trustStorePassword=${{PLANTED_JAVA}}
    spark.local.dir: "{spark}"
metrics: {{port: 0, authorization: {{credentials: "${{PLANTED_TOKEN}}"}}}}
"""


ROUTES = (
    "/",
    "/metrics",
    "/report.json",
    "/violations.json",
    "/history.json",
    "/partitions.json",
    "/readyz",
    "/nothing",
)


def answers(port: int, token: str | None) -> list[tuple[int, bytes]]:
    """Return the status, and the headers and body, of every route."""
    found = []
    for path in ROUTES:
        with contextlib.closing(HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
            connection.request("GET", path, headers={} if token is None else {"Authorization": f"Bearer {token}"})
            response = connection.getresponse()
            found.append((response.status, str(response.headers).encode() + response.read()))
    return found


def command_lines() -> list[bytes]:
    """Return the command lines of all processes of this host."""
    return [seen(int(folder.name), "cmdline") for folder in Path("/proc").iterdir() if folder.name.isdigit()]


def files_below(*folders: Path) -> Iterator[Path]:
    """Yield files whose folder may change during the iteration."""
    for folder in folders:
        for path in folder.rglob("*"):
            if path.is_file() and not path.is_symlink():
                yield path


def until(condition: Callable[[], object], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "not in time"
        threading.Event().wait(0.05)


def children(pid: int) -> set[int]:
    """Return the child processes of ``pid``. While a thread ends, its child may be listed with a second thread, too."""
    threads = Path(f"/proc/{pid}/task").glob("*")
    return {int(child) for thread in threads for child in seen(pid, f"task/{thread.name}/children").split()}


def below(pid: int) -> Iterator[int]:
    """Yield all descendants of ``pid``."""
    for child in children(pid):
        yield child
        yield from below(child)


def seen(pid: int, name: str) -> bytes:
    """Return a file of /proc; empty if the process has ended."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def listening(pid: int) -> set[int]:
    """Return the ports of 127.0.0.1 on which a process listens."""
    sockets = {str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()}
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return {int(row[1].partition(":")[2], 16) for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets}


def sent(port: int, *lines: str) -> bytes:
    """Return the answer to a client without the token; empty if it is disconnected or gets no answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=3) as client:
        try:
            client.sendall("".join(f"{line}\n" for line in lines).encode())
            return client.recv(1000)
        except (ConnectionError, TimeoutError):
            return b""


def test_spark_serves_no_other_user(spark: SparkSession) -> None:
    """Other users of the host find ports that require a secret, and encrypted files."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    environment = jvm.org.apache.spark.SparkEnv.get()
    guard = environment.securityManager()
    assert guard.isAuthenticationEnabled()
    assert guard.isEncryptionEnabled()
    assert environment.serializerManager().encryptionEnabled()


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.skipif(not Path("/proc/self/net/tcp").exists(), reason="/proc is Linux's")
def test_no_secret_is_visible_and_no_stranger_is_served(pipeline: Pipeline) -> None:
    pipeline.create()
    pipeline.clicks(click(1, 1))
    pipeline.answers(answer([1]))
    file, log = pipeline.folder / "pipeline.yaml", pipeline.folder / "log"
    spark, temporary = pipeline.folder / "spark", pipeline.folder / "temporary"
    spark.mkdir()
    temporary.mkdir()
    file.write_text(CONFIG.format(name=pipeline.name, servers=pipeline.servers, spark=spark))
    state = pipeline.folder / "a state"
    environment = {
        **os.environ,
        **SECRETS,
        "STREAMPROOF__KAFKA__OPTIONS__SASL__PASSWORD": SECRETS["PLANTED_KAFKA"],
        "TMPDIR": str(temporary),
    }

    def run(*arguments: str, **more: str) -> subprocess.CompletedProcess[bytes]:
        """Run the command to its end; its output is searched for secrets."""
        command = [sys.executable, "-m", "validator.cli.main", *arguments]
        done = subprocess.run(command, env={**environment, **more}, capture_output=True, check=False, timeout=200)
        assert PLANTED not in done.stdout + done.stderr, arguments
        return done

    with log.open("wb") as said:
        sidecar = subprocess.Popen(
            [sys.executable, "-m", "validator.cli.main", "validate", str(file)],
            env=environment,
            stdout=said,
            stderr=said,
        )
    try:

        def batches() -> int:
            assert sidecar.poll() is None, log.read_text()
            report = read_report(state)
            return 0 if report is None else int(report["validator"]["batches"])

        def jvm() -> list[int]:
            # Children only: a process that the JVM starts has the JVM's command line until it executes its own program.
            return [pid for pid in children(sidecar.pid) if b"SparkSubmit" in seen(pid, "cmdline")]

        until(lambda: batches() >= 1)
        (java,) = jvm()
        others = [java, *below(java)]
        assert len(others) > 1, "no Python worker was seen"
        assert b"SparkSubmit" in b"".join(command_lines())
        assert [line for line in command_lines() if PLANTED in line] == []
        assert seen(java, "environ")
        for pid in others:
            assert PLANTED not in seen(pid, "environ")

        port = int(json.loads((state / "endpoint.json").read_text())["port"])
        for status, said_there in answers(port, SECRETS["PLANTED_TOKEN"]):
            assert status in (200, 404, 503)  # a probe of a busy machine may not be ready
            assert PLANTED not in said_there
        assert [status for status, _ in answers(port, None)] == [401] * 6 + [200, 401]
        # Refusals: the state is in use, the token is too short, the key's file is absent; each with a traceback, too.
        assert run("--debug", "validate", str(file)).returncode == 2
        assert run("--debug", "validate", str(file), PLANTED_TOKEN="planted-4711").returncode == 2
        wrong = "kafka.options.ssl.key.location=absent.pem"
        assert run("--debug", "validate", str(file), "--set", wrong).returncode == 2
        assert run("config", "check", str(file)).returncode == 0

        url = str((state / "endpoint.json").read_text())
        ports = {port for port in listening(sidecar.pid) if f":{port}" not in url}
        assert ports, "no port of callbacks was seen"
        for port in ports:
            calls = [line for proxy in ("p0", "p1", "p2") for line in ("c", proxy, "call", "n", "i5", "e")]
            assert sent(port, *calls) == b""
            assert sent(port, "A", "wrong", "c", "p0", "call", "n", "i5", "e")[:2] != b"!y"
        for port in listening(java):
            assert not sent(port, "c", "z:java.lang.System", "getProperty", "sjava.version", "e").startswith(b"!y")
        # Output to a terminal or a journal: the verdict, and each new class of violation.
        pipeline.answers(answer([1]))

        def lines() -> str:
            assert sidecar.poll() is None, log.read_text()
            return log.read_text()

        until(lambda: "new class of violation, duplicate" in lines())
        assert "exactly_once: unknown" in lines()

        os.kill(java, signal.SIGSEGV)
        assert sidecar.wait(60) == 3
    finally:
        sidecar.kill()
        sidecar.wait()
    crashes = list(state.glob("hs_err_pid*.log"))
    assert len(crashes) == 1
    # A kill in the middle of a batch leaves files behind.
    pipeline.clicks(click(2, 2))
    killed = run("validate", str(file), "--once", STREAMPROOF_FAILPOINT="after_facts")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    left = [path for path in files_below(spark, temporary) if path.stat().st_size]
    assert [path for path in left if PLANTED in path.read_bytes()] == []
    assert run("report", str(state), "--format", "junit").returncode in (1, 3)
    assert PLANTED not in log.read_bytes()
    for path in (state, *state.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, f"{path} has rights for others"
        assert path.is_dir() or PLANTED not in path.read_bytes(), path
