"""Pushing creates, then changes nothing, then updates what differs. It retries, and reports an error in one
sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from dashboards.command import credentials
from dashboards.grafana import ATTEMPTS, Grafana, GrafanaError, GrafanaRefusal
from dashboards.grafana_rules import uid_of
from dashboards.push import PushedItem, is_within, push
from dashboards.settings import Settings
from dashboards.site import dashboards
from tests.unit.dashboards_grafana_server import TOKEN, FakeGrafana, running
from tests.worlds import some
from validator.cli.main import main

SETTINGS = Settings()
BOARDS = {board.uid for board in dashboards(SETTINGS)}
GROUPS = {("streamproof", "streamproof-pipeline"), ("streamproof", "streamproof-sidecar")}


@pytest.fixture
def fake() -> Iterator[FakeGrafana]:
    with running() as server:
        yield server


def client(fake: FakeGrafana, token: str = TOKEN) -> tuple[Grafana, list[float]]:
    pending_for: list[float] = []
    return Grafana(fake.url, token, wait=pending_for.append), pending_for


def pushed(fake: FakeGrafana, settings: Settings = SETTINGS, *, dry: bool = False) -> list[PushedItem]:
    return list(push(client(fake)[0], settings, None, dry=dry))


def test_a_first_push_creates_everything(fake: FakeGrafana) -> None:
    steps = pushed(fake)
    assert {step.change for step in steps} == {"created"}
    assert set(fake.dashboards) == BOARDS
    assert set(fake.groups) == GROUPS
    assert all(kept["meta"]["folderUid"] == "streamproof" for kept in fake.dashboards.values())
    rules = [rule for group in fake.groups.values() for rule in group["rules"]]
    assert {rule["orgID"] for rule in rules} == {7}
    assert {rule["data"][0]["datasourceUid"] for rule in rules} == {"prom"}
    assert all(
        headers["X-Disable-Provenance"] == "true"
        for (method, _), headers in zip(fake.requests, fake.headers, strict=True)
        if method == "PUT"
    )


def test_a_second_push_changes_nothing(fake: FakeGrafana) -> None:
    pushed(fake)
    before = len(fake.changes())
    assert {step.change for step in pushed(fake)} == {"unchanged"}
    assert len(fake.changes()) == before


def test_a_grafana_without_keep_firing_is_reported_and_not_a_difference(
    fake: FakeGrafana, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not any(step.note for step in [*pushed(fake), *pushed(fake)])
    fake.keeps_alerts = False
    fake.groups.clear()
    assert [step.change for step in pushed(fake) if step.note] == ["created"] * 2
    assert [step.change for step in pushed(fake) if step.note] == ["unchanged"] * 2
    monkeypatch.setenv("GRAFANA_TOKEN", TOKEN)
    assert main(["dashboards", "push", "--grafana", fake.url]) == 0
    said = capsys.readouterr().out
    assert said.count("note: ") == 1
    last = said.splitlines()[-1]
    assert last.startswith("note: ")
    assert "keep_firing_for" in last
    assert "12.0" in last


def test_an_upgraded_grafana_gets_the_unsupported_fields(fake: FakeGrafana) -> None:
    fake.keeps_alerts = False
    pushed(fake)
    for group in fake.groups.values():
        for rule in group["rules"]:
            rule["keep_firing_for"] = "0s"
    fake.keeps_alerts = True
    assert {step.change for step in pushed(fake) if step.what.startswith("alert")} == {"updated"}
    assert {step.change for step in pushed(fake)} == {"unchanged"}


def test_a_newer_schema_of_grafana_is_not_a_difference(fake: FakeGrafana) -> None:
    pushed(fake)
    for kept in fake.dashboards.values():
        kept["dashboard"]["schemaVersion"] += 2
    assert {step.change for step in pushed(fake)} == {"unchanged"}


def test_manual_edits_are_overwritten_and_the_rest_left(fake: FakeGrafana) -> None:
    pushed(fake)
    fake.dashboards["streamproof-faults"]["dashboard"]["panels"].pop()
    fake.groups["streamproof", "streamproof-sidecar"]["rules"][0]["for"] = "9h"
    fake.dashboards["streamproof-overview"]["meta"]["folderUid"] = "elsewhere"
    changed = {step.what for step in pushed(fake) if step.change == "updated"}
    assert changed == {
        "dashboard streamproof-faults",
        "dashboard streamproof-overview",
        "alert rules streamproof-sidecar",
    }
    assert {step.change for step in pushed(fake)} == {"unchanged"}


def test_another_objective_updates_only_what_contains_it(fake: FakeGrafana) -> None:
    pushed(fake)
    changed = {step.what for step in pushed(fake, Settings(0.99)) if step.change != "unchanged"}
    assert changed == {"alert rules streamproof-pipeline", "dashboard streamproof-overview"}


def test_an_obsolete_rule_of_a_group_is_removed(fake: FakeGrafana) -> None:
    pushed(fake)
    group = fake.groups["streamproof", "streamproof-pipeline"]
    group["rules"].append({**group["rules"][0], "uid": "old", "title": "old"})
    pushed(fake)
    assert "old" not in {rule["uid"] for rule in fake.groups["streamproof", "streamproof-pipeline"]["rules"]}


@pytest.mark.parametrize("dry", [False, True])
@pytest.mark.parametrize(
    ("changed", "said"),
    [("dashboards", "dashboard streamproof-overview"), ("groups", "alert rules streamproof-pipeline")],
)
def test_provisioned_items_are_not_overwritten(fake: FakeGrafana, changed: str, said: str, dry: bool) -> None:
    pushed(fake)
    fake.as_from_files()
    assert {step.change for step in pushed(fake)} == {"unchanged"}
    if changed == "dashboards":
        fake.dashboards["streamproof-overview"]["dashboard"]["title"] = "old"
    else:
        fake.groups["streamproof", "streamproof-pipeline"]["rules"][0]["for"] = "9h"
    before = len(fake.changes())
    with pytest.raises(GrafanaRefusal, match=f"{said} .*provisioning"):
        pushed(fake, dry=dry)
    assert len(fake.changes()) == before


def test_grafana_refuses_changes_of_provisioned_items(fake: FakeGrafana) -> None:
    pushed(fake)
    fake.as_from_files()
    grafana = client(fake)[0]
    with pytest.raises(GrafanaRefusal, match=r"refused with 400 \(Cannot save provisioned dashboard\)"):
        grafana.save_dashboard(dashboards(SETTINGS)[0].build(), "streamproof", "")
    with pytest.raises(GrafanaRefusal, match=r"409 \(cannot update with provided provenance"):
        grafana.save_rule_group("streamproof", "streamproof-sidecar", {"rules": []})


def test_a_dry_run_sends_nothing_but_get(fake: FakeGrafana) -> None:
    steps = pushed(fake, dry=True)
    assert {step.change for step in steps} == {"created"}
    assert fake.changes() == []
    assert len(steps) == 1 + len(BOARDS) + len(GROUPS)


@pytest.mark.parametrize("failure", [429, 500, 502, 503, 504, "drop"])
def test_transient_errors_are_retried(fake: FakeGrafana, failure: int | str) -> None:
    fake.failures = [failure, failure]
    grafana, pending_for = client(fake)
    assert grafana.organization() == 7
    assert pending_for == [0.5, 1.0]


def test_a_create_call_whose_response_was_lost_is_repeated_without_an_error(fake: FakeGrafana) -> None:
    grafana = client(fake)[0]
    fake.failures = ["lose"]
    grafana.create_folder("streamproof", "streamproof")
    assert list(fake.folders) == ["streamproof"]
    fake.failures = [412, 404]
    with pytest.raises(GrafanaRefusal, match="refused with 412"):
        grafana.create_folder("other", "other")


def test_retries_are_limited(fake: FakeGrafana) -> None:
    fake.failures = [503] * 10
    grafana, pending_for = client(fake)
    with pytest.raises(GrafanaError, match=r"503 \(no message for this\), 4 times") as error:
        grafana.organization()
    assert error.value.exit_status == 3
    assert (len(fake.requests), len(pending_for)) == (ATTEMPTS, ATTEMPTS - 1)


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (400, r"Grafana refused with 400 \(no message for this\)"),
        (401, "check GRAFANA_TOKEN"),
        (403, "GET /grafana/api/org; .* role Admin"),
        (302, "/login"),
        ("<html>a message from a proxy</html>", "not from a Grafana; check the address"),
    ],
)
def test_a_refusal_is_a_sentence_and_final(fake: FakeGrafana, failure: int | str, said: str) -> None:
    fake.failures = [failure]
    grafana, pending_for = client(fake)
    with pytest.raises(GrafanaRefusal, match=said) as error:
        grafana.organization()
    assert (error.value.exit_status, pending_for, len(fake.requests)) == (2, [], 1)
    assert "\n" not in str(error.value)


def test_an_empty_204_is_an_answer_and_the_call_is_not_repeated(fake: FakeGrafana) -> None:
    fake.failures = [204]
    grafana, pending_for = client(fake)
    grafana.update_annotation(1, {"text": "x"})
    assert (len(fake.requests), pending_for) == (1, [])


@pytest.mark.parametrize("answer", some(["{}", "[]", "null", '"x"', "[1]", 204]))
@pytest.mark.parametrize("there", [False, True], ids=["empty", "pushed before"])
def test_an_answer_of_another_form_is_reported_as_not_grafana(
    fake: FakeGrafana, there: bool, answer: str | int
) -> None:
    if there:
        pushed(fake)
    asked = len(fake.requests)
    pushed(fake, dry=True)
    for number, (_, path) in enumerate(fake.requests[asked:]):
        if path == "/api/datasources" and answer == "[]":
            continue  # an empty list has another message
        if path == "/api/folders/streamproof" and answer == "{}":
            continue  # its content is not read
        before = len(fake.requests)
        fake.spoiled = {before + number: answer}
        with pytest.raises(GrafanaRefusal, match=r"not from a Grafana; .*address"):
            pushed(fake, dry=True)
        assert len(fake.requests) == before + number + 1


def test_a_folder_of_another_uid_that_has_the_name_is_named(fake: FakeGrafana) -> None:
    fake.folders["abc"] = {"uid": "abc", "title": "streamproof"}
    with pytest.raises(GrafanaRefusal, match=r"uid abc .* streamproof"):
        pushed(fake)
    fake.folders["abc"]["title"] = "ours"
    assert {step.change for step in pushed(fake)} == {"created"}


def test_a_grafana_that_does_not_answer_is_retried_and_then_reported(
    fake: FakeGrafana, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dashboards.grafana.TIMEOUT_SECONDS", 0.2)
    fake.failures = ["hang"]
    grafana, pending_for = client(fake)
    assert grafana.organization() == 7
    assert pending_for == [0.5]
    fake.failures = ["hang"] * ATTEMPTS
    with pytest.raises(GrafanaError, match=r"within 0.2 s, 4 times"):
        grafana.organization()


def test_an_unreachable_grafana_is_reported_in_one_sentence() -> None:
    with running() as gone:
        pass
    with pytest.raises(GrafanaError, match=r"no connection \(Connection refused\), 4 times"):
        client(gone)[0].organization()


@pytest.mark.parametrize("url", ["ftp://x", "http://", "", "http://x:99999", "http://[x"])
def test_an_invalid_address_is_refused(url: str) -> None:
    with pytest.raises(GrafanaRefusal, match="not an address"):
        Grafana(url, TOKEN)


@pytest.mark.parametrize(
    "url",
    [
        "http://admin:s3cret@host:3000",
        "admin:s3cret@host",
        "http://a:p#s3cret@host",
        "http://host/?s3cret",
        "http://x/#s3cret",
    ],
)
@pytest.mark.parametrize("action", [["build"], ["push"]])
def test_an_address_with_extra_parts_is_refused_and_not_printed(
    url: str, action: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GRAFANA_TOKEN", TOKEN)
    with pytest.raises(GrafanaRefusal, match=r"^--grafana: .*address"):
        Grafana(url, TOKEN)
    out = ["--out", str(tmp_path / "out")] if action == ["build"] else []
    assert main(["dashboards", *action, "--grafana", url, *out]) == 2
    said = "".join(capsys.readouterr())
    assert "--grafana: " in said
    assert "GRAFANA_TOKEN" in said
    assert "s3cret" not in said
    assert not (tmp_path / "out").exists()


def test_the_data_source_must_be_unambiguous(fake: FakeGrafana) -> None:
    fake.datasources = [{"uid": uid, "type": "prometheus"} for uid in ("a", "b")] + [{"uid": "l", "type": "loki"}]
    grafana = client(fake)[0]
    with pytest.raises(GrafanaRefusal, match=r" 2 Prometheus .*--datasource: a, b"):
        list(push(grafana, SETTINGS, None, dry=True))
    with pytest.raises(GrafanaRefusal, match=r"--datasource: l .*it has a, b"):
        list(push(grafana, SETTINGS, "l", dry=True))
    list(push(grafana, SETTINGS, "b", dry=False))
    rules = fake.groups["streamproof", "streamproof-sidecar"]["rules"]
    assert {rule["data"][0]["model"]["datasource"]["uid"] for rule in rules} == {"b"}
    fake.datasources = []
    with pytest.raises(GrafanaRefusal, match=" 0 Prometheus "):
        list(push(grafana, SETTINGS, None, dry=True))


def test_the_command_pushes_and_lists_its_changes(
    fake: FakeGrafana, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GRAFANA_TOKEN", TOKEN)
    assert main(["dashboards", "push", "--grafana", fake.url, "--dry-run"]) == 0
    assert "dashboard streamproof-faults: would be created\n" in capsys.readouterr().out
    assert main(["dashboards", "push", "--grafana", fake.url]) == 0
    assert "dashboard streamproof-faults: created\n" in capsys.readouterr().out
    assert main(["dashboards", "push", "--grafana", fake.url, "--dry-run"]) == 0
    assert "dashboard streamproof-faults: unchanged\n" in capsys.readouterr().out
    monkeypatch.setenv("GRAFANA_TOKEN", "wrong")
    assert main(["dashboards", "push", "--grafana", fake.url]) == 2
    assert re.fullmatch(rf"streamproof: {fake.url}: .* GRAFANA_TOKEN, .* GRAFANA_PASSWORD\.\n", capsys.readouterr().err)


def test_credentials_come_from_the_environment() -> None:
    assert credentials({"GRAFANA_TOKEN": " t\n", "GRAFANA_USER": "u", "GRAFANA_PASSWORD": "p"}) == "t"
    assert credentials({"GRAFANA_USER": "u", "GRAFANA_PASSWORD": "p"}) == ("u", "p")
    with pytest.raises(GrafanaRefusal, match="set GRAFANA_TOKEN"):
        credentials({"GRAFANA_USER": "u"})
    with pytest.raises(GrafanaRefusal, match=r"^GRAFANA_TOKEN: .*token"):
        credentials({"GRAFANA_TOKEN": "two\nlines"})


def test_additional_fields_are_not_a_difference_but_fewer_or_longer_values_are() -> None:
    assert is_within({"a": [1, {"b": 2}]}, {"a": [1, {"b": 2, "id": 3}], "version": 4})
    assert not is_within({"a": [1]}, {"a": [1, 2]})
    assert not is_within({"a": 1}, {})
    assert not is_within({"a": "1"}, {"a": ["1"]})


def test_a_pushed_rule_has_the_uid_of_the_files(fake: FakeGrafana) -> None:
    from dashboards.alerts import alerts

    pushed(fake)
    there = {rule["uid"] for group in fake.groups.values() for rule in group["rules"]}
    assert there == {uid_of(alert) for alert in alerts(SETTINGS)}
