"""A standalone Spark cluster whose hosts have Spark and a bare Python: verdicts equal those of local mode, even if a
worker is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyspark
import pytest

from testbed.ports import free_port
from tests.integration.sidecar_fixtures import _CONFIG, Pipeline, Report, answer, click, pipeline, read_report, spark
from validator.stream.shipping import executor_python

__all__ = ["pipeline", "spark"]
pytestmark = pytest.mark.timeout(600)
WINDOWS, OF_WINDOW = 60, 100
STARTED_SECONDS_MAX = 90.0


@dataclass
class Cluster:
    """A master and two workers with one core each, as processes without this environment's packages."""

    folder: Path
    port: int = field(default_factory=free_port)
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self) -> None:
        """Start the master and the workers; return when both workers are registered."""
        self.master = self._process("master", "master.Master", "--port", str(self.port))
        for number in range(2):
            settings = ("--cores", "1", "--memory", "1g", "-d", str(self.folder / f"w{number}"))
            self.workers.append(self._process(f"worker{number}", "worker.Worker", *settings, self.url))
        deadline = time.monotonic() + STARTED_SECONDS_MAX
        while (self.folder / "master.log").read_text().count("Registering worker") < 2:
            assert time.monotonic() < deadline, (self.folder / "master.log").read_text()[-2000:]
            time.sleep(0.1)

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    def kill_a_worker(self) -> None:
        """Kill a worker and its executor. The executor's Python processes end with it."""
        os.killpg(self.workers[0].pid, signal.SIGKILL)

    def close(self) -> None:
        for process in (*self.workers, self.master):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _process(self, name: str, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        home = Path(pyspark.__file__).parent
        # The interpreter from which the environment was made. It has none of the environment's packages.
        bare = Path(os.path.realpath(sys.executable)).parent
        command = [home / "bin" / "spark-class", f"org.apache.spark.deploy.{main}", "--host", "127.0.0.1"]
        environment = {
            "PATH": f"{bare}:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            **{name: os.environ[name] for name in ("JAVA_HOME", "JDK_JAVA_OPTIONS") if name in os.environ},
        }
        with (self.folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [*command, "--webui-port", "0", *arguments],
                env=environment,
                cwd=self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    bare = Path(os.path.realpath(sys.executable)).parent / executor_python()
    if not subprocess.run([bare, "-Ic", "import pyarrow"], capture_output=True, check=False).returncode:
        pytest.skip(f"{bare} has packages of its own, so that nothing would show what Spark sent")
    made = Cluster(tmp_path)
    try:
        made.start()
        yield made
    finally:
        made.close()


def written(pipeline: Pipeline) -> None:
    """Write events and results. Three results are wrong: one lacks an id, one repeats an id, one has an unknown id."""
    pipeline.create()
    for window in range(WINDOWS):
        ids = list(range(window * OF_WINDOW, (window + 1) * OF_WINDOW))
        pipeline.clicks(*(click(id_, window * 10 + (id_ % OF_WINDOW) / OF_WINDOW) for id_ in ids))
        listed: list[object] = list({7: ids[1:], 20: [*ids, ids[5]], 31: [*ids, "ghost"]}.get(window, ids))
        pipeline.answers(answer(listed, window))


def decided(report: Report | None) -> tuple[object, ...]:
    assert report is not None
    coverage = report["coverage"]["sums"]
    return report["verdicts"], report["contributions"], report["results"], report["violations"]["confirmed"], coverage


@pytest.mark.full
def test_a_cluster_that_loses_a_worker_decides_as_one_machine(
    pipeline: Pipeline, cluster: Cluster, tmp_path: Path
) -> None:
    written(pipeline)
    reports = []
    for name, master in (("local", "local[2]"), ("cluster", cluster.url)):
        config = tmp_path / f"{name}.yaml"
        text = _CONFIG.format(name=pipeline.name, servers=pipeline.servers, state=name)
        options = json.dumps({"spark.executor.memory": "512m"})
        config.write_text(
            f"{text}limits: {{records_per_batch: 200}}\nspark: {{master: '{master}', options: {options}}}\n"
        )
        command = [sys.executable, "-m", "validator.cli.main", "validate", str(config), "--once", "--quiet"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as sidecar:
            if name == "cluster":
                while sidecar.poll() is None and batches(tmp_path / name) < 3:
                    time.sleep(0.02)
                assert sidecar.poll() is None, "it ended before a worker could be killed"
                killed_after = batches(tmp_path / name)
                cluster.kill_a_worker()
            _, said = sidecar.communicate()
        report = read_report(tmp_path / name)
        assert sidecar.returncode == 1, said
        reports.append(report)
    local, clustered = reports
    assert decided(clustered) == decided(local)
    assert decided(local)[3] == {"missing": 1, "duplicate": 1, "misplaced": 0, "unknown_id": 1} | {
        name: 0 for name in decided(local)[3] if name not in ("missing", "duplicate", "misplaced", "unknown_id")
    }
    assert clustered is not None
    assert clustered["validator"]["batches"] > killed_after + 3, "batches came after the kill"


def batches(state: Path) -> int:
    try:
        return int(json.loads((state / "report.json").read_text())["validator"]["batches"])
    except (OSError, ValueError):
        return 0


UNUSABLE_SPARK = {
    "absent": (f"spark://127.0.0.1:{free_port()}", "{}", 3, "did not accept this sidecar; check that the master runs"),
    "malformed": ("spark:/a", "{}", 2, "no session starts on spark:/a: Could not parse Master URL: 'spark:/a'"),
    "foreign": ("spark://127.0.0.1:1", "{spark.driver.bindAddress: 192.0.2.1}", 2, "Cannot assign requested address"),
}
"""A fault of the section `spark` -> master, options, exit status, text."""


@pytest.mark.full  # Spark asks an absent master three times, for 20 s each
@pytest.mark.parametrize("fault", UNUSABLE_SPARK)
def test_spark_that_cannot_start_on_a_cluster_is_explained(fault: str, pipeline: Pipeline, tmp_path: Path) -> None:
    master, options, status, expected = UNUSABLE_SPARK[fault]
    pipeline.create()
    config = tmp_path / "unusable.yaml"
    text = _CONFIG.format(name=pipeline.name, servers=pipeline.servers, state="unusable")
    config.write_text(f"{text}spark: {{master: '{master}', options: {options}}}\n")
    command = [sys.executable, "-m", "validator.cli.main", "validate", str(config), "--once", "--quiet"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == status, done
    assert expected in done.stderr
    assert "spark.master" in done.stderr
