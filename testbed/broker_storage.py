"""Formats the storage of an embedded broker as Kafka's own tool does: for a new cluster, or to join one."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import tempfile
import uuid
from pathlib import Path
from typing import Final

from testbed.processes import OwnedProcess
from validator.stream.jars import user_cache

JARS_LOCK: Final = Path(__file__).with_name("jars.lock")
_TOOL_SECONDS_MAX: Final = 60.0


class BrokerError(Exception):
    """The broker did not complete an operation in time; the message quotes the last lines of its log."""


def format_storage(data: Path, java: Path, jars: list[Path]) -> None:
    """Format ``data`` as a new cluster; a folder that is already formatted does not change."""
    if (data / "meta.properties").exists():
        return
    data.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(_bootstrap_records(java, jars), data / "bootstrap.checkpoint")
    _write_meta(data, f"node.id=1\ncluster.id={_kafka_uuid()}")


def format_to_join(data: Path, cluster: Path, node_id: int) -> None:
    """Format ``data`` for another broker of the cluster whose first broker has its storage in ``cluster``."""
    if (data / "meta.properties").exists():
        return
    data.mkdir(parents=True, exist_ok=True)
    known = (cluster / "meta.properties").read_text(encoding="utf-8").splitlines()
    _write_meta(data, f"node.id={node_id}\n" + next(line for line in known if line.startswith("cluster.id=")))


def _write_meta(data: Path, owner: str) -> None:
    (data / "meta.properties").write_text(f"version=1\n{owner}\ndirectory.id={_kafka_uuid()}\n", encoding="utf-8")


def _bootstrap_records(java: Path, jars: list[Path]) -> Path:
    """The feature levels of a new cluster, as Kafka's StorageTool writes them.

    They depend only on the version of Kafka, so the tool (about a second of Java) runs once per lock file and not for
    every broker. Without these records a cluster uses the transaction protocol of Kafka 3.
    """
    kept = user_cache() / "kafka" / hashlib.sha256(JARS_LOCK.read_bytes()).hexdigest()[:16]
    records = kept / "bootstrap.checkpoint"
    if not records.exists():
        kept.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept) as name:
            folder = Path(name)
            properties = folder / "server.properties"
            properties.write_text(
                "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
                "listeners=PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:2\ncontroller.quorum.voters=1@127.0.0.1:2\n"
                f"log.dirs={folder / 'data'}\n",
                encoding="utf-8",
            )
            command: list[str | Path] = [java, "-cp", os.pathsep.join(map(str, jars)), "kafka.tools.StorageTool"]
            command += ["format", "--cluster-id", _kafka_uuid(), "--config", properties]
            with OwnedProcess(command, log=folder / "format.log", name="Kafka's StorageTool") as process:
                if process.wait(_TOOL_SECONDS_MAX) != 0:
                    raise BrokerError(f"Kafka's StorageTool failed:\n{process.last_lines()}")
            (folder / "data" / "bootstrap.checkpoint").replace(records)
    return records


def _kafka_uuid() -> str:
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):  # the tool would parse it as an option
            return text
