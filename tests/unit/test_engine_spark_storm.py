"""Spark and Storm without starting either: refusals, the contents of their files, and reading back the guarantee."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from testbed.demo.files import real_settings, write_sidecar
from testbed.demo.options import DemoPlan
from testbed.engines import storm
from testbed.engines.base import EngineError
from testbed.engines.effective import ClientConfig
from testbed.engines.real import LOCAL, EngineRefused, RealEngineSettings, Timeouts, timeouts
from testbed.engines.settings import Node
from testbed.engines.spark import SparkEngine
from testbed.engines.spark_driver import RunningQuery, effective_of
from testbed.engines.spark_dstreams import SparkDStreamsEngine
from testbed.engines.spark_job import forget, main, spark_options
from testbed.engines.spark_settings import SparkSettings
from testbed.engines.storm import StormEngine
from testbed.engines.storm_files import StormPorts, storm_options, write_cluster

KAFKA_TABLE = "org.apache.spark.sql.kafka010.KafkaSourceProvider$KafkaTable"
PORTS = StormPorts(zookeeper=1, nimbus=2, supervisor=3, slot=4)


def settings(**more: Any) -> RealEngineSettings:
    return RealEngineSettings(bootstrap_servers="127.0.0.1:1", **more)


def test_spark_refuses_a_standby(tmp_path: Path) -> None:
    with pytest.raises(EngineRefused, match="leave standby at 0"):
        SparkEngine(settings(standby=1), tmp_path)


def test_spark_takes_the_common_settings_and_its_own() -> None:
    common = SparkSettings.of(settings(max_disorder_ms=300, allowed_lateness_ms=200))
    assert (common.watermark_delay_ms, common.state_store) == (500, "memory")
    own = SparkSettings(bootstrap_servers="127.0.0.1:1", state_store="rocksdb", parallelism=3)
    assert SparkSettings.of(own) is own
    options = spark_options(own, [Path("a.jar"), Path("b.jar")], Path("scratch"))
    assert options["spark.sql.streaming.stateStore.providerClass"].endswith("RocksDBStateStoreProvider")
    assert (options["spark.sql.shuffle.partitions"], options["spark.jars"]) == ("3", "a.jar,b.jar")
    assert options["spark.sql.streaming.multipleWatermarkPolicy"] == "min"
    given = own.model_copy(update={"options": {"spark.locality.wait": "20ms", "maxOffsetsPerTrigger": "9"}})
    assert spark_options(given, [], Path("scratch")).items() - spark_options(own, [], Path("scratch")).items() == {
        ("spark.locality.wait", "20ms")
    }
    with pytest.raises(ValidationError):
        SparkSettings(bootstrap_servers="127.0.0.1:1", driver_memory_mb=100)


def test_spark_has_its_executors_in_a_cluster_on_request(tmp_path: Path) -> None:
    node = Node(namespace="apart", host="10.7.0.1", address="10.7.0.2")
    given = settings(parallelism=2, options={"spark.master": "standalone", "spark.ui.enabled": "true"}, node=node)
    engine = SparkEngine(given, tmp_path)
    assert [i.role for i in engine.instances] == ["worker", "worker", "driver", "master"]
    assert engine.leader == 2
    worker, other, driver, master = ([str(part) for part in engine._command(number)] for number in range(4))
    assert [command[command.index("--host") + 1] for command in (worker, other, master)] == [
        "10.7.0.2", "10.7.0.1", "10.7.0.1",
    ]  # fmt: skip
    assert worker[-1] == other[-1] == driver[driver.index("--master") + 1]
    assert worker[-1] == f"spark://10.7.0.1:{master[master.index('--port') + 1]}"
    assert engine._environment(0)["SPARK_LOCAL_IP"] == "10.7.0.2"
    assert engine._environment(3)["SPARK_DAEMON_JAVA_OPTS"] == "-Dspark.worker.timeout=6"
    options = spark_options(SparkSettings.of(given), [], tmp_path)
    assert (options["spark.driver.host"], options["spark.ui.enabled"]) == ("10.7.0.1", "true")
    assert options["spark.storage.blockManagerHeartbeatTimeoutMs"] == "6000ms"
    assert "spark.master" not in options
    alone = SparkEngine(settings(parallelism=2, node=node), tmp_path)
    assert [i.role for i in alone.instances] == ["driver"]
    assert alone._command(0)[-1] == "local[2]"
    with pytest.raises(EngineRefused, match=r"spark.master yarn; use local or standalone"):
        SparkEngine(settings(options={"spark.master": "yarn"}), tmp_path)


def test_a_spark_configuration_that_cannot_be_used_ends_the_driver_with_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "spark.json"
    config.write_text('{"bootstrap_servers": "127.0.0.1:1", "windows": 2}', encoding="utf-8")
    assert main([str(config), "--master", "local[1]"]) == 2
    assert "windows Extra inputs" in capsys.readouterr().out


def test_dstreams_have_the_workloads_without_windows_and_options_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        SparkDStreamsEngine, "jars", staticmethod(lambda: [Path("job.jar"), Path("a.jar"), Path("b.jar")])
    )
    own = {"spark.serializer": "kryo", "max.poll.records": "7"}
    its = {"workload": "wordcount", "guarantee": "at_least_once", "parallelism": 2}
    engine = SparkDStreamsEngine(settings(**its, options=own), tmp_path / "local")
    command = [str(part) for part in engine._command(0)]
    assert command[command.index("--master") + 1] == "local[2]"
    assert {"spark.jars=a.jar,b.jar", "spark.serializer=kryo"} < set(command)
    assert command[-2:] == ["job.jar", str(tmp_path / "local" / "job.properties")]
    written = set(Path(command[-1]).read_text(encoding="utf-8").splitlines())
    assert {"job.consumer.max.poll.records=7", "job.consumer.session.timeout.ms=6000"} < written
    assert {"job.batch.ms=1000", "job.operator=running_aggregate"} < written
    assert not any("spark." in line for line in written)
    cluster = SparkDStreamsEngine(settings(**its, options={"spark.master": "standalone"}), tmp_path / "cluster")
    assert [one.role for one in cluster.instances] == ["worker", "worker", "driver", "master"]
    with pytest.raises(EngineRefused, match="spark_dstreams has no job for workload sst; use grep or "):
        SparkDStreamsEngine(settings(guarantee="at_least_once"), tmp_path)
    with pytest.raises(EngineRefused, match="spark_dstreams cannot provide exactly_once; use at_least_once"):
        SparkDStreamsEngine(settings(workload="wordcount"), tmp_path)
    with pytest.raises(EngineRefused, match="spark_dstreams does not support commit_interval_seconds 0"):
        SparkDStreamsEngine(settings(**its, timeouts=Timeouts(commit_interval_seconds=0)), tmp_path)


def test_spark_is_never_more_than_at_least_once() -> None:
    query = RunningQuery(sink=KAFKA_TABLE, trigger_seconds=0.5, checkpoint="checkpoint")
    before_the_first_result = effective_of(query, ())
    assert before_the_first_result.guarantee == "at_least_once"
    sentence = before_the_first_result.mismatch("exactly_once")
    assert sentence is not None
    assert "at-least-once: the sink KafkaSourceProvider" in sentence
    transactional = ClientConfig("ProducerConfig", {"acks": "-1", "transactional.id": "x"})
    assert effective_of(query, (transactional,)).guarantee == "at_least_once"
    assert effective_of(query, (ClientConfig("ProducerConfig", {"acks": "1"}),)).guarantee == "at_most_once"


def test_spark_without_the_checkpoint_of_an_earlier_start_is_at_most_once(tmp_path: Path) -> None:
    query = RunningQuery(sink=KAFKA_TABLE, trigger_seconds=0.5, checkpoint="checkpoint", resumes=False)
    producer = ClientConfig("ProducerConfig", {"acks": "-1"})
    found = effective_of(query, (producer,))
    assert found.guarantee == "at_most_once"
    assert found.evidence[-1] == "a start begins at the end of the inputs, without the checkpoint"
    of = {name: SparkSettings.of(settings(guarantee=name)) for name in ("at_least_once", "at_most_once")}
    folder = tmp_path / "checkpoint"
    assert forget(of["at_most_once"], folder) == "earliest", "nothing was processed before the first start"
    (folder / "commits").mkdir(parents=True)
    assert forget(of["at_least_once"], folder) == "earliest"
    assert folder.exists()
    assert forget(of["at_most_once"], folder) == "latest"
    assert not folder.exists()


def test_storm_refuses_exactly_once_and_a_standby(tmp_path: Path) -> None:
    with pytest.raises(EngineRefused, match=r"storm cannot .* exactly_once; use at_least_once or at_most"):
        StormEngine(settings(guarantee="exactly_once"), tmp_path)
    with pytest.raises(EngineRefused, match="leave standby at 0"):
        StormEngine(settings(guarantee="at_least_once", standby=1), tmp_path)


def test_a_join_of_spark_or_storm_refuses_idle_after_seconds(tmp_path: Path) -> None:
    idle = settings(workload="mst", guarantee="at_least_once", idle_after_seconds=2)
    with pytest.raises(EngineRefused, match=r"spark's join .* idle_after_seconds"):
        SparkEngine(idle, tmp_path)
    with pytest.raises(EngineRefused, match=r"join of storm .* idle_after_seconds"):
        StormEngine(idle, tmp_path)


def test_storm_before_its_start_has_no_worker_and_is_not_ready(tmp_path: Path) -> None:
    engine = StormEngine(settings(guarantee="at_least_once"), tmp_path)
    assert [i.role for i in engine.instances] == ["worker", "zookeeper", "nimbus", "supervisor"]
    assert not any(i.alive for i in engine.instances)
    with pytest.raises(EngineError, match="was not started"):
        engine.ready(0.1)
    with pytest.raises(EngineError, match="No worker"):
        engine.effective()
    with pytest.raises(EngineError, match="use kill and send_signal"):
        engine.process(storm.WORKER)


def test_storms_cluster_is_on_the_loopback_interface_and_in_its_folder(tmp_path: Path) -> None:
    write_cluster(tmp_path, PORTS, [tmp_path / "a.jar"], times=LOCAL, log=tmp_path / "worker.log")
    written = yaml.safe_load((tmp_path / "conf" / "storm.yaml").read_text(encoding="utf-8"))
    assert written == storm_options(tmp_path, PORTS, LOCAL)
    options = {"topology.max.spout.pending": "500", "topology.debug": "true"}
    write_cluster(tmp_path, PORTS, [], times=LOCAL, log=tmp_path / "worker.log", options=options)
    changed = yaml.safe_load((tmp_path / "conf" / "storm.yaml").read_text(encoding="utf-8"))
    assert (changed["topology.max.spout.pending"], changed["topology.debug"]) == (500, True)
    assert (written["storm.local.hostname"], written["supervisor.slots.ports"]) == ("127.0.0.1", [4])
    assert written["supervisor.worker.timeout.secs"] == 6
    assert written["storm.local.dir"].startswith(str(tmp_path))
    assert "clientPortAddress=127.0.0.1\n" in (tmp_path / "zookeeper.cfg").read_text(encoding="utf-8")
    assert f'fileName="{tmp_path}/worker.log"' in (tmp_path / "log4j2" / "worker.xml").read_text(encoding="utf-8")


def test_storm_uses_the_times_of_pgvals_code(tmp_path: Path) -> None:
    times = timeouts("pgval", "storm")
    options = storm_options(tmp_path, PORTS, times)
    assert (options["supervisor.worker.timeout.secs"], options["worker.heartbeat.frequency.secs"]) == (3, 1)
    assert options["nimbus.task.timeout.secs"] == 350
    StormEngine(settings(guarantee="at_least_once", timeouts=times), tmp_path)
    assert '"message_timeout_seconds": 124' in (tmp_path / "storm.json").read_text(encoding="utf-8")
    StormEngine(settings(guarantee="at_least_once", window_ms=100_000), tmp_path)
    assert '"message_timeout_seconds": 500' in (tmp_path / "storm.json").read_text(encoding="utf-8")
    with pytest.raises(EngineRefused, match=r"124 s .* use shorter windows"):
        StormEngine(settings(guarantee="at_least_once", timeouts=times, max_disorder_ms=4_000), tmp_path)


def test_spark_alone_takes_a_trigger_without_a_pause(tmp_path: Path) -> None:
    times = timeouts("ospbench", "spark")
    assert times.commit_interval_seconds == 0
    SparkEngine(settings(timeouts=times), tmp_path)
    with pytest.raises(EngineRefused, match=r"storm does not support commit_interval_seconds 0"):
        StormEngine(settings(guarantee="at_least_once", timeouts=times), tmp_path)


def worker_log(processing: str = "AT_LEAST_ONCE", ackers: int = 1, acks: str = "-1") -> str:
    return (
        f"INFO Worker Worker has topology config {{topology.users=[null], topology.acker.executors={ackers}, "
        "supervisor.worker.timeout.secs=6, "
        "worker.heartbeat.frequency.secs=2, x=1}\n"
        f"INFO ProducerConfig ProducerConfig values: \n\tacks = {acks}\n\ttransactional.id = null\n\n"
        "INFO ConsumerConfig ConsumerConfig values: \n\tenable.auto.commit = false\n\n"
        "INFO KafkaSpout Kafka Spout opened with the following configuration: KafkaSpoutConfig["
        f"offsetCommitPeriodMs=500,maxUncommittedOffsets=1,processingGuarantee={processing},emitNullTuples=false]\n"
    )


@pytest.mark.parametrize(
    ("log", "guarantee"),
    [
        (worker_log(), "at_least_once"),
        (worker_log(processing="AT_MOST_ONCE"), "at_most_once"),
        (worker_log(ackers=0), "at_most_once"),
        (worker_log(acks="1"), "at_most_once"),
    ],
)
def test_storms_guarantee_is_that_of_its_spout_ackers_and_producers(log: str, guarantee: str) -> None:
    effective = storm.effective_of(log)
    assert (effective.guarantee, effective.commit_interval_seconds) == (guarantee, 0.5)
    assert (effective.session_timeout_seconds, effective.heartbeat_interval_seconds) == (6, 2)


def test_a_log_of_a_storm_worker_without_times_is_read() -> None:
    log = worker_log().replace("supervisor.worker.timeout.secs", "x").replace("worker.heartbeat.frequency.secs", "y")
    effective = storm.effective_of(log)
    assert (effective.session_timeout_seconds, effective.heartbeat_interval_seconds) == (None, None)


def test_an_incomplete_log_of_a_storm_worker_has_no_guarantee() -> None:
    with pytest.raises(EngineError, match="has not logged"):
        storm.effective_of(worker_log().replace("KafkaSpoutConfig", "Other"))


def test_the_demos_sidecar_expects_no_late_records_of_an_engine_that_drops_them(tmp_path: Path) -> None:
    for name, topics, policy in (("spark", [], "drop"), ("storm", ["lateOutput"], "report")):
        plan = DemoPlan(engine=name)
        config = yaml.safe_load(write_sidecar("127.0.0.1:1", plan, tmp_path).read_text(encoding="utf-8"))
        assert [late["topic"] for late in config.get("late", [])] == topics
        assert (config["timing"]["late_policy"], config["timing"]["max_disorder"]) == (policy, "1000ms")
        assert real_settings(plan, "127.0.0.1:1").max_disorder_ms == 1000
