"""Faults as Grafana annotations: each is written once and updated while the fault lasts, whatever request is lost."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from dashboards.fault_annotations import PortAccess, annotation, push_faults
from dashboards.grafana import Grafana, GrafanaError, GrafanaRefusal
from dashboards.queries import PIPELINE_TAG, PUSHED_FAULTS, TAG_MOST
from testbed.certificates import Authority
from tests.unit.dashboards_grafana_server import TOKEN, FakeGrafana, running
from tests.unit.publish_snapshots import NOON_US, SECOND, broken, clean, config
from validator.cli.main import main
from validator.config.model import Metrics
from validator.model.snapshot import Snapshot
from validator.publish.publisher import Publisher
from validator.publish.report import build, write

INJECTED_MS = NOON_US // 1000 - 30_000
TAGS = ["fault:f-1", "pipeline:clickstream", "streamproof-fault"]


@pytest.fixture
def fake() -> Iterator[FakeGrafana]:
    with running() as server:
        yield server


def healed() -> Snapshot:
    return replace(broken(), faults=(replace(broken().faults[0], healed_us=NOON_US - 10 * SECOND),))


def pushed(fake: FakeGrafana, source: str, *, dry: bool = False) -> list[str]:
    grafana = Grafana(fake.url, TOKEN, wait=lambda _: None)
    return [step.change for step in push_faults(grafana, source, dry=dry)]


def test_a_fault_is_written_once_and_gets_its_end_later(fake: FakeGrafana, tmp_path: Path) -> None:
    write(tmp_path, broken())
    assert pushed(fake, str(tmp_path), dry=True) == ["created"]
    assert fake.changes() == []
    assert pushed(fake, str(tmp_path)) == ["created"]
    assert pushed(fake, str(tmp_path)) == ["unchanged"]
    assert fake.changes() == [("POST", "/api/annotations")]
    kept = fake.annotations[1]
    assert (kept["time"], kept["timeEnd"], kept["tags"]) == (INJECTED_MS, INJECTED_MS, TAGS)
    assert "kill-one-worker (process_kill on taskmanager-1), from 2026-01-31 11:59:30, not healed" in kept["text"]
    write(tmp_path, healed())
    assert pushed(fake, str(tmp_path)) == ["updated"]
    assert pushed(fake, str(tmp_path)) == ["unchanged"]
    assert fake.annotations[1]["timeEnd"] == NOON_US // 1000 - 10_000
    assert len(fake.annotations) == 1


def test_a_fault_of_another_pipeline_is_not_taken_for_this_one(fake: FakeGrafana, tmp_path: Path) -> None:
    write(tmp_path, broken())
    pushed(fake, str(tmp_path))
    write(tmp_path, replace(broken(), pipeline="orders & more"))
    assert pushed(fake, str(tmp_path)) == ["created"]
    assert pushed(fake, str(tmp_path)) == ["unchanged"]
    assert len(fake.annotations) == 2


def test_a_lost_response_causes_no_second_annotation(fake: FakeGrafana, tmp_path: Path) -> None:
    write(tmp_path, broken())
    grafana = Grafana(fake.url, TOKEN, wait=lambda _: None)
    body = annotation("clickstream", build(broken())["faults"][0])
    assert grafana.annotations(body["tags"]) == []

    answer = fake.answer

    def losing(method: str, path: str, sent: object) -> tuple[int, object]:
        if method == "POST" and not fake.annotations:
            answer(method, path, sent)
            return 502, {"message": "the way back broke"}
        return answer(method, path, sent)

    fake.answer = losing  # type: ignore[method-assign]
    assert pushed(fake, str(tmp_path)) == ["created"]
    assert len(fake.annotations) == 1
    assert [method for method, _ in fake.changes()] == ["POST"]


def test_names_are_text_and_long_ones_still_fit_a_tag() -> None:
    fault = {**build(broken())["faults"][0], "id": "x" * 300, "target": "<script>"}
    body = annotation("p" * 300, fault)
    assert "<script>" not in body["text"]
    assert "&lt;script&gt;" in body["text"]
    assert all(len(part) <= TAG_MOST for tag in body["tags"] for part in tag.split(":"))
    assert body["tags"] == annotation("p" * 300, fault)["tags"]
    assert body["tags"] != annotation("p" * 299, fault)["tags"]


def test_a_dashboard_shows_the_faults_of_a_pipeline_with_a_long_name() -> None:
    fault = build(broken())["faults"][0]
    [found] = re.findall("/(.*)/", PIPELINE_TAG.build()["regex"])
    for name in ("p" * 200, "short", "of\ntwo lines"):
        cut = re.search(found, name)
        assert cut is not None
        asked = {tag.replace("$pipeline_tag", cut[1]) for tag in PUSHED_FAULTS.tags}
        assert asked <= set(annotation(name, fault)["tags"])


def test_a_planned_fault_that_was_never_injected_is_not_written(fake: FakeGrafana, tmp_path: Path) -> None:
    write(tmp_path, replace(broken(), faults=(replace(broken().faults[0], injected_us=None),)))
    assert pushed(fake, str(tmp_path)) == []


def test_the_command_reads_a_running_sidecar(
    fake: FakeGrafana, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GRAFANA_TOKEN", TOKEN)
    publisher = Publisher(config(tmp_path), tmp_path)
    url = publisher.start().url
    try:
        assert main(["dashboards", "push", "--grafana", fake.url, "--faults", url]) == 2
        assert "(No batch was committed yet.)" in capsys.readouterr().err
        publisher.publish(broken())
        assert main(["dashboards", "push", "--grafana", fake.url, "--faults", url]) == 0
    finally:
        publisher.stop()
    said = capsys.readouterr().out
    assert "annotation kill-one-worker of clickstream at 2026-01-31 11:59:30: created\n" in said
    assert list(fake.annotations) == [1]


class Secured(NamedTuple):
    url: str
    ca: Path
    token: Path


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    """A sidecar's HTTP port with a certificate and a token."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl command on the PATH")
    authority = Authority(tmp_path / "tls")
    made = authority.issue("sidecar", address="127.0.0.1")
    token = tmp_path / "token"
    token.write_text("a-token-of-24-characters\n")
    metrics = {
        "port": 0,
        "tls_server_config": {"cert_file": str(made.certificate), "key_file": str(made.key)},
        "authorization": {"credentials_file": str(token)},
    }
    state = tmp_path / "state"
    state.mkdir()
    publisher = Publisher(config(state).model_copy(update={"metrics": Metrics.model_validate(metrics)}), state)
    publisher.publish(broken())
    try:
        yield Secured(publisher.start().url, authority.certificate, token)
    finally:
        publisher.stop()


def test_the_command_reads_a_sidecar_with_certificate_and_token(
    fake: FakeGrafana,
    secured: Secured,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("GRAFANA_TOKEN", TOKEN)
    # `requests` replaces a plain Authorization header by the entry of this file.
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login somebody password something\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    command = ["dashboards", "push", "--grafana", fake.url, "--faults", secured.url]
    assert main([*command, "--ca-file", str(secured.ca), "--token-file", str(secured.token)]) == 0
    said = capsys.readouterr()
    assert "annotation kill-one-worker of clickstream at 2026-01-31 11:59:30: created\n" in said.out
    assert secured.token.read_text().strip() not in said.out + said.err


@pytest.mark.parametrize(
    ("given", "refusal"),
    [
        ((), r"https://\S+ is not trusted \(.+\); give .+ with --ca-file"),
        (("other", "token"), r"https://\S+ is not trusted"),
        (("absent", "token"), r"^--ca-file: \S+ cannot be used \(No such file or directory\)"),
        (("token", "token"), r"^--ca-file: \S+ cannot be used"),
        (("ca",), r"without its token; give .+ with --token-file\.$"),
        (("ca", "wrong"), r"without its token; check --token-file\.$"),
        (("ca", "absent"), r"^--token-file: \S+ cannot be read \(No such file or directory\)\.$"),
        (("ca", "two"), r"^--token-file: \S+ does not contain a token"),
    ],
)
def test_an_unreadable_sidecar_is_reported_with_the_option(
    fake: FakeGrafana, secured: Secured, tmp_path: Path, given: tuple[str, ...], refusal: str
) -> None:
    (tmp_path / "wrong").write_text("a-token-of-another-port")
    (tmp_path / "two").write_text("two words")
    other = Authority(tmp_path / "other")
    files = {name: tmp_path / name for name in ("absent", "wrong", "two")}
    files |= {"ca": secured.ca, "token": secured.token, "other": other.certificate}
    access = PortAccess(*(files[name] for name in given))
    with pytest.raises(GrafanaRefusal, match=refusal) as error:
        list(push_faults(Grafana(fake.url, TOKEN), secured.url, dry=False, access=access))
    assert fake.changes() == []
    assert secured.token.read_text().strip() not in str(error.value)


def test_an_invalid_source_is_reported_in_one_sentence(fake: FakeGrafana, tmp_path: Path) -> None:
    with pytest.raises(GrafanaRefusal, match=r"report.json \(No such file"):
        pushed(fake, str(tmp_path))
    (tmp_path / "report.json").write_text("{")
    with pytest.raises(GrafanaRefusal, match="not JSON"):
        pushed(fake, str(tmp_path))
    for content in ('{"schema": 1}', '{"schema": 1, "pipeline": "p", "faults": [{}]}', '{"schema": 1, "faults": 1}'):
        (tmp_path / "report.json").write_text(content)
        with pytest.raises(GrafanaRefusal, match=r"this version \(.*\)\.$"):
            pushed(fake, str(tmp_path))
    with running() as gone:
        address = gone.url
    with pytest.raises(GrafanaError, match="no sidecar answers at") as error:
        pushed(fake, address)
    assert error.value.exit_status == 3
    write(tmp_path, clean())
    assert pushed(fake, str(tmp_path)) == []
