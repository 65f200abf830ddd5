"""Runs that are stopped at an awkward moment: the status claims neither more nor less than the state shows."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from testbed.broker import EmbeddedBroker
from tests.integration.sidecar_fixtures import Pipeline, answer, click, counts, read_report
from validator.stream import batch
from validator.stream.failures import CannotVerify
from validator.stream.sidecar import Sidecar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(900)


def test_a_stopped_once_never_passes(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline.create()
    pipeline.clicks(click(1, 1), click(2, 11), click(3, 21))
    pipeline.answers(answer([1]), answer([2], 1))
    said: list[str] = []
    sidecar = Sidecar(pipeline.config(), once=True, say=said.append, session=pipeline.spark)
    monkeypatch.setattr(batch, "reach", lambda name: sidecar.stop() if name == "after_publishing" else None)

    assert sidecar.run() == 130

    assert said[-1].startswith("interrupted ")
    report = read_report(pipeline.state())
    assert report is not None
    # So far nothing is violated. At the end of the run the third click has no result.
    assert (report["outcome"], counts(report)) == ("unknown", {"expected": 3, "processed": 2, "pending": 1})
    monkeypatch.undo()
    assert pipeline.once().status == 1


@pytest.mark.full
def test_a_sidecar_stopped_before_its_first_batch_reports_its_state(pipeline: Pipeline) -> None:
    pipeline.create()
    pipeline.clicks(click(1, 1), click(2, 2))
    pipeline.answers(answer([1]))
    assert pipeline.once().status == 1
    stopped = Sidecar(pipeline.config(), say=lambda _: None, session=pipeline.spark)
    stopped.stop()
    assert stopped.run() == 1

    # The same while the sidecar waits for deleted topics: the report keeps what was read.
    for topic in (pipeline.input, pipeline.output, pipeline.late):
        pipeline.broker.delete_topic(topic)
    with pipeline.live() as live:
        report = live.until(lambda r: len(r["waiting_for"]) == 3)
        assert counts(report) == {"expected": 2, "processed": 1, "missing": 1}
        assert report["cells"]["seen"] == 1


def test_a_full_disk_is_reported_with_its_state(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline.create()
    pipeline.clicks(click(1, 1))
    pipeline.answers(answer([1]))

    def reach(name: str) -> None:
        if name == "before_rest":
            raise OSError(errno.ENOSPC, "No space left on device", str(pipeline.state() / "facts"))

    monkeypatch.setattr(batch, "reach", reach)
    with pytest.raises(CannotVerify) as refused:
        pipeline.once()
    assert re.fullmatch(
        rf".* the state {pipeline.state()} \([\d,]+ bytes .* [\d,]+ bytes\): .* start the sidecar again; .*",
        str(refused.value),
    )
    monkeypatch.undo()
    assert pipeline.once().status == 0


@pytest.mark.full
def test_a_topic_deleted_while_it_is_read_is_reported_in_one_sentence(pipeline: Pipeline) -> None:
    pipeline.create()
    pipeline.clicks(click(1, 1))
    pipeline.answers(answer([1]))
    with pipeline.live() as live:
        live.until(lambda report: report["contributions"]["processed"] == 1)
        pipeline.broker.delete_topic(pipeline.output)
        live.until_said(f"topic {pipeline.output} does not exist: waiting for it")
        ended = [line for line in live.said if line.startswith("the query restarts")]
        gone = f"the query restarts after the committed batches: topic {pipeline.output} was deleted while it was read"
        assert set(ended) <= {gone}


@pytest.mark.full
def test_a_state_deleted_while_the_sidecar_runs_is_named(pipeline: Pipeline) -> None:
    # Files that the sidecar writes meanwhile may remain.
    with pytest.raises(CannotVerify) as refused:
        _live_until_it_ends(pipeline, lambda: shutil.rmtree(pipeline.state(), ignore_errors=True))
    assert f"state folder {pipeline.state()} was deleted" in str(refused.value)


@pytest.mark.full
@pytest.mark.skipif(os.geteuid() != 0 or sys.platform != "linux", reason="a small file system needs root on Linux")
def test_a_filling_disk_is_reported_with_its_free_bytes(pipeline: Pipeline, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()

    def fill() -> None:
        with suppress(OSError), (disk / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(bytes(512))

    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", disk], check=True)
    try:
        with pytest.raises(CannotVerify) as refused:
            _live_until_it_ends(pipeline, fill, state="disk/state")
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)
    assert f"for the state {disk}/state (" in str(refused.value)
    assert " bytes are free " in str(refused.value)


@pytest.mark.full
@pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/sys/fs/ext4").is_dir() or shutil.which("mkfs.ext4") is None,
    reason="a file system of its own needs root, ext4 and mkfs.ext4",
)
def test_a_disk_that_becomes_read_only_is_reported_and_the_state_continues(pipeline: Pipeline, tmp_path: Path) -> None:
    disk, image = tmp_path / "disk", tmp_path / "image"
    disk.mkdir()
    with image.open("wb") as made:
        made.truncate(64 << 20)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)

    def mount() -> Path:
        subprocess.run(["mount", "-o", "loop,errors=remount-ro,nodelalloc", image, disk], check=True)
        device = subprocess.run(["findmnt", "-no", "SOURCE", disk], check=True, capture_output=True, text=True).stdout
        return Path("/sys/fs/ext4") / Path(device.strip()).name

    def unmount() -> None:
        subprocess.run(["umount", disk], check=True)

    def fail() -> None:
        # Data that was never synced is lost when the disk fails, so the state is synced first.
        subprocess.run(["sync", "--file-system", disk], check=True)
        # The kernel makes the file system read-only at an error, as on a disk that fails.
        (kernel / "trigger_fs_error").write_text("a test", encoding="ascii")

    kernel = mount()
    try:
        with pytest.raises(CannotVerify) as refused:
            _live_until_it_ends(pipeline, fail, "disk/state")
    finally:
        unmount()
    assert f"{disk}/state is read-only" in str(refused.value)
    mount()
    try:
        assert pipeline.once(state="disk/state").counts() == {"expected": 2, "processed": 1, "missing": 1}
    finally:
        unmount()


def _live_until_it_ends(pipeline: Pipeline, act: Callable[[], object], state: str = "state") -> None:
    """Run a live sidecar, call ``act`` once it has judged an event, and wait until the sidecar ends with an error."""
    pipeline.create()
    pipeline.clicks(click(1, 1))
    pipeline.answers(answer([1]))
    with pipeline.live(state=state) as live:
        live.until(lambda report: report["contributions"]["processed"] == 1)
        act()
        pipeline.clicks(click(2, 11))
        assert live.ended.wait(60), live.said
        # Only the last line, which is the error, asks the operator to restart.
        assert not any("start the sidecar again" in line for line in live.said)


@pytest.mark.full
def test_a_stop_does_not_wait_for_unreachable_brokers(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's Kafka client waits a minute for brokers. After SIGTERM the sidecar must end within 30 s."""
    with EmbeddedBroker() as broker:
        pipeline = Pipeline("silent", broker.bootstrap_servers, tmp_path, broker, spark)
        pipeline.create()
        pipeline.clicks(click(1, 1), click(2, 11))
        pipeline.answers(answer([1]))
        with pipeline.live() as live:
            live.until(lambda r: counts(r) == {"expected": 2, "processed": 1, "pending": 1})
            os.kill(broker.process.pid, signal.SIGSTOP)
            try:
                live.sidecar.stop()
                assert live.ended.wait(45), "it waits for the brokers"
            finally:
                os.kill(broker.process.pid, signal.SIGCONT)
        assert live.status == 0
