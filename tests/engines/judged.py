"""The sidecar's verdict on an engine's topics at rest, for comparison with the count of the same topics."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from testbed.checkout import python_path, streamproof
from testbed.engines.effective import Effective
from testbed.processes import OwnedProcess
from tests.engines.offline_count import Count, count, records
from validator.config.examples import EXAMPLES

SIDECAR_SECONDS_MAX: Final = 400.0


def judged(
    folder: Path, bootstrap_servers: str, given: Mapping[str, Any], effective: Effective, *, leaves_open: bool = True
) -> tuple[int, dict[str, Any]]:
    """Run ``streamproof validate --once`` with the configuration ``given``; return its status and its report.

    Windows that no event has closed stay open, since most counts leave them out (``leaves_open``).
    """
    whole = {
        **given,
        "kafka": {"bootstrap_servers": bootstrap_servers},
        "engine": {"effective": "./effective.json"},
        "state": {"path": "./state"},
        "metrics": {"port": 0},
    }
    whole.pop("faults", None)
    folder.mkdir()
    (folder / "pipeline.yaml").write_text(yaml.safe_dump(whole), encoding="utf-8")
    effective.write(folder / "effective.json")
    options = ["--leave-open"] if leaves_open else []
    command = streamproof("validate", folder / "pipeline.yaml", "--once", *options)
    with OwnedProcess(command, log=folder / "sidecar.log", environment=python_path(), folder=folder) as sidecar:
        try:
            status = sidecar.wait(SIDECAR_SECONDS_MAX)
        except TimeoutError:
            raise AssertionError(f"the sidecar did not end:\n{sidecar.last_lines()}") from None
        report = folder / "state" / "report.json"
        assert report.exists(), sidecar.last_lines()
    return status, json.loads(report.read_text(encoding="utf-8"))


def clicks(*, input_topic: str, output: str, late: str, guarantee: str, window_ms: int) -> dict[str, Any]:
    """Return the configuration of PGVal's SST on these topics, without the settings that `judged` adds."""
    given: dict[str, Any] = yaml.safe_load(EXAMPLES["clickstream"])
    given |= {"guarantee": guarantee, "timing": {"max_disorder": "300ms"}}
    given["inputs"][0]["topic"] = input_topic
    given["outputs"][0]["topic"] = output
    given["late"][0] |= {"topic": late}
    given["oracle"] |= {"size": f"{window_ms}ms"}
    return given


def assert_sidecar_agrees(
    folder: Path,
    bootstrap_servers: str,
    effective: Effective,
    *,
    input_topic: str,
    output: str,
    late: str,
    guarantee: str,
    window_ms: int,
) -> tuple[Count, dict[str, Any]]:
    """Assert that the sidecar's counts equal the topics' count in each class, and that its verdicts follow from them.

    Return the count, and the report for further assertions.
    """
    counted = count(*(records(bootstrap_servers, topic) for topic in (input_topic, output, late)), window_ms)
    given = clicks(input_topic=input_topic, output=output, late=late, guarantee=guarantee, window_ms=window_ms)
    status, report = judged(folder, bootstrap_servers, given, effective)
    contributions = report["contributions"]
    of_sidecar = {name: contributions[name] for name in ("processed", "late", "missing", "duplicate", "incorrect")}
    assert of_sidecar == {
        "processed": counted.processed,
        "late": counted.late,
        "missing": counted.missing,
        "duplicate": counted.duplicates,
        "incorrect": counted.misplaced,
    }, report["reasons"]
    wrong = counted.misplaced > 0
    broken = {
        "at_most_once": wrong or counted.duplicates > 0,
        "at_least_once": wrong or counted.missing > 0,
        "exactly_once": wrong or counted.duplicates > 0 or counted.missing > 0,
    }
    assert report["verdicts"] == {name: "fail" if is_broken else "pass" for name, is_broken in broken.items()}
    assert (report["outcome"], status) == (("fail", 1) if broken[guarantee] else ("pass", 0)), report["reasons"]
    assert report["effective_guarantee"]["effective"] == effective.guarantee
    return counted, report
