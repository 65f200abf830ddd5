"""Ids and keys of records appear in published data only in the form that the configuration sets."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path

import pytest

from tests.unit.publish_snapshots import NOON_US, broken, config, violation
from validator.config.model import Publish
from validator.publish import html, junit, text
from validator.publish.publisher import Publisher
from validator.publish.redaction import HIDDEN, SECRET_FILE, hashed, secret_of
from validator.publish.report import records_of

pytestmark = pytest.mark.unit

ID, KEY = "planted-id", "planted-key"
ROUTES = ("/", "/metrics", "/report.json", "/violations.json", "/history.json", "/partitions.json", "/readyz")


def published(state: Path, rules: Publish) -> str:
    """All data that a run with one missing and one duplicate violation publishes."""
    lost = replace(violation("v-1", "missing", NOON_US, key=KEY), ids=(ID,))
    again = replace(violation("v-2", "duplicate", NOON_US, key=KEY), ids=(ID, ID))
    publisher = Publisher(config(state).model_copy(update={"publish": rules}), state)
    report = publisher.publish(replace(broken(), violations_latest=(lost, again)))
    violations = records_of(json.loads((state / "violations.json").read_text()))
    said = [text.render(report, violations), html.render(report, violations), junit.render(report, violations)]
    said += [text.summary(report, violations, str(state))]
    connection = HTTPConnection("127.0.0.1", publisher.start().port, timeout=10)
    for path in ROUTES:
        connection.request("GET", path, headers={"Accept": "application/openmetrics-text"})
        said.append(connection.getresponse().read().decode())
    connection.request("GET", "/events")
    events = connection.getresponse()
    while b'"findings"' not in (line := events.readline()):
        said.append(line.decode())
    said.append(line.decode())
    publisher.stop()
    files = [path.read_text() for path in state.iterdir() if path.name != SECRET_FILE]
    return "\n".join([*said, *files])


def test_plain_ids_and_keys_are_published_unless_the_configuration_says_otherwise(tmp_path: Path) -> None:
    said = published(tmp_path, Publish())
    assert ID in said
    assert KEY in said
    assert not (tmp_path / SECRET_FILE).exists()


def test_hashed_ids_and_keys_stay_comparable_and_are_published_nowhere_plain(tmp_path: Path) -> None:
    said = published(tmp_path, Publish(ids="hashed", keys="hashed"))
    assert ID not in said
    assert KEY not in said
    secret = secret_of(tmp_path)
    assert f"streamproof explain STATE --id {hashed(secret, ID)}" in said
    lost, again = sorted(json.loads((tmp_path / "violations.json").read_text())["violations"], key=lambda v: v["id"])
    assert (lost["ids"], again["ids"]) == ([hashed(secret, ID)], [hashed(secret, ID)] * 2)
    assert lost["key"] == again["key"] == hashed(secret, KEY)
    assert (lost["id"], again["id"]) == ("v-1", "v-2")
    assert stat.S_IMODE((tmp_path / SECRET_FILE).stat().st_mode) == 0o600
    assert hashed(secret_of(tmp_path), ID) == hashed(secret, ID)
    other = tmp_path / "other"
    other.mkdir()
    assert hashed(secret_of(other), ID) != hashed(secret, ID)


def test_hidden_ids_and_keys_are_published_in_no_form(tmp_path: Path) -> None:
    said = published(tmp_path, Publish(ids="hidden", keys="hidden"))
    assert ID not in said
    assert KEY not in said
    assert "hashed:" not in said
    [first, _] = json.loads((tmp_path / "violations.json").read_text())["violations"]
    assert (first["ids"], first["key"]) == ([], HIDDEN)
    assert "keys are hidden" in said


def test_plain_ids_of_an_earlier_process_are_not_shown_again(tmp_path: Path) -> None:
    published(tmp_path, Publish())
    hiding = Publisher(config(tmp_path).model_copy(update={"publish": Publish(ids="hidden")}), tmp_path)
    connection = HTTPConnection("127.0.0.1", hiding.start().port, timeout=10)
    connection.request("GET", "/violations.json")
    answer = connection.getresponse()
    assert (answer.status, ID in answer.read().decode()) == (503, False)
    connection.close()
    hiding.stop()
