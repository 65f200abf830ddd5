"""The client of the schema registry, against a registry on a port of this process."""

from __future__ import annotations

import json
import os
import ssl
import struct
import threading
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from testbed.certificates import Authority
from testbed.registry_server import RegistryServer
from testbed.registry_stub import RegistryStub
from validator.config.registry import SchemaRegistry
from validator.model.schemas import RegisteredSchema
from validator.settings.formats.avro import AvroReader
from validator.settings.formats.protobuf import ProtobufReader
from validator.stream import registry as product
from validator.stream.registry import FILE, Registry, RegistrySilent, RegistryStopped


@pytest.fixture
def stub() -> Iterator[RegistryStub]:
    stub = RegistryStub()
    stub.add(1, '"long"')
    yield stub
    stub.close()


@pytest.fixture(autouse=True)
def prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product, "_RETRY_SECONDS", 0.05)
    monkeypatch.setattr(product, "_ABSENT_AFTER_SECONDS", 0.2)


def client(stub: RegistryStub, state: Path | None = None, **settings: Any) -> tuple[Registry, list[str]]:
    said: list[str] = []
    given = {"url": stub.url, **settings}
    made = Registry(SchemaRegistry.model_validate(given), state, said.append, threading.Event(), wait_seconds=0.3)
    return made, said


def test_a_schema_is_read_once_with_its_references_and_kept(stub: RegistryStub, tmp_path: Path) -> None:
    def refer(*subjects: str) -> dict[str, Any]:
        return {"references": [{"name": f"a.{one}", "subject": one, "version": 1} for one in subjects]}

    stub.add(5, "order", **refer("money", "item"))
    stub.subjects = {
        "item": {"schema": "item", **refer("money")}, "money": {"schema": "money"}
    }  # fmt: skip
    found, _ = client(stub, tmp_path)
    found.look_up([1, 5])
    found.look_up([5])
    order = RegisteredSchema("AVRO", "order", (("a.money", "money"), ("a.item", "item")))
    assert found.schemas == {1: RegisteredSchema("AVRO", '"long"'), 5: order}
    assert stub.asked.count("/schemas/ids/5") == 1
    stub.is_away = True
    assert client(stub, tmp_path)[0].schemas == found.schemas, "the state has them"
    other, _ = client(stub, tmp_path, url=[stub.url, "http://127.0.0.1:1"])
    assert other.schemas == {}, "ids of another registry mean other schemas"
    for damaged in ("{", "[]", json.dumps({"url": [stub.url], "schemas": [[1]]})):
        (tmp_path / FILE).write_text(damaged)
        assert client(stub, tmp_path)[0].schemas == {}


def test_an_absent_schema_is_absent_only_if_the_registry_says_so(stub: RegistryStub) -> None:
    found, said = client(stub)
    found.look_up([7, 1, *range(100, 108)])
    assert found.schemas == {1: RegisteredSchema("AVRO", '"long"'), **dict.fromkeys([7, *range(100, 108)])}
    assert said == [
        "the schema registry does not have schemas 100, 101, 102, 103, 104 and 4 more: such records are undecodable"
    ]
    found, said = client(stub, url=f"{stub.url}/elsewhere")
    with pytest.raises(RegistrySilent, match="answers with status 404: the address may need a path"):
        found.look_up([7])
    assert found.schemas == {}


def test_the_client_waits_for_an_answer(stub: RegistryStub) -> None:
    said: list[str] = []
    noted = threading.Event()
    settings = SchemaRegistry.model_validate({"url": stub.url})
    found = Registry(settings, None, said.append, threading.Event(), noted.set)
    stub.is_away = True
    waiting = threading.Thread(target=found.look_up, args=([1],))
    waiting.start()
    assert noted.wait(30)
    stub.is_away = False
    waiting.join(30)
    assert 1 in found.schemas
    assert said == [
        (
            f"the schema registry at {stub.url} answers with status 503; records of schema 1 are not verified until it "
            "answers"
        ),
        "the schema registry answers again",
    ]
    stop = threading.Event()
    stop.set()
    stub.is_away = True
    with pytest.raises(RegistryStopped):
        Registry(settings, None, said.append, stop).look_up([2])


def test_authentication_and_files_of_secrets(stub: RegistryStub, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    bearer = {"authorization": {"credentials_file": tmp_path / "token"}}
    basic = {"basic_auth": {"username": "user", "password": "secret"}}
    for wanted, settings in (("Basic dXNlcjpzZWNyZXQ=", basic), ("Bearer secret", bearer)):
        stub.wanted = wanted
        found, _ = client(stub, **settings)
        found.look_up([1])
        assert 1 in found.schemas
        assert "secret" not in repr(found._settings)
    found, _said = client(stub)
    with pytest.raises(RegistrySilent, match="refuses the sidecar"):
        found.look_up([1])
    (tmp_path / "token").unlink()
    with pytest.raises(RegistrySilent, match="cannot be read"):
        client(stub, **bearer)[0].look_up([1])


def test_tls_with_both_certificates(stub: RegistryStub, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server, user = authority.issue("server", address="127.0.0.1"), authority.issue("user")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server.certificate, server.key)
    context.load_verify_locations(authority.certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    stub.server.socket = context.wrap_socket(stub.server.socket, server_side=True)
    url = stub.url.replace("http:", "https:")
    trusted = {"ca_file": authority.certificate, "cert_file": user.certificate, "key_file": user.key}
    found, _ = client(stub, url=url, tls_config=trusted)
    found.look_up([1])
    assert 1 in found.schemas
    for tls, said in (({}, "CERTIFICATE_VERIFY_FAILED"), ({"ca_file": tmp_path / "none"}, "cannot be used")):
        with pytest.raises(RegistrySilent, match=said):
            client(stub, url=url, tls_config=tls)[0].look_up([1])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda stub: stub.server.server_close(), "does not answer"),
        (lambda stub: stub.schemas.update({1: {"page": "hello"}}), "what answers at .* is not a schema registry"),
    ],
)
def test_another_answer_proves_nothing(stub: RegistryStub, change: Callable[[RegistryStub], object], said: str) -> None:
    change(stub)
    found, _ = client(stub)
    with pytest.raises(RegistrySilent, match=said):
        found.look_up([1])
    assert found.schemas == {}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"url": "registry:8081"}, "it is not an address"),
        ({"url": "http://user:secret@registry"}, "it has a user or password"),
        ({"url": "http://r", "basic_auth": {"username": "u"}}, "it needs one of password and password_file"),
        (
            {
                "url": "http://r",
                "basic_auth": {"username": "u", "password": "p"},
                "authorization": {"credentials": "t"},
            },
            "exclude each other",
        ),
        ({"url": "http://r", "tls_config": {"cert_file": "a"}}, "belong together"),
    ],
)
def test_settings_that_do_not_fit_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said) as refused:
        SchemaRegistry.model_validate(given)
    assert "secret" not in str(refused.value)


@pytest.fixture
def real(tmp_path: Path) -> Iterator[str]:
    """``STREAMPROOF_SCHEMA_REGISTRY`` may have the address of another registry with Confluent's REST interface."""
    if given := os.environ.get("STREAMPROOF_SCHEMA_REGISTRY"):
        yield given
        return
    with RegistryServer(tmp_path) as server:
        yield server.url


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_real_registry_is_read(real: str) -> None:
    url, run = real, uuid.uuid4().hex[:8]

    def register(name: str, schema: object, **more: Any) -> int:
        body = json.dumps({"schema": schema if isinstance(schema, str) else json.dumps(schema), **more}).encode()
        headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
        address = f"{url}/subjects/{run}-{name}/versions"
        with urllib.request.urlopen(urllib.request.Request(address, body, headers)) as answer:
            return int(json.load(answer)["id"])

    money = {"type": "record", "name": f"Money{run}", "fields": [{"name": "cents", "type": "long"}]}
    order = {"type": "record", "name": f"Order{run}", "fields": [{"name": "paid", "type": f"Money{run}"}]}
    register("money", money)
    references = [{"name": f"Money{run}", "subject": f"{run}-money", "version": 1}]
    wanted = register("order", order, references=references)
    message = f'syntax = "proto3"; package p{run}; message M {{ int64 id = 1; repeated string tags = 2; }}'
    of_message = register("message", message, schemaType="PROTOBUF")
    registry = Registry(SchemaRegistry.model_validate({"url": url}), None, print, threading.Event())
    registry.look_up([wanted, of_message, 2**31 - 1])
    schemas = registry.schemas
    assert schemas[2**31 - 1] is None
    assert AvroReader(None, schemas, None).value(struct.pack(">bI", 0, wanted) + b"\x0a") == {"paid": {"cents": 5}}
    read = ProtobufReader(None, "", "prefix", schemas, None)
    raw = struct.pack(">bI", 0, of_message) + b"\0" + b"\x08\x07\x12\x01a"
    assert read.value(raw) == {"id": 7, "tags": ["a"]}
